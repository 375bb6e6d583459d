"""The source of workflows: every version as a tool, aliases that lead to versions, and the run of a workflow.

A step runs as soon as what it needs is there, each as a call of the same run under the same policy.
Tables go in and come out by ports: as rows for expressions, as Arrow files among the artifacts.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
from collections import defaultdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from toolpost.catalog.function import run_tool
from toolpost.catalog.names import canonical_name
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.errors import (
    ConfigError,
    ToolConnectionError,
    ToolError,
    ToolExecutionError,
    ToolValidationError,
    nearest,
)
from toolpost.contracts.outcomes import NO_META, Completed, Failed, Outcome, Paused, ToolResult, now_ms
from toolpost.contracts.spec import SafetyProfile, Tool, ToolSpec, ToolTarget, replay_of
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_DIRECT_VALUES
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.workflow.definition import OutputPort, PlannedStep, Port, Workflow, read_folder
from toolpost.sources.workflow.expressions import ExpressionError, is_true
from toolpost.transports.base import BaseSource, Services
from toolpost.web.untrusted import UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question


_LONGEST_WAIT_S = 60.0
ARROW_FILE = "application/vnd.apache.arrow.file"
_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"


class WorkflowFunction:
    """A workflow as a tool: `execute` runs its steps as calls of the same run."""

    def __init__(self, workflow: Workflow, *, name: str | None = None, source: str = "") -> None:
        self.workflow = workflow
        self.spec = _spec(workflow, name=name or workflow.name, source=source)

    async def run(self, params: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the workflow within a running call; a person's answer inside it is waited for by PauseSignal."""
        return await run_workflow(self.workflow, params, context, recorded=self.spec.has_effects)

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the workflow within a running call."""
        started = now_ms()
        output = await self.run(params, context)
        return ToolResult.completed(output if output.meta else output.content, output.text, started_at=started)


class SharedWorkflow:
    """A name that leads to versions of a workflow: to one, or by percentages to one for each call.

    The version is called as a tool, so that it has counts, events and limits of its own. A call that runs again
    keeps its version.
    """

    def __init__(self, spec: ToolSpec, shares: Mapping[str, int]) -> None:
        self.spec = spec
        self._shares = shares

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the version that this call gets."""
        started = now_ms()

        async def choose() -> str:
            return choose_version(self._shares, context.call_id)

        version = await context.once("version", choose, repeatable=True) if self.spec.has_effects else await choose()
        done = completed(await context.call(version, params, key="version"), context)
        return ToolResult.completed(done.content, done.text, started_at=started)


def choose_version(shares: Mapping[str, int], call_id: str) -> str:
    """Return the version that a call gets: the same for the same call, and by the percentages over many."""
    point = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8]) % 100
    for version, percent in shares.items():
        point -= percent
        if point < 0:
            return version
    return next(iter(shares))


