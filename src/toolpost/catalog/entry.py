"""A tool's place in the catalog: its record, its source, its validators and its counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from toolpost.catalog.clean_spec import clean_spec
from toolpost.catalog.code_target import code_target
from toolpost.catalog.function import FunctionTool, run_tool
from toolpost.contracts.config import TransportType
from toolpost.contracts.errors import ToolValidationError
from toolpost.contracts.spec import ToolTarget
from toolpost.contracts.tool import PreviewingTool
from toolpost.schema.secrets import secret_paths
from toolpost.schema.validator import compile_validator, unchecked_patterns
from toolpost.schema.values import parts_within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.catalog.hold import Hold
    from toolpost.catalog.overrides import Overlay
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig, OutputCheck
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import JsonSchema, ToolSpec
    from toolpost.contracts.tool import Preview, Tool
    from toolpost.schema.secrets import SecretPaths
    from toolpost.schema.shared_definitions import SharedDefinitions
    from toolpost.schema.validator import Validator

_LIGHT_SCHEMA = 300  # so many values in a schema are compiled within a few milliseconds


class Entry:
    """One registered tool. Validators are compiled when the tool is first called, not when it is found.

    Where its schemas are large that takes a while, and `prepare` is called in a thread before.
    """

    __slots__ = (
        "_input",
        "_output",
        "_prepared",
        "_secrets",
        "config",
        "count",
        "failures",
        "hold",
        "invoke",
        "misfits",
        "overlay",
        "rank",
        "source",
        "spec",
        "tool",
        "total_ms",
    )

    def __init__(
        self,
        tool: Tool,
        *,
        source: ToolSource | None = None,
        config: ExternalToolConfig | None = None,
        overlay: Overlay | None = None,
        rank: int = 0,
        shared: SharedDefinitions | None = None,
    ) -> None:
        self.tool = tool
        given = overlay.spec if overlay is not None else tool.spec
        self.spec: ToolSpec = clean_spec(_with_target(given, tool, source), shared)
        self.overlay = overlay
        self.config = config
        self.rank = rank
        self.source = source
        self.invoke: Callable[[AuthorizedCall], Awaitable[ToolOutput | Question]] = _invoker(tool, source)
        self.count = 0
        self.failures = 0
        self.misfits = 0
        self.total_ms = 0.0
        self.hold: Hold | None = None
        self._input: Validator | None = None
        self._output: Validator | None = None
        self._secrets: tuple[SecretPaths, SecretPaths] | None = None
        self._prepared = source is None or _is_light(tool.spec)

    @property
    def original(self) -> ToolSpec:
        """The record as the source gave it, whatever an operator laid over it."""
        return self.tool.spec

    @property
    def origin(self) -> str:
        """The source outside that the tool comes from, whoever brought it here; empty for the operator's own code."""
        config = self.config
        return self.original.origin if config is None or config.transport is TransportType.PYTHON else config.name

    @property
    def _is_own(self) -> bool:
        """Whether the schemas are the operator's own: written in code, or in the configuration."""
        return not self.origin or (self.config is not None and declares_schemas(self.config))

    @property
    def unchecked_patterns(self) -> tuple[str, ...]:
        """The patterns of the tool's schemas that calls and results are not matched with."""
        schemas = () if self._is_own else (self.original.input_schema, self.original.output_schema or {})
        return tuple(pattern for schema in schemas for pattern in unchecked_patterns(schema))

    def set_aside(self, hold: Hold) -> None:
        """Show of the tool only what was agreed to; arguments are checked once its definition is."""
        self.hold, self.overlay = hold, None
        self.spec = hold.stub(self.spec)

    @property
    def is_prepared(self) -> bool:
        """Whether a call finds everything that is worked out once, or gets it at once."""
        return self._prepared

    def prepare(self) -> None:
        """Work out what every call needs; ToolSchemaError when a schema cannot be used."""
        for validator in (self.input_validator, self.output_validator):
            if validator is not None:
                validator.secrets()
        self.secret_paths  # noqa: B018 - known from now on
        self._prepared = True

    @property
    def secret_paths(self) -> tuple[SecretPaths, SecretPaths]:
        """Where the source's schemas mark secrets: in the arguments, and in the result."""
        if self._secrets is None:
            original = self.original
            self._secrets = secret_paths(original.input_schema), secret_paths(original.output_schema or {})
        return self._secrets

    @property
    def input_validator(self) -> Validator:
        """The compiled input schema."""
        if self._input is None:
            schema = self.original.input_schema if _is_entangled(self.overlay) else self.spec.input_schema
            self._input = compile_validator(schema, lenient=self.spec.validate_inputs == "lenient", own=self._is_own)
        return self._input

    @property
    def output_validator(self) -> Validator | None:
        """The compiled output schema, if the tool has one."""
        if self._output is None and self.spec.output_schema is not None:
            self._output = compile_validator(self.spec.output_schema, own=self._is_own)
        return self._output

    @property
    def output_check(self) -> OutputCheck:
        """What becomes of a result that breaks its schema; a tool from nowhere else is our own, and so is its fault."""
        if self.overlay is not None and self.overlay.outputs is not None:
            return self.overlay.outputs
        if self.config is None:
            return "report" if self.origin else "strict"
        return self.config.output_check

    @property
    def shown_schema(self) -> JsonSchema:
        """What a model sees of the input schema."""
        view = self.spec.model_schema
        return self.spec.input_schema if view is None else view

    @property
    def previewer(self) -> Preview | None:
        """What says of each call what it would do; only code of the operator's own is asked."""
        if self.origin:
            return None
        if isinstance(self.tool, FunctionTool):
            return self.tool.previewer
        return self.tool.preview if isinstance(self.tool, PreviewingTool) else None

    def succeed(self, old: Entry) -> None:
        """Take the place of another tool of the same name, and go on with its counts."""
        self.count, self.failures, self.total_ms = old.count, old.failures, old.total_ms
        self.misfits = old.misfits

    def fit(self, arguments: Any) -> dict[str, Any]:
        """The arguments as the original tool takes them; ToolValidationError says where they do not fit."""
        if _is_entangled(self.overlay) and isinstance(arguments, dict):
            arguments = self.overlay.fill(cast("dict[str, Any]", arguments))
        if self.spec.validate_inputs == "lenient":
            arguments = self.input_validator.coerce(arguments)
        if self.spec.validate_inputs != "off":
            self.input_validator.check(arguments, self.spec.name)
        if not isinstance(arguments, dict):
            raise ToolValidationError(f"$: expected object, got {type(arguments).__name__}", tool_name=self.spec.name)
        fitting = cast("dict[str, Any]", arguments)
        return fitting if self.overlay is None else self.overlay.fill(fitting)

    def record(self, duration_ms: float, success: bool) -> None:  # noqa: FBT001 - made for every call
        """Count one call."""
        self.count += 1
        self.total_ms += duration_ms
        if not success:
            self.failures += 1


