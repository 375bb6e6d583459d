"""Tools of a table that can be called: sources are opened in a Toolbox, and every call goes through its router."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, assert_never, cast
from urllib.parse import urlsplit

from toolpost.adapters.credentials import NamedCredential
from toolpost.adapters.provider import unsupported_reason
from toolpost.catalog.names import MODEL_NAME_LIMIT, canonical_name
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult, now_ms
from toolpost.contracts.source_kinds import AuthType, TransportType
from toolpost.contracts.spec import ToolSpec
from toolpost.contracts.tool_values import (
    AnyToolValue,
    HTTPTool,
    MCPTool,
    PythonFunctionTool,
    RemoteTool,
    ToolExecutionResult,
    ToolType,
    ToolValue,
    WorkflowTool,
)
from toolpost.runtime.model_messages import model_text

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.spec import Tool
    from toolpost.toolbox.box import Toolbox

RunWorkflow: TypeAlias = "Callable[[WorkflowTool, dict[str, Any], ToolContext], Awaitable[Any]]"
FindCredential: TypeAlias = Callable[[str], NamedCredential]
ValueKey: TypeAlias = tuple[ToolType, str, str | bytes | None, str | None]

_WORKFLOWS = "workflow"
_LONGEST_SOURCE = 24
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_-]+")


async def extract_tools(
    table: Any,
    column: str | None = None,
    *,
    box: Toolbox,
    user: str | None = None,
    credentials: Iterable[NamedCredential] | FindCredential = (),
    run_workflow: RunWorkflow | None = None,
) -> list[TableTool]:
    """Return the tools of a column, by default the last one of tools, ready to be called in an open Toolbox.

    The types may be mixed and empty cells are skipped; tools that are marked as unsupported are left out with a
    warning. Servers that the Toolbox does not know yet are connected; one that is down fails at the call. Credentials
    are looked up by their names. Workflows of Toolpost run in the Toolbox; `run_workflow` runs those of a host, and
    then all. Calls are for `user`.
    """
    from toolpost.adapters.arrow import as_table, tool_column_name, tool_values  # noqa: PLC0415 - an extra

    arrow_table = as_table(table)
    values = tool_values(arrow_table.column(tool_column_name(arrow_table, column)))
    executor = ToolValues(box, user=user, credentials=credentials, run_workflow=run_workflow)
    return await executor.add([value for value in values if value is not None])


class TableTool(NamedTuple):
    """A tool of a table that can be called.

    `name` is that of its value, or the one in the catalog where several have it; `model_name` is one that models
    accept, `tool_name` the one in the catalog of the Toolbox.
    """

    value: AnyToolValue
    name: str
    model_name: str
    tool_name: str
    executor: ToolValues

    def call(self, parameters: Mapping[str, Any], *, idempotency_key: str | None = None) -> Awaitable[Outcome]:
        """Call the tool and return its outcome."""
        return self.executor.call(self.tool_name, parameters, idempotency_key=idempotency_key)

    async def __call__(self, **parameters: Any) -> ToolExecutionResult:
        """Call the tool; an error, and a question to a person, are results with a message."""
        return execution_result(await self.call(parameters))


class ToolValues:
    """Execute tool values of every type in an open Toolbox.

    A source is opened once for each server and credential, with the tools that are asked for and no others.
    """

    def __init__(
        self,
        box: Toolbox,
        *,
        user: str | None = None,
        credentials: Iterable[NamedCredential] | FindCredential = (),
        run_workflow: RunWorkflow | None = None,
    ) -> None:
        self.box = box
        self.loop = asyncio.get_running_loop()
        self._user = user
        self._find_credential = credentials if callable(credentials) else _among(credentials)
        self._run_workflow = run_workflow
        self._names: dict[ValueKey, str] = {}

    async def add(self, values: Iterable[AnyToolValue]) -> list[TableTool]:
        """Make values callable; those that are marked as unsupported are left out with a warning."""
        usable: list[AnyToolValue] = []
        for value in values:
            if reason := unsupported_reason(value.parameter_schema):
                warnings.warn(f"tool {value.name!r} is left out: it {reason}", stacklevel=3)
            else:
                usable.append(value)
        await self._open_sources([value for value in usable if isinstance(value, RemoteTool)])
        for value in usable:
            if isinstance(value, WorkflowTool) and _key(value) not in self._names:
                self._names[_key(value)] = self._register_workflow(value)
        return self._name_tools(usable)

    async def execute(self, value: ToolValue, parameters: Mapping[str, Any]) -> ToolExecutionResult:
        """Call the tool of a value; an error is a result with a message."""
        tool_value = cast("AnyToolValue", value)
        if _key(tool_value) not in self._names and not await self.add([tool_value]):
            reason = unsupported_reason(value.parameter_schema)
            return ToolExecutionResult(text=f"The tool is not supported: it {reason}", error=reason)
        return execution_result(await self.call(self._names[_key(tool_value)], parameters))

    def call(
        self, tool_name: str, parameters: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Awaitable[Outcome]:
        """Call a tool by its name in the catalog."""
        return self.box.call(tool_name, parameters, user=self._user, idempotency_key=idempotency_key)

    async def _execute_mcp_tool(self, tool: MCPTool, parameters: Mapping[str, Any]) -> str:
        """Call an MCP tool and return its result, or what went wrong, as the text of a message."""
        return (await self.execute(tool, parameters)).text

    async def _open_sources(self, values: list[RemoteTool]) -> None:
        """Connect the servers that are not known yet, each with the tools that are asked for."""
        servers: dict[tuple[TransportType, str, str | None], dict[str, list[RemoteTool]]] = {}
        for value in values:
            if _key(cast("AnyToolValue", value)) not in self._names:
                place = (transport_of(cast("AnyToolValue", value)), value.server_uri, value.credential_name)
                servers.setdefault(place, {}).setdefault(value.tool_name, []).append(value)
        taken = {state.name for state in self.box.report}
        opening: list[ExternalToolConfig] = []
        for (transport, uri, credential), tools in servers.items():
            configured_name = self._find_configured(transport, uri) if credential is None else None
            if configured_name is None:
                config = self._source(transport, uri, credential, tools, taken)
                taken.add(config.name)
                opening.append(config)
            name = configured_name or opening[-1].name
            for tool, same in tools.items():
                for value in same:
                    self._names[_key(cast("AnyToolValue", value))] = canonical_name(name, tool)
        await asyncio.gather(*(self.box.sources.add(config) for config in opening))

    def _find_configured(self, transport: TransportType, uri: str) -> str | None:
        """Return the source of the configuration that is this server, with its own credentials and rules."""
        for source in self.box.settings.all_sources():
            if source.enabled and source.transport == transport and source.connection == uri:
                return source.name
        return None

    def _source(
        self, transport: TransportType, uri: str, credential: str | None, tools: Iterable[str], taken: Collection[str]
    ) -> ExternalToolConfig:
        sent: dict[str, Any] = {"auth_type": AuthType.NONE}
        if credential is not None:
            sent = self._find_credential(credential).source_options()
        return ExternalToolConfig(
            name=_source_name(uri, taken),
            transport=transport,
            connection=uri,
            tool_filter=[re.escape(tool) for tool in tools],
            **sent,
        )

    def _register_workflow(self, value: WorkflowTool) -> str:
        registry, name = self.box.registry, canonical_name(_WORKFLOWS, value.name)
        number = 1
        while registry.has(name):
            number += 1
            name = canonical_name(_WORKFLOWS, f"{value.name}_{number}")
        registry.register(self._workflow(name, value))
        return name

    def _workflow(self, name: str, value: WorkflowTool) -> Tool:
        """Return the tool that runs a workflow: the host's function, or else our own steps, if that is what it has."""
        if self._run_workflow is not None:
            return _HostedWorkflow(name, value, self._run_workflow)
        from toolpost.sources.workflow.definition import Workflow  # noqa: PLC0415 - an extra
        from toolpost.sources.workflow.source import WorkflowFunction  # noqa: PLC0415 - the same

        try:
            return WorkflowFunction(Workflow.unpack(value.package or b""), name=name)
        except ConfigError as error:
            return _HostedWorkflow(name, value, partial(_refuse, error))

    def _name_tools(self, values: list[AnyToolValue]) -> list[TableTool]:
        counts = Counter(value.name for value in values)
        model_names = _ModelNames()
        tools: list[TableTool] = []
        for value in values:
            tool_name = self._names[_key(value)]
            name = value.name if counts[value.name] == 1 else tool_name
            tools.append(TableTool(value, name, model_names.add(value.name), tool_name, self))
        return tools