class WorkflowSource(BaseSource):
    """Reads the workflows of a file or a folder; each version of each is a tool."""

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._path = Path(config.connection)

    async def discover(self) -> Sequence[Tool]:
        """Read the files; leave out and report those with a fault."""
        workflows, problems, files = await asyncio.to_thread(self._read)
        self.files = files
        versions, doubles = _by_version(workflows)
        tools = self._tools(versions)
        self.problems = [*problems, *doubles]
        return [tool for name, tool in tools.items() if self.config.includes(name)]

    def _read(self) -> tuple[list[tuple[Path, Workflow]], list[str], list[str]]:
        if not self._path.exists():
            missing = f"{self.config.connection!r} does not exist"
            raise ToolConnectionError(f"{missing}; name a YAML file or a folder of them", sent=False)
        workflows: list[tuple[Path, Workflow]] = []
        problems: list[str] = []
        files: list[str] = []
        for file, workflow in read_folder(self._path):
            files.append(str(file))
            if isinstance(workflow, Workflow):
                workflows.append((file, workflow))
            else:
                problems.append(workflow.message)
        if problems and not workflows:
            raise ToolConnectionError("; ".join(problems), sent=False)
        return workflows, problems, files

    def _tools(self, versions: Mapping[str, Mapping[int, Workflow]]) -> dict[str, Tool]:
        """Return the tools by their names within the source; ConfigError for an alias of what does not exist."""
        tools: dict[str, Tool] = {}
        aliased = _aliased_names(self.config.workflow.aliases)
        for name, by_version in versions.items():
            newest = max(by_version)
            for version, workflow in by_version.items():
                versioned = f"{name}_v{version}"
                if len(by_version) > 1 or versioned in aliased:
                    tools[versioned] = self._function(workflow, versioned)
            if len(by_version) == 1:
                tools[name] = self._function(by_version[newest], name)
            else:
                tools[name] = self._share_name(name, {f"{name}_v{newest}": 100}, tools)
        for name, versions_of in self.config.workflow.aliases.items():
            shares = {versions_of: 100} if isinstance(versions_of, str) else versions_of
            tools[name] = self._share_name(name, shares, tools)
        return tools

    def _function(self, workflow: Workflow, name: str) -> WorkflowFunction:
        return WorkflowFunction(workflow, name=canonical_name(self.name, name), source=self.name)

    def _share_name(self, name: str, shares: Mapping[str, int], tools: Mapping[str, Tool]) -> SharedWorkflow:
        for version in shares:
            if not isinstance(tools.get(version), WorkflowFunction):
                names = [one for one, tool in tools.items() if isinstance(tool, WorkflowFunction)]
                near = nearest(version, names)
                hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names) or 'none'}"
                alias = f"source {self.name!r}: alias {name!r}"
                raise ConfigError(f"{alias} leads to {version!r}, which is no version; {hint}")
        members = [tools[version].spec for version in shares]
        canonical = {canonical_name(self.name, version): percent for version, percent in shares.items()}
        return SharedWorkflow(_shared_spec(canonical_name(self.name, name), members, canonical), canonical)

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        return await run_tool(call)


def _aliased_names(aliases: Mapping[str, str | dict[str, int]]) -> set[str]:
    return {name for versions in aliases.values() for name in ([versions] if isinstance(versions, str) else versions)}


def _by_version(workflows: Sequence[tuple[Path, Workflow]]) -> tuple[dict[str, dict[int, Workflow]], list[str]]:
    """Return the workflows by name and version, and what is wrong where a version stands in two files."""
    versions: dict[str, dict[int, Workflow]] = defaultdict(dict)
    problems: list[str] = []
    for file, workflow in workflows:
        if workflow.version in versions[workflow.name]:
            problems.append(f"{file.name}: {workflow.label} stands in another file too; give this one another version")
        else:
            versions[workflow.name][workflow.version] = workflow
    return versions, problems


def _spec(workflow: Workflow, *, name: str, source: str) -> ToolSpec:
    data = workflow.data
    external = data.side_effects == "external"
    steps = " → ".join(workflow.steps) if len(workflow.steps) <= 5 else f"{len(workflow.steps)} steps"
    return ToolSpec(
        name=name,
        description=data.description or f"Run the workflow {workflow.name} ({steps}).",
        input_schema=workflow.input_schema,
        side_effects=data.side_effects,
        safety=SafetyProfile(external, False, data.destructive, external),  # noqa: FBT003 - in the record's order
        replay=replay_of(data.side_effects),
        resumes=True,
        timeout_s=data.timeout_s,
        tags=tuple(data.tags),
        version=str(workflow.version),
        source=source,
        extra={"workflow": workflow.name},
        target=ToolTarget("workflow", f"{workflow.name}, version {workflow.version}: {steps}", _detail(workflow)),
    )


def _detail(workflow: Workflow) -> str:
    """Return the whole definition, so that an approval is bound to it."""
    return json.dumps(workflow.data.model_dump(mode="json"), sort_keys=True)


