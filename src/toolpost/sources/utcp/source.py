"""Source of the tools of UTCP manuals, each called by the transport that its call template names."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import tempfile
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from toolpost.catalog.names import canonical_name
from toolpost.catalog.specs import Effects, effects_of_method
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError, adapt_exception
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import HoldingSource, ToolSource
from toolpost.contracts.spec import JsonSchema, SafetyProfile, Tool, ToolCategory, ToolSpec, ToolTarget
from toolpost.schema.json_values import is_object
from toolpost.schema.secrets import drop_secrets
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.compile import (
    CALL_FUNCTIONS,
    CallFunction,
    check_kind_allowed,
    compile_tool,
    fill_template,
    group_reasons,
)
from toolpost.sources.utcp.context import (
    CompiledTool,
    ContextFactory,
    Invocation,
    ManualContext,
    RemoteContexts,
    check_credential_origin,
    origin_of,
    template_urls,
)
from toolpost.sources.utcp.discovery import (
    Delegate,
    DiscoveryResult,
    ManualDiscovery,
    check_remote_servers,
    mcp_delegates,
    redact_error,
)
from toolpost.sources.utcp.manuals import Manual, ManualTool, manual_name, parse_manual
from toolpost.transports.base import BaseSource, Services, SourceTool

_MAX_REASONS = 3


class UtcpTool(SourceTool):
    """A tool of a manual that this package calls itself."""

    __slots__ = ("_call", "_context", "_prepared")

    def __init__(
        self, spec: ToolSpec, source: UtcpSource, prepared: CompiledTool, call: CallFunction, context: ManualContext
    ) -> None:
        super().__init__(spec, source)
        self._prepared = prepared
        self._call = call
        self._context = context

    def run(self, invocation: Invocation, *, attempt_s: float | None = None) -> Coroutine[Any, Any, ToolOutput]:
        """Call the tool, unless its credentials would go to an untrusted origin; `attempt_s` replaces its timeout."""
        prepared = self._prepared if attempt_s is None else self._prepared._replace(timeout_s=attempt_s)
        check_credential_origin(prepared, self._context, invocation.credential)
        return self._call(prepared, invocation, self._context)


class _CompiledManual(NamedTuple):
    """The tools of a manual by who calls them: this package, an MCP server or the packages of UTCP."""

    own: list[tuple[ManualTool, CompiledTool]]
    mcp: list[ManualTool]
    bridged: list[ManualTool]
    problems: list[str]


class UtcpSource(BaseSource):
    """Tools of the manuals at a URL, in a file or in the configuration itself.

    Parts of a manual are delegated to sources of their own: OpenAPI documents, MCP servers and GraphQL endpoints.
    A remote manual cannot extend the network policy.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._network = services.network
        self._make = services.make
        self._contexts: ContextFactory | None = None
        self._bridge: UtcpBridge | None = None
        # By identity: two delegated sources may have tools of the same name.
        self._delegated_tools: dict[int, tuple[Tool, ToolSource]] = {}
        self._delegated_sources: list[ToolSource] = []
        self._skip_reasons: list[str] = []
        self._delegate_errors: list[ToolError] = []
        self._scratch = ExitStack()

    async def discover(self) -> Sequence[Tool]:
        """Discover the manuals and compile their tools; unusable tools are problems, no tool at all is an error."""
        await self.close()
        self._skip_reasons, self._delegate_errors, self.problems = [], [], ()
        contexts = self._contexts = ContextFactory(self.config, self._network)
        scratch = Path(self._scratch.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-utcp-")))
        discovery = ManualDiscovery(self.config, self.credential, contexts, scratch)
        result = await discovery.run()
        self._skip_reasons += result.problems
        tools: list[Tool] = []
        for manual in result.manuals:
            tools += await self._compile_manual(manual, discovery, contexts)
        for delegate in result.delegates:
            tools += await self._discover_delegate(delegate)
        tools += await self._bridge_manuals(result)
        self._skip_reasons = group_reasons(self._skip_reasons)
        self.problems = [*self.problems, *(f"source {self.name!r}: {problem}" for problem in self._skip_reasons)]
        self.files = [
            *discovery.files,
            *(file for inner in self._delegated_sources for file in inner.files),
        ]
        if not tools:
            self._raise_without_tools(result)
        return tools

    def _raise_without_tools(self, result: DiscoveryResult) -> None:
        """Raise why there is no tool, unless the filters of the configuration removed them."""
        if len(self._skip_reasons) == len(self._delegate_errors) == 1:
            raise self._delegate_errors[0]
        if self._skip_reasons:
            raise ConfigError(f"no tool can be used: {'; '.join(self._skip_reasons[:_MAX_REASONS])}")
        if not (result.delegates or result.unknown or any(manual.tools for manual in result.manuals)):
            raise ConfigError("the manual has no tools; check whether its address is the right one")

    async def _compile_manual(self, manual: Manual, discovery: ManualDiscovery, contexts: ContextFactory) -> list[Tool]:
        self._skip_reasons += manual.problems
        values = discovery.variables(manual.variables)
        variables = templates.Variables(manual.name, values, os.environ)
        remote = None
        if manual.remote is not None:
            remote = contexts.for_remote(manual.remote, manual.operator_url, values)
        # In a thread: the author of the manual decides how many tools there are.
        compiled = await asyncio.to_thread(self._compile_tools, manual, variables, remote)
        own = await asyncio.to_thread(self._own_tools, compiled.own, manual, remote, contexts)
        delegated: list[Tool] = []
        for tool in compiled.mcp:
            try:
                delegated += await self._mcp_tools(tool, variables, remote)
            except ConfigError as error:
                compiled.problems.append(str(error))
        self._skip_reasons += compiled.problems
        self.secrets |= variables.secrets
        return [*own, *delegated, *await self._bridge_tools(compiled.bridged, manual)]

    def _compile_tools(
        self, manual: Manual, variables: templates.Variables, remote: RemoteContexts | None
    ) -> _CompiledManual:
        """Compile the tools of a manual that are called here, and sort out those that others call."""
        compiled = _CompiledManual([], [], [], [])
        for tool in manual.tools:
            if not self.config.includes(tool.name):
                continue
            try:
                check_kind_allowed(tool, manual)
                if tool.kind == "mcp":
                    compiled.mcp.append(tool)
                elif tool.kind in templates.TEMPLATE_TYPES or not self.config.utcp.bridge:
                    compiled.own.append((tool, compile_tool(tool, variables, timeout_s=self.config.timeout_s)))
                else:
                    compiled.bridged.append(_check_bridgeable(tool, variables, remote))
            except ConfigError as error:
                compiled.problems.append(str(error))
        return compiled

    def _own_tools(
        self,
        compiled: list[tuple[ManualTool, CompiledTool]],
        manual: Manual,
        remote: RemoteContexts | None,
        contexts: ContextFactory,
    ) -> list[Tool]:
        """Create the tools that this package calls itself, in the context that the manual's origin allows."""
        local: ManualContext | None = None
        max_timeout_s: float | None = self.config.timeout_s
        if remote is None:
            urls = {url for _, prepared in compiled for url in template_urls(prepared.template)}
            local, max_timeout_s = contexts.for_operator(sorted(urls), manual.folder), None
        tools: list[Tool] = []
        for tool, prepared in compiled:
            context = local or cast("RemoteContexts", remote).select(prepared.template)
            spec = tool_spec(tool, prepared.template, source=self.name, max_timeout_s=max_timeout_s)
            timed = prepared._replace(timeout_s=spec.timeout_s or self.config.timeout_s)
            tools.append(UtcpTool(spec, self, timed, CALL_FUNCTIONS[tool.kind], context))
        return tools

    async def _mcp_tools(
        self, tool: ManualTool, variables: templates.Variables, remote: RemoteContexts | None
    ) -> list[Tool]:
        """Discover the tool of an MCP server that a manual's tool names."""
        filled = fill_template(tool, variables)
        only = frozenset({tool.full_name.rpartition(".")[2]})
        try:
            delegates = list(mcp_delegates(self.config, filled.template, only))
            if remote is not None:
                check_remote_servers(delegates, remote.trusted_origins)
        except ConfigError as error:
            reason = redact_error(error, filled.values)
            raise ConfigError(f"tool {tool.full_name!r} is left out: {reason}") from None
        tools: list[Tool] = []
        for delegate in delegates:
            tools += await self._discover_delegate(delegate._replace(secrets=filled.values))
        return tools

    async def _bridge_tools(self, tools: list[ManualTool], manual: Manual) -> list[Tool]:
        """Create the tools that only the utcp packages can call."""
        try:
            return await self._open_bridge().tools(manual.name, tools) if tools else []
        except ConfigError as error:
            self._skip_reasons.append(f"{len(tools)} tools of manual {manual.name!r} are left out: {error}")
            return []

    async def _discover_delegate(self, delegate: Delegate) -> list[Tool]:
        """Create a source for a part of the manual and discover its tools; a failure skips that part."""
        try:
            if self._make is None:
                raise ConfigError(f"nothing here speaks {delegate.config.transport}")
            inner = self._make(delegate.config)
            self._delegated_sources.append(inner)
            tools = [tool for tool in await inner.discover() if _is_selected(tool, delegate.only)]
        except ToolError as error:
            error = redact_error(error, delegate.secrets, remedy=delegate.remedy)
            self._delegate_errors.append(error)
            self._skip_reasons.append(f"a part of it, by {delegate.config.transport}, is left out: {error}")
            return []
        self._delegated_tools.update({id(tool): (tool, inner) for tool in tools})
        self.problems = [*self.problems, *inner.problems]
        return tools

    async def _bridge_manuals(self, result: DiscoveryResult) -> list[Tool]:
        """Discover the tools of manuals that only the utcp packages can find."""
        tools: list[Tool] = []
        for template in result.unknown:
            kind = template.get("call_template_type")
            if not self.config.utcp.bridge:
                self._skip_reasons.append(
                    f"a manual of the kind {kind!r} is left out; utcp: {{bridge: true}} may know it"
                )
                continue
            try:
                tools += await self._open_bridge().manual(template)
            except ConfigError as error:
                self._skip_reasons.append(f"a manual of the kind {kind!r} is left out: {error}")
        return tools

    def _open_bridge(self) -> UtcpBridge:
        if self._bridge is None:
            self._bridge = UtcpBridge(self)
        return self._bridge

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        """Run one call, or pass it to the delegated source of its tool."""
        tool = call.tool
        if isinstance(tool, UtcpTool):
            return tool.run(Invocation(call.arguments, call.credential, call.context), attempt_s=call.attempt_s)
        if isinstance(tool, BridgedTool):
            return tool.run(call.arguments)
        return self._delegated_tools[id(tool)][1].invoke(call)

    def release(self, call_id: str) -> None:
        """Release the paused call in the delegated sources."""
        for inner in self._delegated_sources:
            if isinstance(inner, HoldingSource):
                inner.release(call_id)

    async def close(self) -> None:
        """Close every connection and delegated source. Safe to call twice."""
        sources, self._delegated_sources, self._delegated_tools = self._delegated_sources, [], {}
        for inner in sources:
            await inner.close()
        if self._bridge is not None:
            await self._bridge.close()
            self._bridge = None
        if self._contexts is not None:
            await self._contexts.close()
            self._contexts = None
        self._scratch.close()


def _check_bridgeable(tool: ManualTool, variables: templates.Variables, remote: RemoteContexts | None) -> ManualTool:
    """Refuse a tool of a remote manual that uses variables."""
    filled = variables.fill(tool.template)
    if remote is not None and (filled.values or filled.missing):
        raise ConfigError(
            f"tool {tool.full_name!r} is left out: its manual is from elsewhere, and the utcp packages do not keep "
            "variables to the hosts that you wrote; save the manual to a file if you trust it"
        )
    return tool


def _is_selected(tool: Tool, only: Iterable[str] | None) -> bool:
    return only is None or str(tool.spec.extra.get("remote_name", "")).rpartition(".")[2] in only


_CATEGORIES: dict[type[object], ToolCategory] = {
    templates.CliTemplate: ToolCategory.SYSTEM,
    templates.FileTemplate: ToolCategory.FILE,
    templates.TextTemplate: ToolCategory.DATA,
}
_STREAMS = (templates.SseTemplate, templates.StreamTemplate)


def tool_spec(
    tool: ManualTool, template: templates.CallTemplate | None, *, source: str, max_timeout_s: float | None = None
) -> ToolSpec:
    """Build the ToolSpec of a tool; without a template, the tool is bridged and its effects are unknown.

    `max_timeout_s` limits the timeout that the manual declares.
    """
    effects = _effects(template)
    return ToolSpec(
        name=canonical_name(source, tool.name),
        description=tool.description,
        category=_CATEGORIES.get(type(template), ToolCategory.NETWORK),
        input_schema=tool.inputs,
        output_schema=_output_schema(tool, template),
        side_effects=effects.side_effects,
        replay=effects.replay,
        safety=effects.safety,
        timeout_s=_timeout_s(template, max_timeout_s),
        tags=tuple(dict.fromkeys(("utcp", source, *tool.tags))),
        source=source,
        origin=source,
        extra={
            "source": "utcp",
            "namespace": source,
            "remote_name": tool.full_name,
            "kind": tool.kind,
            "outputs": tool.outputs,
        },
        target=_target(tool, template),
    )


def _target(tool: ManualTool, template: templates.CallTemplate | None) -> ToolTarget:
    """Describe what a call does."""
    # As the manual writes it: values of variables may be secret, hosts are not.
    hosts = [] if template is None else [origin_of(address) for address in template_urls(template)]
    declared = tool.template
    match template:
        case templates.WebTemplate():
            url = str(declared.get("url")).partition("?")[0]
            method = str(getattr(template, "http_method", "") or "")
            summary = f"{method} {url}".strip() + (f" ({hosts[0]})" if "$" in url else "")
        case templates.SocketTemplate():
            summary = f"{tool.kind} {declared.get('host')}:{declared.get('port')}"
        case templates.CliTemplate():
            steps = [step for step in declared.get("commands", ()) if is_object(step)]
            summary = "; ".join(str(step.get("command")) for step in steps)
        case templates.FileTemplate():
            summary = f"the file {declared.get('file_path')}"
        case templates.TextTemplate():
            summary = "a text in the manual"
        case _:
            summary = f"{tool.full_name} by the utcp packages ({tool.kind})"
    return ToolTarget.of("utcp", summary, template=drop_secrets(declared), hosts=hosts)


def _effects(template: templates.CallTemplate | None) -> Effects:
    match template:
        case templates.HttpTemplate() | templates.StreamTemplate():
            return effects_of_method(template.http_method)
        case templates.SseTemplate():
            return effects_of_method("GET" if template.body_field is None else "POST")
        case templates.GraphqlTemplate():
            return effects_of_method("POST" if template.is_mutation else "GET")
        case templates.TextTemplate() | templates.FileTemplate():
            return Effects("read", "idempotent", SafetyProfile(file=isinstance(template, templates.FileTemplate)))
        case _:
            safety = SafetyProfile(
                network=not isinstance(template, templates.CliTemplate), destructive=None, open_world=True
            )
            return Effects("external", "unsafe", safety)


def _output_schema(tool: ManualTool, template: templates.CallTemplate | None) -> JsonSchema | None:
    """Return the schema of the output."""
    # The manual of a stream describes one item, but a call returns a list of them.
    if isinstance(template, _STREAMS) and tool.outputs is not None and tool.outputs.get("type") != "array":
        return None
    return tool.outputs


def _timeout_s(template: templates.CallTemplate | None, max_timeout_s: float | None) -> float | None:
    """Return the timeout that the template declares, in seconds."""
    if template is None or "timeout" not in template.model_fields_set:
        return None
    match template:
        case templates.WebSocketTemplate(timeout=float() as seconds):
            pass
        case templates.StreamTemplate(timeout=float() as milliseconds) | templates.SocketTemplate(timeout=milliseconds):
            seconds = milliseconds / 1000
        case _:
            return None
    return seconds if max_timeout_s is None else min(seconds, max_timeout_s)


_INSTALL = "pip install 'toolpost[utcp]'"


class BridgedTool(SourceTool):
    """A tool that a UtcpClient calls."""

    __slots__ = ("_client", "_full_name")

    def __init__(self, spec: ToolSpec, source: BaseSource, full_name: str, client: Any) -> None:
        super().__init__(spec, source)
        self._full_name = full_name
        self._client = client

    async def run(self, arguments: Mapping[str, Any]) -> ToolOutput:
        """Call the tool; foreign exceptions become ToolErrors."""
        try:
            return ToolOutput(await self._client.call_tool(self._full_name, dict(arguments)))
        except Exception as error:  # foreign code runs here, and may raise anything
            raise adapt_exception(error, "utcp") from error


class UtcpBridge:
    """One UtcpClient for all bridged tools of a source."""

    def __init__(self, source: BaseSource) -> None:
        self._source = source
        self._config = source.config
        self._client: Any = None

    async def tools(self, manual: str, tools: Sequence[ManualTool]) -> list[Tool]:
        """Register tools of one manual; a ConfigError says that the packages do not know their kinds."""
        client = await self._open_client()
        manual_data = {"tools": [_manual_entry(tool) for tool in tools]}
        try:
            utcp_manual = _import_utcp("utcp.data.utcp_manual").UtcpManualSerializer().validate_dict(manual_data)
            first = utcp_manual.tools[0].tool_call_template.model_copy(update={"name": manual})
            first.allowed_communication_protocols = sorted({tool.kind for tool in tools})
            await client.config.tool_repository.save_manual(first, utcp_manual)
        except Exception as error:  # foreign code runs here, and may raise anything
            kinds = ", ".join(sorted({tool.kind for tool in tools}))
            msg = f"the utcp packages here cannot call {kinds}; install the plugin for it"
            raise ConfigError(f"source {self._config.name!r}: {msg} ({type(error).__name__})") from error
        return [self._tool(tool, client) for tool in tools]

    async def manual(self, template: Mapping[str, Any]) -> list[Tool]:
        """Let the packages discover a manual, and return its tools."""
        client, kind = await self._open_client(), str(template.get("call_template_type"))
        name = manual_name(str(template.get("name") or self._config.name))
        try:
            call_template = (
                _import_utcp("utcp.data.call_template")
                .CallTemplateSerializer()
                .validate_dict({**template, "name": name})
            )
            result = await client.register_manual(call_template)
        except Exception as error:  # foreign code runs here, and may raise anything
            msg = f"the utcp packages here cannot find a manual by {kind}; install the plugin for it"
            raise ConfigError(f"source {self._config.name!r}: {msg} ({type(error).__name__})") from error
        if not result.success:
            raise ConfigError(f"source {self._config.name!r}: no manual by {kind}: {'; '.join(result.errors)[:500]}")
        parsed = parse_manual(result.manual.model_dump(by_alias=True), Manual(name=name, kind=kind))
        return [self._tool(tool, client) for tool in parsed.tools if self._config.includes(tool.name)]

    async def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _tool(self, tool: ManualTool, client: Any) -> Tool:
        return BridgedTool(tool_spec(tool, None, source=self._config.name), self._source, tool.full_name, client)

    async def _open_client(self) -> Any:
        if self._client is None:
            config = self._config
            own = {**config.auth_config, **config.env, **config.utcp.variables}
            variables = {key: value for key, value in own.items() if isinstance(value, str)}
            with _preserve_root_logging():
                kind = _import_utcp("utcp.utcp_client").UtcpClient
                self._client = await kind.create(config={"variables": variables})
        return self._client


def _manual_entry(tool: ManualTool) -> dict[str, Any]:
    return {
        "name": tool.full_name,
        "description": tool.description,
        "inputs": tool.inputs,
        "outputs": tool.outputs or {},
        "tags": list(tool.tags),
        "tool_call_template": dict(tool.template),
    }


def _import_utcp(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"utcp.bridge needs the utcp packages ({error.name} is missing): {_INSTALL}") from error


@contextmanager
def _preserve_root_logging() -> Generator[None]:
    """Restore the root logger, which importing the packages configures."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
