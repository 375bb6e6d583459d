"""Workflows as data: YAML that names steps and the tools they call, checked as a whole and packed into bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from msgspec import Struct
from pydantic import Field, ValidationError

from toolpost.contracts.config_model import ConfigModel
from toolpost.contracts.errors import ConfigError, ToolSchemaError
from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_object
from toolpost.schema.schema_checks import check_schema
from toolpost.sources.workflow.expressions import Expression, ExpressionError, Reference, Template, uses_loop

T = TypeVar("T")
FORMAT = 1  # the format that is written; workflows of a newer one are rejected
MOST_BYTES = 1024 * 1024
_BOOL, _TIMESTAMP = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,47}$"

# JSON Schemas of the column types of a port. The Arrow types are in `ports`, which needs pyarrow.
COLUMN_SCHEMAS: Mapping[str, JsonSchema] = {
    "bool": {"type": "boolean"},
    "int32": {"type": "integer"},
    "int64": {"type": "integer"},
    "float32": {"type": "number"},
    "float64": {"type": "number"},
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
}
ColumnType = Literal["bool", "int32", "int64", "float32", "float64", "string", "date", "timestamp"]


class Port(ConfigModel):
    """An input table: its columns and their types."""

    description: str = ""
    columns: dict[str, ColumnType] = Field(min_length=1)

    def row_schema(self) -> JsonSchema:
        """Return the JSON Schema of one row; any value may be missing, as in a table."""
        properties = {name: {"anyOf": [COLUMN_SCHEMAS[kind], {"type": "null"}]} for name, kind in self.columns.items()}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class OutputPort(Port):
    """An output table: `rows` is the expression of its rows."""

    rows: str


class Ports(ConfigModel):
    """The input and output tables of a workflow."""

    inputs: dict[str, Port] = Field(default_factory=dict[str, Port])
    outputs: dict[str, OutputPort] = Field(default_factory=dict[str, OutputPort])


class Step(ConfigModel):
    """One call of a tool, or one for each item; conditions and items are expressions, arguments a template."""

    tool: str = Field(min_length=1)
    description: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])
    when: str | None = None
    for_each: str | None = None
    max_parallel: int = Field(default=10, ge=1, le=100)
    after: list[str] = Field(default_factory=list[str])
    retries: int = Field(default=0, ge=0, le=10)
    retry_wait_s: float = Field(default=0.5, ge=0, le=60)
    on_error: Literal["fail", "continue"] = "fail"


class WorkflowData(ConfigModel):
    """The data of a workflow's YAML file."""

    format: int = FORMAT
    name: str = Field(pattern=_NAME)
    version: int = Field(default=1, ge=1)
    description: str = ""
    side_effects: Literal["pure", "read", "write", "external", "stateful"] = "write"
    destructive: bool = False
    timeout_s: float = Field(default=300.0, gt=0)
    tags: list[str] = Field(default_factory=list[str])
    inputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    ports: Ports = Field(default_factory=Ports)
    steps: dict[str, Step] = Field(min_length=1)
    outputs: Any = None
    message: str | None = None


class PlannedStep(Struct, frozen=True, kw_only=True):
    """A step with its compiled expressions, the steps it depends on and those that depend on it."""

    name: str
    step: Step
    arguments: Template
    when: Expression | None
    items: Expression | None
    needs: frozenset[str]
    needed_by: tuple[str, ...]
    when_is_of_item: bool