def _shared_spec(name: str, members: Sequence[ToolSpec], shares: Mapping[str, int]) -> ToolSpec:
    """Return the record of a shared name: that of its first version, as strict as the strictest of them."""
    first = members[0]
    strictest = max(members, key=lambda spec: (spec.has_effects, spec.safety.destructive is not False))
    return ToolSpec(
        name=name,
        description=first.description,
        input_schema=first.input_schema,
        side_effects=strictest.side_effects,
        safety=strictest.safety,
        replay=strictest.replay,
        resumes=True,
        timeout_s=max(spec.timeout_s or 0.0 for spec in members) or None,
        tags=first.tags,
        version=first.version if len(members) == 1 else "+".join(spec.version for spec in members),
        source=first.source,
        extra={**first.extra, "shares": dict(shares)},
        target=ToolTarget("workflow", " or ".join(shares)),  # without percentages: those may change during a pause
    )


class _Waiting(Exception):  # noqa: N818 - no failure: a person is asked
    """The call of a step, or calls of its items, wait for a person."""

    def __init__(self, *paused: Paused) -> None:
        super().__init__()
        self.paused = paused


class _Skipped:
    """The result of a step whose condition did not hold."""


_SKIPPED = _Skipped()


async def run_workflow(
    workflow: Workflow, arguments: Mapping[str, Any], context: ToolContext, *, recorded: bool
) -> ToolOutput:
    """Run a workflow and return its outputs, with its message as the text for a model.

    With `recorded` the result of each step is written to the journal, so that steps that have ended are not repeated
    when the workflow runs again after a pause or a crash.
    """
    run = _Run(workflow, context, recorded=recorded)
    await run.take_inputs(arguments)
    await run.run_steps()
    return await run.output()


