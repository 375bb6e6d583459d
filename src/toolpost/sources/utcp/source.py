"""Source of the tools of UTCP manuals, each called as its call template says."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.questions import Question
from toolpost.contracts.sources import HoldingSource, ToolSource
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.sources.base import BaseSource, Services, SourceTool
from toolpost.sources.utcp import templates
from toolpost.sources.utcp.bridge import BridgedTool, UtcpBridge
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
    template_urls,
)
from toolpost.sources.utcp.delegates import Delegate, check_remote_servers, mcp_delegates
from toolpost.sources.utcp.discovery import DiscoveryResult, ManualDiscovery, redact_error
from toolpost.sources.utcp.manuals import Manual, ManualTool
from toolpost.sources.utcp.options import UtcpOptions
from toolpost.sources.utcp.specs import tool_spec
from toolpost.sources.utcp.variables import Variables

_MAX_REASONS = 3


class UtcpSource(BaseSource):
    """Tools of the manuals at a URL, in a file or in the configuration itself.

    Parts of a manual are delegated to separate sources: OpenAPI documents, MCP servers and GraphQL endpoints.
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
        self.files = [*discovery.files, *(file for inner in self._delegated_sources for file in inner.files)]
        if not tools:
            # If the filters of the configuration removed all tools, the list is empty without an error.
            if len(self._skip_reasons) == len(self._delegate_errors) == 1:
                raise self._delegate_errors[0]
            if self._skip_reasons:
                raise ConfigError(f"no tool can be used: {'; '.join(self._skip_reasons[:_MAX_REASONS])}")
            if not (result.delegates or result.unknown or any(manual.tools for manual in result.manuals)):
                raise ConfigError("the manual has no tools; check whether its address is the right one")
        return tools

    async def _compile_manual(self, manual: Manual, discovery: ManualDiscovery, contexts: ContextFactory) -> list[Tool]:
        self._skip_reasons += manual.problems
        values = discovery.variables(manual.variables)
        variables = Variables(manual.name, values, os.environ)
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

    def _compile_tools(self, manual: Manual, variables: Variables, remote: RemoteContexts | None) -> _CompiledManual:
        """Compile the tools of a manual that are called here, and list those that others call."""
        compiled = _CompiledManual([], [], [], [])
        for tool in manual.tools:
            if not self.config.includes(tool.name):
                continue
            try:
                check_kind_allowed(tool, manual)
                if tool.kind == "mcp":
                    compiled.mcp.append(tool)
                elif tool.kind in templates.TEMPLATE_TYPES or not self.config.read_options(UtcpOptions).bridge:
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

    async def _mcp_tools(self, tool: ManualTool, variables: Variables, remote: RemoteContexts | None) -> list[Tool]:
        """Discover the tool of an MCP server that a manual's tool names."""
        filled = fill_template(tool, variables)
        only = frozenset({tool.full_name.rpartition(".")[2]})
        try:
            delegates = list(mcp_delegates(self.config, filled.template, only))
            if remote is not None:
                check_remote_servers(delegates, remote.trusted_origins)
        except ConfigError as error:
            reason = redact_error(error, filled.values)
            raise ConfigError(f"tool {tool.full_name!r} is skipped: {reason}") from None
        tools: list[Tool] = []
        for delegate in delegates:
            tools += await self._discover_delegate(delegate._replace(secrets=filled.values))
        return tools

    async def _bridge_tools(self, tools: list[ManualTool], manual: Manual) -> list[Tool]:
        try:
            return await self._open_bridge().tools(manual.name, tools) if tools else []
        except ConfigError as error:
            self._skip_reasons.append(f"{len(tools)} tools of manual {manual.name!r} are skipped: {error}")
            return []

    async def _discover_delegate(self, delegate: Delegate) -> list[Tool]:
        """Create a source for a part of the manual and discover its tools; a failure skips that part."""
        try:
            if self._make is None:
                raise ConfigError(f"nothing here supports {delegate.config.transport}")
            inner = self._make(delegate.config)
            self._delegated_sources.append(inner)
            tools = [tool for tool in await inner.discover() if _is_selected(tool, delegate.only)]
        except ToolError as error:
            error = redact_error(error, delegate.secrets, remedy=delegate.remedy)
            self._delegate_errors.append(error)
            self._skip_reasons.append(f"its part for transport {delegate.config.transport} is skipped: {error}")
            return []
        self._delegated_tools.update({id(tool): (tool, inner) for tool in tools})
        self.problems = [*self.problems, *inner.problems]
        return tools

    async def _bridge_manuals(self, result: DiscoveryResult) -> list[Tool]:
        """Discover the tools of manuals that only the utcp packages can find."""
        tools: list[Tool] = []
        for template in result.unknown:
            kind = template.get("call_template_type")
            if not self.config.read_options(UtcpOptions).bridge:
                self._skip_reasons.append(
                    f"a manual of the kind {kind!r} is skipped; options: {{bridge: true}} may support it"
                )
                continue
            try:
                tools += await self._open_bridge().manual(template)
            except ConfigError as error:
                self._skip_reasons.append(f"a manual of the kind {kind!r} is skipped: {error}")
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
        for inner in self._delegated_sources:
            if isinstance(inner, HoldingSource):
                inner.release(call_id)

    async def close(self) -> None:
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


def _check_bridgeable(tool: ManualTool, variables: Variables, remote: RemoteContexts | None) -> ManualTool:
    """Refuse a tool of a remote manual that uses variables."""
    filled = variables.fill(tool.template)
    if remote is not None and (filled.values or filled.missing):
        raise ConfigError(
            f"tool {tool.full_name!r} is skipped: its manual is remote, and the utcp packages do not restrict "
            "variables to the hosts in your configuration; save the manual to a file if you trust it"
        )
    return tool


def _is_selected(tool: Tool, only: Iterable[str] | None) -> bool:
    return only is None or str(tool.spec.extra.get("remote_name", "")).rpartition(".")[2] in only


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
    """The tools of a manual by caller: this package, an MCP server or the packages of UTCP."""

    own: list[tuple[ManualTool, CompiledTool]]
    mcp: list[ManualTool]
    bridged: list[ManualTool]
    problems: list[str]
