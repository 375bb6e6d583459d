"""MCPManager: several MCP servers; a server that fails does not affect the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import ToolRegistry
from toolpost.configuration.settings import McpServerSettings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ConfigError, ToolError, ToolNodeError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.toolbox.node import StandaloneRouter, without_elicitation
from toolpost.wire.network import NetworkPolicy

_log = logging.getLogger("toolpost.toolbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectReport:
    """The servers that connected, and the errors of the others."""

    connected: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


class ManagedTool:
    """A server's tool in an agent's registry; calls run through the manager, and failures are results."""

    __slots__ = ("_manager", "_server", "redactor", "spec")

    def __init__(self, manager: MCPManager, server: str, spec: ToolSpec, redactor: Redactor) -> None:
        self._manager = manager
        self._server = server
        self.redactor = redactor
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool on its server."""
        return await self._manager.call_tool(self._server, self.spec.name, params, context=context)


def _without_server_name(config: ExternalToolConfig) -> ExternalToolConfig:
    """Return the configuration without the server's name in descriptions; `load_tools` adds the name."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"name_in_descriptions": False})})


class MCPManager:
    """Connect MCP servers, keep them connected, and register their tools in any number of registries.

    Tools that differ from the file `lock` are held back until `toolpost lock approve`. `network` says which private
    addresses may be reached besides those of the servers.
    """

    def __init__(self, *, lock: str | Path | None = None, network: NetworkPolicy | None = None) -> None:
        self.registry = ToolRegistry()
        self._lock = lock
        self._network = network
        self._open: StandaloneRouter | None = None

    async def connect_all(self, configs: Iterable[ExternalToolConfig | McpServerSettings]) -> ConnectReport:
        """Connect every enabled server; one that fails is reported and skipped, unless it is required."""
        given = [c.to_external_config() if isinstance(c, McpServerSettings) else c for c in configs]
        sources = [_without_server_name(without_elicitation(config)) for config in given]
        if self._open is None:
            self._open = StandaloneRouter(self.registry, lock=self._lock, network=self._network)
        known = {state.name for state in self._open.sources.states} & {config.name for config in sources}
        if known:
            raise ConfigError(f"already connected: {', '.join(sorted(known))}; disconnect them first, or rename")
        try:
            await self._open.sources.load_all(sources)
        except BaseException:
            await self.disconnect_all()
            raise
        report = ConnectReport()
        for state in self._open.sources.states:
            if state.ok:
                report.connected.append(state.name)
            else:
                report.failed[state.name] = state.error or ""
                _log.warning("MCP server %r is skipped: %s", state.name, state.error)
        return report

    def list_tools(self, server: str) -> list[Tool]:
        """Return the tools of one server with the server's own descriptions."""
        opened = self._opened()
        if opened.sources.source(server) is None:
            known = ", ".join(state.name for state in opened.sources.states) or "none"
            raise ToolNodeError(f"no MCP server {server!r} is connected; there are: {known}")
        return [ManagedTool(self, server, spec, opened.redactor) for spec in self._specs(server)]

    def _specs(self, server: str) -> list[ToolSpec]:
        """Return the specs of one server's tools, without helpers for resources and prompts."""
        return [spec for spec in self.registry.specs() if spec.source == server and not spec.is_helper]

    async def call_tool(
        self, server: str, tool: str, args: dict[str, Any] | None = None, *, context: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool of one server; a failure is a failed ToolResult."""
        name = tool if tool.startswith(f"{server}.") else canonical_name(server, tool)
        started = now_ms()
        try:
            completed = await self._opened().call(name, args, context)
            return ToolResult.completed(completed.content, completed.text, started_at=started)
        except ToolError as error:
            return ToolResult.failed(error, started_at=started)

    def load_tools(self, *registries: ToolRegistry) -> int:
        """Register every server's tools in each of the registries, described as `[server] ...`; return how many."""
        opened = self._opened()
        servers = [state.name for state in opened.sources.states if state.ok]
        redactor = opened.redactor
        tools = [
            ManagedTool(self, server, replace(spec, description=f"[{server}] {spec.description}", source=""), redactor)
            for server in servers
            for spec in self._specs(server)
        ]
        for registry in registries:
            registry.register_many(tools)
        return len(tools)

    async def disconnect_all(self) -> None:
        """Disconnect every server; safe to call twice."""
        opened, self._open = self._open, None
        if opened is not None:
            try:
                await opened.sources.withdraw()
            finally:
                await opened.close()

    def _opened(self) -> StandaloneRouter:
        if self._open is None:
            raise ToolNodeError("no MCP server is connected; call connect_all first")
        return self._open