class Workflow(Struct, frozen=True, kw_only=True):
    """A checked workflow: its data, its steps in an order in which they can run, and its compiled outputs."""

    data: WorkflowData
    steps: Mapping[str, PlannedStep]
    outputs: Template
    message: Template | None
    output_rows: Mapping[str, Expression]

    @classmethod
    def read(cls, path: str | Path) -> Workflow:
        """Read a workflow from a YAML file; a ConfigError names the invalid part."""
        file = Path(path)
        try:
            text = file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror or error}") from error
        return cls.parse(text, where=file.name)

    @classmethod
    def parse(cls, text: str | bytes, *, where: str = "the workflow") -> Workflow:
        """Read a workflow from YAML; a ConfigError names the invalid part."""
        if len(text) > MOST_BYTES:
            raise ConfigError(f"{where} has {len(text)} bytes; a workflow has at most {MOST_BYTES}")
        try:
            data: object = yaml.load(text, _PlainLoader)  # noqa: S506 - a SafeLoader
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where} is not YAML: {' '.join(str(error).split())}") from error
        return cls.of(data, where=where)

    @classmethod
    def of(cls, data: object, *, where: str = "the workflow") -> Workflow:
        """Check a workflow that is given as plain data; a ConfigError names the invalid part."""
        if not is_object(data):
            raise ConfigError(f"{where} is not a mapping with name, steps and so on")
        _check_format(data.get("format", FORMAT), where)
        try:
            return _Checker(WorkflowData.model_validate(data)).check()
        except ValidationError as error:
            raise ConfigError(f"{_label(data, where)}: {'; '.join(map(_fault, error.errors()))}") from None

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def version(self) -> int:
        return self.data.version

    @property
    def label(self) -> str:
        """The workflow as errors name it."""
        return f"workflow {self.data.name!r} (version {self.data.version})"

    @property
    def input_schema(self) -> JsonSchema:
        """The JSON Schema of the arguments: the inputs, and for each port its rows or the id of an artifact."""
        schema: JsonSchema = {"type": "object", "properties": {}, "additionalProperties": False, **self.data.inputs}
        ports = self.data.ports.inputs
        if ports:
            tables = {name: _table_schema(port) for name, port in ports.items()}
            schema["properties"] = {**schema["properties"], **tables}
            schema["required"] = [*schema.get("required", []), *ports]
        return schema

    def pack(self) -> bytes:
        """Return the workflow as bytes for `unpack`; the same workflow has the same bytes."""
        data = self.data.model_dump(mode="json", exclude_defaults=True)
        body = json.dumps({**data, "format": FORMAT}, sort_keys=False, separators=(",", ":"), ensure_ascii=False)
        return json.dumps({"toolpost_workflow": FORMAT, "sha256": _digest(body), "workflow": body}).encode()

    @classmethod
    def unpack(cls, packed: bytes) -> Workflow:
        """Read the bytes of `pack`; raise ConfigError if they are something else, newer, or damaged."""
        where = "the packed workflow"
        try:
            outer: object = json.loads(packed)
        except ValueError as error:
            raise ConfigError(f"{where} cannot be read: its {len(packed)} bytes are not JSON ({error})") from error
        if not is_object(outer) or "toolpost_workflow" not in outer:
            raise ConfigError(f"{where} cannot be read: it was not packed by Toolpost")
        _check_format(outer["toolpost_workflow"], where)
        body = outer.get("workflow")
        if not isinstance(body, str) or outer.get("sha256") != _digest(body):
            raise ConfigError(f"{where} is damaged: its hash does not match its content; pack it again")
        return cls.of(json.loads(body), where=where)


