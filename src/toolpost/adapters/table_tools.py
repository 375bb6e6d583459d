"""Callable tools of a table: rows refer to servers, and every call goes through the router of a Toolbox."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from toolpost.adapters.credentials import NamedCredential
from toolpost.adapters.provider import unsupported_reason
from toolpost.adapters.row_servers import (
    AllowedServer,
    FindCredential,
    RowServer,
    RowServers,
    connection_forms,
    transport_of,
)
from toolpost.adapters.stored_tools import (
    AnyToolValue,
    MCPTool,
    RemoteTool,
    ToolExecutionResult,
    ToolType,
    ToolValue,
    WorkflowTool,
)
from toolpost.catalog.names import MODEL_NAME_LIMIT, canonical_name
from toolpost.contracts.errors import ConfigError, ToolError, ToolPermissionError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult, now_ms
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import TransportType
from toolpost.contracts.spec import SafetyProfile, ToolSpec, ToolTarget
from toolpost.runtime.model_messages import model_text
from toolpost.sources.base import SourceTool

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import Tool
    from toolpost.toolbox.box import Toolbox

RunWorkflow: TypeAlias = "Callable[[WorkflowTool, dict[str, Any], ToolContext], Awaitable[Any]]"
ValueKey: TypeAlias = tuple[ToolType, str, str | bytes | None, str | None]

_WORKFLOWS = "workflow"
_LONGEST_SOURCE = 24
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]+")
_START = "start"
_UNKNOWN = SafetyProfile(network=True, destructive=None, open_world=True)
_NOT_TRUSTED = (
    "its workflow comes from the table alone, and a table is not trusted; add the workflow as a source to the "
    "configuration, give run_workflow=..., or pass trust_rows=True"
)


async def extract_tools(
    table: Any,
    column: str | None = None,
    *,
    box: Toolbox,
    user: str | None = None,
    servers: Iterable[AllowedServer] = (),
    trust_rows: bool = False,
    credentials: Iterable[NamedCredential] | FindCredential = (),
    run_workflow: RunWorkflow | None = None,
) -> list[TableTool]:
    """Return the tools of a column, by default the last one of tools, to be called in an open Toolbox.

    Reading starts, imports and connects nothing. A row refers to a server: to a source of the Toolbox, or to one of
    `servers` (a URL, a command, a file, or an ExternalToolConfig), which the first call connects. Other rows are
    `unusable`: a warning and every call report the reason. With `trust_rows` they are used, too; each command and
    module then requires approval, and the network policy applies to each address.

    The types may be mixed and empty cells are skipped; tools that are marked as unsupported are skipped with a
    warning. Credentials are looked up by their names, and each is sent only to its origin. Workflows of Toolpost
    run in the Toolbox; `run_workflow` runs those of a host, and then all. Calls are for `user`.
    """
    from toolpost.adapters.arrow_decoding import tool_values  # noqa: PLC0415 - an extra, as the next
    from toolpost.adapters.arrow_tables import as_table, tool_column_name  # noqa: PLC0415

    arrow_table = as_table(table)
    values = tool_values(arrow_table.column(tool_column_name(arrow_table, column)))
    executor = ToolValues(
        box, user=user, servers=servers, trust_rows=trust_rows, credentials=credentials, run_workflow=run_workflow
    )
    return await executor.add([value for value in values if value is not None])


class TableTool(NamedTuple):
    """A tool of a table that can be called.

    `name` is that of its value, or the one in the catalog if several share it; `model_name` is one that models
    accept, `tool_name` the one in the catalog of the Toolbox. `unusable` is the reason if every call would fail.
    """

    value: AnyToolValue
    name: str
    model_name: str
    tool_name: str
    executor: ToolValues
    unusable: str = ""

    def call(self, parameters: Mapping[str, Any], *, idempotency_key: str | None = None) -> Awaitable[Outcome]:
        """Call the tool and return its outcome."""
        if self.unusable:
            return _refuse(self.value, self.unusable)
        return self.executor.call(self.tool_name, parameters, idempotency_key=idempotency_key)

    async def __call__(self, **parameters: Any) -> ToolExecutionResult:
        """Call the tool; errors and questions are results with a message."""
        return execution_result(await self.call(parameters))


class ToolValues:
    """Execute tool values of every type in an open Toolbox; the arguments are those of `extract_tools`.

    `on_problem` gets a sentence about each unusable value, instead of a warning. A source is added once
    for each server and credential, with only the requested tools.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        user: str | None = None,
        servers: Iterable[AllowedServer] = (),
        trust_rows: bool = False,
        credentials: Iterable[NamedCredential] | FindCredential = (),
        run_workflow: RunWorkflow | None = None,
        on_problem: Callable[[str], object] | None = None,
    ) -> None:
        self.box = box
        self.loop = asyncio.get_running_loop()
        self.user = user
        self._servers = RowServers(lambda: box.sources.index.open_configs, servers, credentials, trust_rows=trust_rows)
        self._trusts_rows = trust_rows
        self._run_workflow = run_workflow
        self._on_problem: Callable[[str], object] = on_problem or _warn
        self._names: dict[ValueKey, str] = {}
        self._unusable: dict[ValueKey, str] = {}

    async def add(self, values: Iterable[AnyToolValue]) -> list[TableTool]:
        """Make values callable, without starting, importing or connecting anything.

        Values that are marked as unsupported are skipped with a warning; other unusable values are named in a warning.
        """
        usable: list[AnyToolValue] = []
        for value in values:
            if reason := unsupported_reason(value.parameter_schema):
                self._on_problem(f"tool {value.name!r} is skipped: it {reason}")
            else:
                usable.append(value)
        new = {key: value for value in usable if (key := _key(value)) not in self._names}
        await self._add_sources([value for value in new.values() if isinstance(value, RemoteTool)])
        for key, value in new.items():
            if isinstance(value, WorkflowTool):
                self._add_workflow(key, value)
        for key, value in new.items():
            if reason := self._unusable.get(key):
                self._on_problem(f"tool {value.name!r} of the table cannot be used: {reason}")
        return self._name_tools(usable)

    async def execute(self, value: ToolValue, parameters: Mapping[str, Any]) -> ToolExecutionResult:
        """Call the tool of a value; an error is a result with a message."""
        tool_value = cast("AnyToolValue", value)
        key = _key(tool_value)
        if key not in self._names and not await self.add([tool_value]):
            reason = unsupported_reason(value.parameter_schema)
            return ToolExecutionResult(text=f"The tool is not supported: it {reason}", error=reason)
        if reason := self._unusable.get(key):
            return execution_result(await _refuse(tool_value, reason))
        return execution_result(await self.call(self._names[key], parameters))

    def call(
        self, tool_name: str, parameters: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Awaitable[Outcome]:
        """Call a tool by its name in the catalog."""
        return self.box.call(tool_name, parameters, user=self.user, idempotency_key=idempotency_key)

    async def _execute_mcp_tool(self, tool: MCPTool, parameters: Mapping[str, Any]) -> str:
        """Call an MCP tool and return its result, or its error, as the text of a message."""
        return (await self.execute(tool, parameters)).text

    async def _add_sources(self, values: list[RemoteTool]) -> None:
        """Find the server of each value, and add those that are not open as sources that the first call connects."""
        servers: dict[tuple[TransportType, str, str | None], _RowsOfServer] = {}
        for value in values:
            transport = transport_of(cast("AnyToolValue", value))
            try:
                server = self._servers.find(value, transport)
            except ToolError as error:
                self._mark_unusable(value, error)
                continue
            if server.config is None:
                self._names[_key(cast("AnyToolValue", value))] = canonical_name(server.name, value.tool_name)
                continue
            place = (transport, value.server_uri, value.credential_name)
            servers.setdefault(place, _RowsOfServer(server, server.config, [])).values.append(value)
        for rows in servers.values():
            await self._add_source(rows)

    def _mark_unusable(self, value: RemoteTool | WorkflowTool, error: ToolError) -> None:
        key = _key(cast("AnyToolValue", value))
        self._names[key] = value.name
        self._unusable[key] = self.box.redactor.redact(error.message.removeprefix("Permission denied: "))

    async def _add_source(self, rows: _RowsOfServer) -> None:
        """Add the server of some rows to the sources of the Toolbox, idle."""
        server, settings, values = rows
        name = _source_name(settings.connection, {state.name for state in self.box.report})
        tools = {value.tool_name: value for value in reversed(values)}
        wanted = settings.tool_filter
        config = settings.model_copy(
            update={"name": name, "tool_filter": [re.escape(tool) for tool in tools] if wanted is None else wanted}
        )
        await self.box.sources.add_idle(
            config,
            [_row_tool(name, value) for value in tools.values()],
            from_data=server.from_data,
            question=self._question(settings.connection, values[0]) if server.runs else None,
        )
        for value in values:
            self._names[_key(cast("AnyToolValue", value))] = canonical_name(name, value.tool_name)

    def _question(self, connection: str, value: RemoteTool) -> Question:
        """Return the question whether the command of a row may be started, or its module imported."""
        forms = connection_forms(transport_of(cast("AnyToolValue", value)))
        does = "Start the command" if "command" in forms else "Import"
        shown = self.box.redactor.redact(connection)
        prompt = f"{does} `{shown}`? It comes from a row of a table and runs with the permissions of this process."
        return Question(kind="approval", prompt=prompt, key=_START)

    def _add_workflow(self, key: ValueKey, value: WorkflowTool) -> None:
        """Find the workflow of a row in the catalog, or register it if the code allows it."""
        if self._run_workflow is not None:
            self._names[key] = self._register(value, partial(_HostedWorkflow, value=value, run=self._run_workflow))
            return
        try:
            self._names[key] = self._find_workflow(value) or self._register_workflow(value)
        except ToolError as error:
            self._mark_unusable(value, error)

    def _find_workflow(self, value: WorkflowTool) -> str | None:
        """Return the name of the same workflow in the catalog."""
        for tool in self.box.registry.list():
            workflow: Any = getattr(tool, "workflow", None)
            if workflow is not None and workflow.name == value.name and workflow.pack() == value.package:
                return tool.spec.name
        return None

    def _register_workflow(self, value: WorkflowTool) -> str:
        if not self._trusts_rows:
            raise ToolPermissionError(_NOT_TRUSTED, code="row_not_allowed")
        from toolpost.sources.workflow.definition import Workflow  # noqa: PLC0415 - an extra
        from toolpost.sources.workflow.source import WorkflowFunction  # noqa: PLC0415 - the same

        try:
            workflow = Workflow.unpack(value.package or b"")
        except ConfigError as error:
            msg = f"the workflow {value.name!r} cannot be run here: {error.message}"
            raise ConfigError(f"{msg}; is it for a run_workflow of the host?") from error
        return self._register(value, lambda name: WorkflowFunction(workflow, name=name))

    def _register(self, value: WorkflowTool, make: Callable[[str], Tool]) -> str:
        registry, name = self.box.registry, canonical_name(_WORKFLOWS, value.name)
        number = 1
        while registry.has(name):
            number += 1
            name = canonical_name(_WORKFLOWS, f"{value.name}_{number}")
        registry.register(make(name))
        return name

    def _name_tools(self, values: list[AnyToolValue]) -> list[TableTool]:
        counts = Counter(value.name for value in values)
        model_names = _ModelNames()
        tools: list[TableTool] = []
        for value in values:
            key = _key(value)
            tool_name = self._names[key]
            name = value.name if counts[value.name] == 1 else tool_name
            unusable = self._unusable.get(key, "")
            tools.append(TableTool(value, name, model_names.add(value.name), tool_name, self, unusable))
        return tools


def _warn(problem: str) -> None:
    warnings.warn(problem, stacklevel=4)


class _RowsOfServer(NamedTuple):
    server: RowServer
    config: ExternalToolConfig
    values: list[RemoteTool]


def _row_tool(source: str, value: RemoteTool) -> Tool:
    """Return a tool as described by its row. Its effects are unknown until its server has listed it."""
    return SourceTool(
        ToolSpec(
            name=canonical_name(source, value.tool_name),
            description=value.description,
            input_schema=value.input_schema or value.parameter_schema or {"type": "object", "properties": {}},
            side_effects="external",
            safety=_UNKNOWN,
            source=source,
            origin=source,
            target=ToolTarget.of("row", value.server_uri, tool=value.tool_name),
        )
    )


async def _refuse(value: AnyToolValue, reason: str) -> Failed:
    """Return the outcome of a call to a tool that cannot be used."""
    message = f"tool {value.name!r} of the table cannot be used: {reason}"
    return Failed("", "", value.name, ToolPermissionError(message, tool_name=value.name, code="row_not_allowed"))


def execution_result(outcome: Outcome) -> ToolExecutionResult:
    """Return an outcome as the result of a tool value, with the message for the conversation."""
    text = model_text(outcome)
    match outcome:
        case Completed(content=ToolExecutionResult() as whole):
            return whole
        case Completed(content=content):
            return ToolExecutionResult(text=text, content=content)
        case Failed(error=error):
            return ToolExecutionResult(text=text, error=error.message)
        case Paused(pending_id=pending_id):
            return ToolExecutionResult(text=text, pending_id=pending_id)


class _HostedWorkflow:
    """A workflow as a tool of the catalog; the host runs it."""

    def __init__(self, name: str, *, value: WorkflowTool, run: RunWorkflow) -> None:
        self._value = value
        self._run = run
        self.spec = ToolSpec(
            name=name,
            description=value.description,
            input_schema=value.parameter_schema or {"type": "object", "properties": {}},
            side_effects="external",  # its effects are unknown
        )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = now_ms()
        result = await self._run(self._value, params, context)
        if not isinstance(result, ToolExecutionResult):
            return ToolResult.completed(result, started_at=started)
        if result.error is not None:
            raise ToolError(result.error, tool_name=self.spec.name, code="workflow_failed")
        return ToolResult.completed(result.content, result.text, started_at=started)


def _key(value: AnyToolValue) -> ValueKey:
    """Return the identity of a tool: rows with the same server and name are one tool."""
    if isinstance(value, WorkflowTool):
        return (value.tool_type, value.name, value.package, None)
    return (value.tool_type, value.server_uri, value.tool_name, value.credential_name)


def _source_name(uri: str, taken: Collection[str]) -> str:
    """Derive a name for an unnamed server: its host, or the last word of its command or path."""
    host = urlsplit(uri).hostname if "://" in uri else None
    words = host or PurePath(uri.strip().rpartition(" ")[2]).stem
    name = _NOT_ALLOWED.sub("_", words).strip("_-")[:_LONGEST_SOURCE] or "tools"
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name}_{number}"
    return numbered


class _ModelNames:
    """Names that models accept, each given to one tool of the table."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: Counter[str] = Counter()

    def add(self, name: str) -> str:
        """Return a name for one more tool: `search` for the first, `search_1` for the next one of that name."""
        plain = numbered = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:MODEL_NAME_LIMIT]
        while numbered in self._taken:
            self._numbers[plain] += 1
            end = f"_{self._numbers[plain]}"
            numbered = plain[: MODEL_NAME_LIMIT - len(end)] + end
        self._taken.add(numbered)
        return numbered