class _Run:
    """One run of a workflow: results so far, what waits and what failed."""

    def __init__(self, workflow: Workflow, context: ToolContext, *, recorded: bool) -> None:
        self._workflow = workflow
        self._context = context
        self._recorded = recorded
        self._results: dict[str, Any] = {}
        self._origins: set[str] = set()  # of results from outside, which the outputs quote
        self._skipped: set[str] = set()
        self._missing = {name: len(step.needs) for name, step in workflow.steps.items()}
        self._waiting: list[Paused] = []
        self._failures: list[ToolError] = []
        self._scope: dict[str, Any] = {"steps": self._results}

    async def take_inputs(self, arguments: Mapping[str, Any]) -> None:
        """Split the arguments into inputs and tables."""
        ports = self._workflow.data.ports.inputs
        defaults = _defaults(self._workflow.data.inputs)
        self._scope["inputs"] = defaults | {name: value for name, value in arguments.items() if name not in ports}
        tables: dict[str, Any] = {}
        if ports:
            for name, port in ports.items():
                where = f"{self._workflow.label}: port {name!r}"
                tables[name] = await read_port(where, port, arguments[name], self._context)
        self._scope["ports"] = tables

    async def run_steps(self) -> None:
        """Run every step that can run; raise where one failed, and pause where calls wait for a person."""
        async with asyncio.TaskGroup() as group:
            for name, missing in self._missing.items():
                if missing == 0:
                    group.create_task(self._run_step(name, group))
        if self._failures:
            raise self._find_failure()
        if self._waiting:
            self._context.wait_for(*self._waiting)

    def _find_failure(self) -> ToolError:
        """Return the first failure, with the questions of other steps that are open, and can only be denied now."""
        first = self._failures[0]
        if not self._waiting:
            return first
        open_ids = ", ".join(asked.pending_id for one in self._waiting for asked in one.questions)
        return ToolExecutionError(f"{first.message}; still open are its questions {open_ids}", code=first.error_code)

    async def _run_step(self, name: str, group: asyncio.TaskGroup) -> None:
        planned = self._workflow.steps[name]
        try:
            result = await self._result(planned)
        except _Waiting as waiting:
            self._waiting += waiting.paused
            return
        except ToolError as error:
            if planned.step.on_error == "fail":
                self._failures.append(error)
                return
            result = None
        if result is _SKIPPED:
            self._skipped.add(name)
            result = None
        self._results[name] = result
        if self._failures:  # what runs is let end, and nothing new begins
            return
        for other in planned.needed_by:
            self._missing[other] -= 1
            if self._missing[other] == 0:
                group.create_task(self._run_step(other, group))

    async def _result(self, planned: PlannedStep) -> Any:
        """Return the result of a step: of its call, or of the calls for its items in their order."""
        if planned.when is None:
            if self._skipped and not self._skipped.isdisjoint(planned.needs):
                return _SKIPPED
        elif not planned.when_is_of_item and not self._holds(planned, self._scope, planned.name):
            return _SKIPPED
        if planned.items is not None:
            return await self._loop(planned)
        return await self._call_or_replay(planned, self._scope, planned.name)

    async def _loop(self, planned: PlannedStep) -> list[Any]:
        """Run a step for every item, `max_parallel` at a time."""
        assert planned.items is not None  # noqa: S101 - checked by the caller
        items = self._evaluate(planned.items.evaluate, self._scope, planned.name, "for_each")
        if not is_array(items):
            msg = f"for_each gives {type(items).__name__}, not a list"
            raise self._error(planned.name, msg)
        results: list[Any] = [None] * len(items)
        waiting: list[Paused] = []
        failed: dict[int, ToolError] = {}
        numbers = iter(range(len(items)))
        if len(items) > 0:
            workers = min(planned.step.max_parallel, len(items))
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._run_items(planned, items, numbers, results, waiting, failed))
        if failed:
            self._waiting += waiting  # the error names their questions
            raise failed[min(failed)]
        if waiting:
            raise _Waiting(*waiting)
        return results

    async def _run_items(
        self,
        planned: PlannedStep,
        items: list[Any],
        numbers: Iterator[int],
        results: list[Any],
        waiting: list[Paused],
        failed: dict[int, ToolError],
    ) -> None:
        for number in numbers:
            if failed or self._failures:
                return
            where = f"{planned.name}[{number}]"
            scope = {**self._scope, "item": items[number], "index": number}
            try:
                if planned.when_is_of_item and not self._holds(planned, scope, where):
                    continue
                results[number] = await self._call_or_replay(planned, scope, where)
            except _Waiting as more:
                waiting += more.paused
            except ToolError as error:
                if planned.step.on_error == "fail":
                    failed[number] = error

    async def _call_or_replay(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> Any:
        """Return the result of a call, as it was recorded where the workflow runs again."""
        run = partial(self._call, planned, scope, where)
        result, origin = (
            await self._context.once(f"step {where}", run, repeatable=True) if self._recorded else await run()
        )
        if origin is not None:
            self._origins.add(origin)
        return result

    async def _call(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> Sequence[Any]:
        """Call the tool of a step until it succeeds, as often as the step allows.

        Return its result, and from where it is if it is untrusted.
        """
        arguments = self._evaluate(planned.arguments.render, scope, where, "arguments")
        step, tries = planned.step, 0
        while True:
            tries += 1
            key = where if tries == 1 else f"{where} try {tries}"
            outcome = await self._context.call(step.tool, arguments, key=key)
            match outcome:
                case Completed(meta=meta):
                    origin = str(meta.get("origin") or step.tool) if meta.get("trust") == UNTRUSTED else None
                    try:
                        return await self._whole(outcome), origin
                    except ToolError as error:
                        raise self._error(where, f"{step.tool}: {error.message}", error) from error
                case Paused():
                    raise _Waiting(outcome)
                case Failed(error=error):
                    if tries > step.retries or not _may_retry(error):
                        raise self._error(where, f"{step.tool}: {error.message}", error) from error
                case _:
                    assert_never(outcome)
            wait = min(step.retry_wait_s * 2.0 ** (tries - 1), _LONGEST_WAIT_S)
            await asyncio.sleep(max(wait, error.retry_after_seconds or 0.0))

    async def _whole(self, outcome: Completed) -> Any:
        """Return a result whole; of a large one the outcome has a preview."""
        content = outcome.content
        if not (outcome.artifacts and is_object(content) and content.get("artifact_id") == outcome.artifacts[0]):
            return content
        kind = str(content.get("media_type", ""))
        if "preview" not in content or not kind.startswith(("application/json", "text/plain")):
            return content  # a file, which expressions cannot read into
        data = await self._context.read_artifact(outcome.artifacts[0])
        if not kind.startswith("application/json"):
            return data.decode("utf-8", "surrogatepass")
        await measure(data, MAX_DIRECT_VALUES)
        return json.loads(data)

    def _holds(self, planned: PlannedStep, scope: Mapping[str, Any], where: str) -> bool:
        assert planned.when is not None  # noqa: S101 - checked by the callers
        return is_true(self._evaluate(planned.when.evaluate, scope, where, "when"))

    def _evaluate(
        self, evaluate: Callable[[Mapping[str, Any]], Any], scope: Mapping[str, Any], where: str, part: str
    ) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError as error:
            raise self._error(where, f"{part}: {error}", code=error.code) from error

    def _error(
        self, where: str, message: str, cause: ToolError | None = None, *, code: str = "step_failed"
    ) -> ToolError:
        """Return an error that names the workflow, the step and the item."""
        name, _, item = where.partition("[")
        place = f"step {name!r}, item {item[:-1]}" if item else f"step {name!r}"
        code = code if cause is None else cause.error_code
        error = ToolExecutionError(f"{self._workflow.label}: {place}: {message}", code=code, cause=cause)
        error.origin = "" if cause is None else cause.origin
        return error

    async def output(self) -> ToolOutput:
        """Render the outputs, save the tables that come out, and render the message."""
        workflow = self._workflow
        content = self._end("outputs", workflow.outputs.render)
        for name, port in workflow.data.ports.outputs.items():
            rows = self._end(f"port {name!r}", workflow.output_rows[name].evaluate)
            content[name] = await write_port(f"{workflow.label}: port {name!r}", port, rows, self._context)
        text = None if workflow.message is None else self._end("message", workflow.message.render)
        meta = {"origin": ", ".join(sorted(self._origins)), "trust": UNTRUSTED} if self._origins else NO_META
        return ToolOutput(content, None if text is None else str(text), meta=meta)

    def _end(self, part: str, evaluate: Callable[[Mapping[str, Any]], Any]) -> Any:
        try:
            return evaluate(self._scope)
        except ExpressionError as error:
            raise ToolExecutionError(f"{self._workflow.label}: {part}: {error}", code=error.code) from error


def _may_retry(error: ToolError) -> bool:
    """Return whether another try could help: not after a refusal, a denial or wrong arguments."""
    return error.is_retryable or isinstance(error, ToolExecutionError)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: one["default"] for name, one in properties.items() if is_object(one) and "default" in one}


def completed(outcome: Outcome, context: ToolContext) -> Completed:
    """Return the outcome of a completed call inside; wait with one that waits, and raise the error of a failure."""
    if isinstance(outcome, Paused):
        context.wait_for(outcome)
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome


async def read_port(where: str, port: Port, value: Any, context: ToolContext) -> list[dict[str, Any]]:
    """Return the rows of an input port: those that were given, or those of an artifact, whose columns must fit."""
    if is_array(value):  # the input schema has checked each row
        return list(value)
    try:
        data = await context.read_artifact(str(value))
    except KeyError:
        raise ToolValidationError(f"{where}: there is no artifact {value!r}; give its rows, or save it first") from None
    return _rows(where, _table(where, data), port)


async def write_port(where: str, port: OutputPort, rows: Any, context: ToolContext) -> dict[str, Any]:
    """Save rows as an Arrow file and return where it is."""
    arrow = _arrow(where)
    if not is_array(rows):
        raise ToolExecutionError(f"{where}: its rows are {_kind(rows)}, not a list of objects")
    for number, row in enumerate(rows):
        if not is_object(row):
            raise ToolExecutionError(f"{where}: row {number} is {_kind(row)}, not an object with its columns")
    columns = {name: _column(where, name, kind, rows) for name, kind in port.columns.items()}
    sink = arrow.BufferOutputStream()
    table = arrow.table(columns)
    with arrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    artifact_id = await context.save_artifact(data, media_type=ARROW_FILE, name="")
    return {"artifact_id": artifact_id, "rows": len(rows), "columns": dict(port.columns)}


def _arrow(where: str) -> Any:
    try:
        pyarrow = import_module("pyarrow")  # only for those who have tables
        import_module("pyarrow.ipc")
    except ModuleNotFoundError as error:
        msg = f"{where}: tables need pyarrow: pip install 'toolpost[arrow]'"
        raise ToolExecutionError(msg, cause=error) from error
    return pyarrow


def _types(arrow: Any) -> Mapping[str, Any]:
    return {
        "bool": arrow.bool_(),
        "int32": arrow.int32(),
        "int64": arrow.int64(),
        "float32": arrow.float32(),
        "float64": arrow.float64(),
        "string": arrow.string(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us"),
    }


def _column(where: str, name: str, kind: str, rows: list[dict[str, Any]]) -> pa.Array[Any]:
    arrow = _arrow(where)
    values = [row.get(name) for row in rows]
    if kind in ("date", "timestamp"):
        values = [_parsed_time(where, name, number, kind, value) for number, value in enumerate(values)]
    try:
        column: pa.Array[Any] = arrow.array(values, type=_types(arrow)[kind])
        return column
    except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        number = _first_misfit(arrow, values, kind)
        msg = f"{where}: column {name!r}, row {number}: {_kind(values[number])} {values[number]!r:.80} is no {kind}"
        raise ToolExecutionError(msg, cause=error) from error


def _first_misfit(arrow: Any, values: list[Any], kind: str) -> int:
    """Return the first row whose value does not fit; Arrow says only that one does not."""
    for number, value in enumerate(values):
        try:
            arrow.array([value], type=_types(arrow)[kind])
        except (arrow.ArrowException, TypeError, ValueError, OverflowError):
            return number
    return 0


def _parsed_time(where: str, name: str, number: int, kind: str, value: Any) -> Any:
    if value is None:
        return None
    parse = dt.date.fromisoformat if kind == "date" else dt.datetime.fromisoformat
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        msg = f"{where}: column {name!r}, row {number}: {value!r:.80} is no {kind} such as 2026-11-17"
        raise ToolExecutionError(msg, cause=error) from error


def _table(where: str, data: bytes) -> pa.Table:
    arrow = _arrow(where)
    try:
        if data.startswith(_PARQUET_MAGIC):
            table: pa.Table = import_module("pyarrow.parquet").read_table(arrow.BufferReader(data))
        else:
            open_data = arrow.ipc.open_file if data.startswith(_ARROW_MAGIC) else arrow.ipc.open_stream
            table = open_data(arrow.BufferReader(data)).read_all()
    except (arrow.ArrowException, OSError) as error:
        raise ToolValidationError(f"{where}: the artifact is no table of Arrow or Parquet: {error}") from error
    return table


def _rows(where: str, table: pa.Table, port: Port) -> list[dict[str, Any]]:
    missing = [name for name in port.columns if name not in table.column_names]
    if missing:
        has = ", ".join(table.column_names) or "none"
        raise ToolValidationError(f"{where}: the table has no column {missing[0]!r}; its columns are {has}")
    types = dict(zip(table.schema.names, map(str, table.schema.types), strict=True))
    for name, kind in port.columns.items():
        if not _fits(types[name], kind):
            raise ToolValidationError(f"{where}: column {name!r} is {types[name]}, not {kind}")
    rows: list[dict[str, Any]] = table.select(list(port.columns)).to_pylist()
    times = [name for name, kind in port.columns.items() if kind in ("date", "timestamp")]
    for row in rows if times else ():
        row.update({name: None if row[name] is None else row[name].isoformat() for name in times})
    return rows


def _fits(column_type: str, kind: str) -> bool:
    """Return whether a column's type is what the port declares, or holds the same values."""
    others = {"float64": ("double",), "float32": ("float",), "string": ("large_string", "string_view")}
    if kind == "date":
        return column_type.startswith("date")
    if kind == "timestamp":
        return column_type.startswith("timestamp")
    return column_type in (kind, *others.get(kind, ()))


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"