def _with_target(spec: ToolSpec, tool: Tool, source: ToolSource | None) -> ToolSpec:
    """The record with its target; for a source that gives none, what is known of where its calls go."""
    if spec.target is not None:
        return spec
    if source is None:
        return replace(spec, target=code_target(tool.execute))
    remote = spec.extra.get("remote_name", spec.name)
    return replace(spec, target=ToolTarget.of("source", f"{remote} of source {source.name}", extra=dict(spec.extra)))


def _is_light(spec: ToolSpec) -> bool:
    schemas = (spec.input_schema, spec.output_schema or {})
    return all(parts_within(_LIGHT_SCHEMA, schema) for schema in schemas)


def declares_schemas(config: ExternalToolConfig) -> bool:
    """Whether the schemas of a source's tools stand in its configuration, not in what its other side says."""
    match config.transport:
        case TransportType.PYTHON | TransportType.WEBSOCKET:
            return True
        case TransportType.CLI:
            return config.cli.manual is None
        case _:
            return False


def _is_entangled(overlay: Overlay | None) -> TypeGuard[Overlay]:
    return overlay is not None and overlay.entangled


def _invoker(tool: Tool, source: ToolSource | None) -> Callable[[AuthorizedCall], Awaitable[ToolOutput | Question]]:
    if source is not None:
        return source.invoke
    return tool.invoke if isinstance(tool, FunctionTool) else run_tool