def transport_of(value: AnyToolValue) -> TransportType:
    """Return the transport by which the tool of a value is called."""
    match value:
        case MCPTool():
            return TransportType.MCP
        case HTTPTool():
            return TransportType.HTTP
        case PythonFunctionTool():
            return TransportType.PYTHON
        case WorkflowTool():
            raise ConfigError(f"the workflow {value.name!r} has no server")
        case _:
            assert_never(value)


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

    def __init__(self, name: str, value: WorkflowTool, run: RunWorkflow) -> None:
        self._value = value
        self._run = run
        self.spec = ToolSpec(
            name=name,
            description=value.description,
            input_schema=value.parameter_schema or {"type": "object", "properties": {}},
            side_effects="external",  # of which nobody knows more
        )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = now_ms()
        result = await self._run(self._value, params, context)
        if not isinstance(result, ToolExecutionResult):
            return ToolResult.completed(result, started_at=started)
        if result.error is not None:
            raise ToolError(result.error, tool_name=self.spec.name, code="workflow_failed")
        return ToolResult.completed(result.content, result.text, started_at=started)


async def _refuse(reason: ToolError, tool: WorkflowTool, _parameters: dict[str, Any], _context: ToolContext) -> Any:
    message = f"the workflow {tool.name!r} cannot be run here: {reason.message}; is it for a run_workflow of the host?"
    raise ToolError(message, code="workflow_not_runnable")


def _key(value: AnyToolValue) -> ValueKey:
    """Return what is called: two rows with the same place and name are one tool."""
    if isinstance(value, WorkflowTool):
        return (value.tool_type, value.name, value.package, None)
    return (value.tool_type, value.server_uri, value.tool_name, value.credential_name)


def _among(credentials: Iterable[NamedCredential]) -> FindCredential:
    by_name = {credential.name: credential for credential in credentials}

    def find(name: str) -> NamedCredential:
        if name not in by_name:
            there = f"there are: {', '.join(sorted(by_name)) or 'none'}"
            raise ConfigError(f"a tool of the table needs the credential {name!r}, which was not given; {there}")
        return by_name[name]

    return find


def _source_name(uri: str, taken: Collection[str]) -> str:
    """Return a name for a server that nobody has named: its host, or the last word of its command or path."""
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