class _PlainLoader(yaml.SafeLoader):
    """YAML as JSON: without aliases, which can make a small file large, duplicate keys, and dates.

    Only true and false are booleans: a workflow may have the name `on`, and a country `no`.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [one for one in resolvers if one[0] not in (_BOOL, _TIMESTAMP)]
        + ([(_BOOL, re.compile("^(?:true|false)$"))] if first in "tf" else [])
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML has it
        seen: set[object] = set()
        for key, _ in node.value:
            name = key.value
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} occurs twice", key.start_mark)
            seen.add(name)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _check_format(value: object, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where}: format is {value!r}, not a number such as {FORMAT}")
    if value > FORMAT:
        raise ConfigError(
            f"{where} has format {value} of a newer Toolpost; this one supports up to {FORMAT}: update Toolpost"
        )


def _label(data: Mapping[str, Any], where: str) -> str:
    name = data.get("name")
    return f"workflow {name!r}" if isinstance(name, str) and where == "the workflow" else where


def _fault(error: Any) -> str:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        models = (WorkflowData, Step, OutputPort, Ports)
        near = nearest(str(error["loc"][-1]), sorted({name for model in models for name in model.model_fields}))
        return f"{path} is unknown{f'; did you mean {near}?' if near else ''}"
    return f"{path}: {error['msg']}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _table_schema(port: Port) -> JsonSchema:
    columns = ", ".join(f"{name} ({kind})" for name, kind in port.columns.items())
    about = f"{port.description} " if port.description else ""
    return {
        "description": f"{about}A table with the columns {columns}: its rows, or the id of an artifact with an Arrow "
        "file or Parquet.",
        "anyOf": [{"type": "array", "items": port.row_schema()}, {"type": "string", "minLength": 1}],
    }


class _Checker:
    """Checker that compiles expressions and finds the dependencies of steps; each error names the step."""

    def __init__(self, data: WorkflowData) -> None:
        self._data = data
        self._label = f"workflow {data.name!r} (version {data.version})"

    def check(self) -> Workflow:
        data = self._data
        self._check_inputs()
        compiled = {name: self._compile(name, step) for name, step in data.steps.items()}
        needs = {name: self._needs(name, step, compiled[name]) for name, step in data.steps.items()}
        order = self._order(needs)
        needed_by = {name: tuple(other for other in order if name in needs[other]) for name in order}
        steps = {
            name: _plan_step(name, data.steps[name], compiled[name], needs[name], needed_by[name]) for name in order
        }
        ends = [name for name in data.steps if not needed_by[name]]
        outputs = data.outputs if data.outputs is not None else _default_outputs(ends, data.ports)
        return Workflow(
            data=data,
            steps=steps,
            outputs=self._template("outputs", outputs),
            message=None if data.message is None else self._template("message", data.message),
            output_rows={
                name: self._end_expression(f"ports.outputs.{name}.rows", port.rows)
                for name, port in data.ports.outputs.items()
            },
        )

    def _check_inputs(self) -> None:
        data, ports = self._data, self._data.ports
        if data.inputs.get("type", "object") != "object" or not is_object(data.inputs.get("properties", {})):
            raise self._fault("inputs", "is not a JSON Schema of an object; write properties and required")
        try:
            check_schema({"type": "object", **data.inputs}, tool_name=data.name)
        except ToolSchemaError as error:
            raise self._fault("inputs", error.message) from error
        for name in data.steps:
            self._check_name(f"steps.{name}", name)
        for name in (*ports.inputs, *ports.outputs):
            self._check_name(f"ports.{name}", name)
        for name in ports.inputs:
            if name in data.inputs.get("properties", {}):
                raise self._fault(f"ports.inputs.{name}", "has the name of an input; rename one of them")
        if ports.outputs and not (data.outputs is None or is_object(data.outputs)):
            raise self._fault("outputs", "must be a mapping if there are output ports, which are added to it")

    def _check_name(self, where: str, name: str) -> None:
        if not name.isascii() or not name.isidentifier():
            raise self._fault(
                where, "is not a valid name for expressions: use letters, digits and _, and do not begin with a digit"
            )

    def _compile(self, name: str, step: Step) -> tuple[Template, Expression | None, Expression | None]:
        where = f"step {name!r}"
        arguments = self._compile_at(f"{where}, arguments", lambda: Template(step.arguments))
        when = None if step.when is None else self._expression(f"{where}, when", step.when)
        items = None if step.for_each is None else self._expression(f"{where}, for_each", step.for_each)
        if items is not None and uses_loop(items.references):
            raise self._fault(f"{where}, for_each", "uses item or index, which exist only within the loop")
        if items is None:
            for part, compiled in (("arguments", arguments), ("when", when)):
                if compiled is not None and uses_loop(compiled.references):
                    raise self._fault(f"{where}, {part}", "uses item or index and the step has no for_each")
        return arguments, when, items

    def _needs(self, name: str, step: Step, compiled: Iterable[Template | Expression | None]) -> frozenset[str]:
        """Return the steps that a step refers to, by its expressions or by `after`."""
        references = {one for part in compiled if part is not None for one in part.references}
        self._check_references(f"step {name!r}", references)
        for other in step.after:
            self._check_known(f"step {name!r}, after", other, self._data.steps, "step")
        return frozenset([*(one.name for one in references if one.root == "steps"), *step.after])

    def _check_references(self, where: str, references: Iterable[Reference]) -> None:
        for reference in sorted(references):
            if reference.root == "steps":
                self._check_known(where, reference.name, self._data.steps, "step")
            elif reference.root == "ports":
                self._check_known(where, reference.name, self._data.ports.inputs, "input port")

    def _check_known(self, where: str, name: str, known: Iterable[str], what: str) -> None:
        names = list(known)
        if name not in names:
            near = nearest(name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
            raise self._fault(where, f"refers to the {what} {name!r}, which does not exist; {hint}")

    def _order(self, needs: Mapping[str, frozenset[str]]) -> Sequence[str]:
        """Return the steps in topological order."""
        try:
            return list(TopologicalSorter({name: sorted(needs[name]) for name in self._data.steps}).static_order())
        except CycleError as error:
            circle = " → ".join(reversed(error.args[1]))
            raise self._fault("steps", f"wait for each other in a circle: {circle}") from None

    def _end_expression(self, where: str, text: str) -> Expression:
        expression = self._expression(where, text)
        self._check_end(where, expression.references)
        return expression

    def _template(self, where: str, value: Any) -> Template:
        template = self._compile_at(where, lambda: Template(value))
        self._check_end(where, template.references)
        return template

    def _check_end(self, where: str, references: frozenset[Reference]) -> None:
        if uses_loop(references):
            raise self._fault(where, "uses item or index, which exist only in steps with for_each")
        self._check_references(where, references)

    def _expression(self, where: str, text: str) -> Expression:
        return self._compile_at(where, lambda: Expression(text.strip().removeprefix("${{").removesuffix("}}")))

    def _compile_at(self, where: str, make: Callable[[], T]) -> T:
        try:
            return make()
        except ExpressionError as error:
            raise self._fault(where, str(error)) from error

    def _fault(self, where: str, what: str) -> ConfigError:
        return ConfigError(f"{self._label}: {where} {what}")


def _plan_step(
    name: str,
    step: Step,
    compiled: tuple[Template, Expression | None, Expression | None],
    needs: frozenset[str],
    needed_by: tuple[str, ...],
) -> PlannedStep:
    arguments, when, items = compiled
    return PlannedStep(
        name=name,
        step=step,
        arguments=arguments,
        when=when,
        items=items,
        needs=needs,
        needed_by=needed_by,
        when_is_of_item=when is not None and uses_loop(when.references),
    )


def _default_outputs(ends: Sequence[str], ports: Ports) -> Any:
    """Return the default template of the outputs: the results of the steps that no other step needs."""
    if ports.outputs:
        return {}
    if len(ends) == 1:
        return f"${{{{ steps.{ends[0]} }}}}"
    return {name: f"${{{{ steps.{name} }}}}" for name in ends}


def read_folder(path: Path) -> Iterator[tuple[Path, Workflow | ConfigError]]:
    """Yield the workflows of a file or of the YAML files of a folder, or the error of an invalid one."""
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    for file in files:
        try:
            yield file, Workflow.read(file)
        except ConfigError as error:
            yield file, error
