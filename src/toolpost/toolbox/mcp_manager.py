"""MCPManager: connect several MCP servers, and register their tools in any number of registries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import ToolRegistry
from toolpost.configuration.loading import parse_settings
from toolpost.configuration.settings import McpServerSettings
from toolpost.contracts import errors
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import Tool, ToolSpec
from toolpost.policy.redaction import Redactor
from toolpost.schema.json_values import is_object
from toolpost.sources.registry import find_transport
from toolpost.toolbox.standalone_router import StandaloneRouter
from toolpost.wire.network import NetworkPolicy

_log = logging.getLogger("toolpost.toolbox")


class MCPManager:
    """Connect MCP servers, keep them connected, and register their tools in any number of registries.

    Tools that differ from the file `lock` are blocked until `toolpost lock approve`. `network` allows private addresses
    in addition to those of the servers.
    """

    def __init__(self, *, lock: str | Path | None = None, network: NetworkPolicy | None = None) -> None:
        self.registry = ToolRegistry()
        self._lock = lock
        self._network = network
        self._open: StandaloneRouter | None = None

    async def connect_all(
        self, configs: Iterable[ExternalToolConfig | McpServerSettings | Mapping[str, Any]]
    ) -> ConnectReport:
        """Connect every enabled server; a server that fails is reported and skipped, unless it is required.

        A mapping is an entry of `tools.mcpServers` in the configuration.
        """
        external = [_external_config(config) for config in configs]
        # Callers cannot answer questions of a server, and `load_tools` adds the name of the server.
        sources = [
            find_transport(config.transport).without_elicitation(config).with_options(name_in_descriptions=False)
            for config in external
        ]
        if self._open is None:
            self._open = StandaloneRouter(self.registry, lock=self._lock, network=self._network)
        connected_names = {state.name for state in self._open.sources.index.states} & {
            config.name for config in sources
        }
        if connected_names:
            raise errors.ConfigError(
                f"already connected: {', '.join(sorted(connected_names))}; disconnect them first, or rename"
            )
        try:
            await self._open.sources.load_all(sources)
        except BaseException:
            await self.disconnect_all()
            raise
        report = ConnectReport()
        for state in self._open.sources.index.states:
            if state.ok:
                report.connected.append(state.name)
            else:
                report.failed[state.name] = state.error or ""
                _log.warning("MCP server %r is skipped: %s", state.name, state.error)
        return report

    def list_tools(self, server: str) -> list[Tool]:
        """Return the tools of one server with the server's descriptions."""
        opened = self._opened()
        if opened.sources.index.source(server) is None:
            names = ", ".join(state.name for state in opened.sources.index.states) or "none"
            raise errors.ToolNodeError(f"no MCP server {server!r} is connected; there are: {names}")
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
        except errors.ToolError as error:
            return ToolResult.failed(error, started_at=started)

    def load_tools(self, *registries: ToolRegistry) -> int:
        """Register every server's tools in each of the registries, described as `[server] ...`; return their number."""
        opened = self._opened()
        servers = [state.name for state in opened.sources.index.states if state.ok]
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

    async def __aenter__(self) -> Self:
        """Do nothing: `connect_all` connects."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect every server."""
        await self.disconnect_all()

    def _opened(self) -> StandaloneRouter:
        if self._open is None:
            raise errors.ToolNodeError("no MCP server is connected; call connect_all first")
        return self._open


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectReport:
    """The servers that connected, and the errors of the others."""

    connected: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def _external_config(config: ExternalToolConfig | McpServerSettings | Mapping[str, Any]) -> ExternalToolConfig:
    if isinstance(config, Mapping):
        given: Any = config.get("env")
        secrets = [str(value) for value in given.values()] if is_object(given) else []
        settings = parse_settings({"tools": {"mcpServers": [dict(config)]}}, shown="the MCP servers", secrets=secrets)
        [config] = settings.tools.mcp_servers
    return config if isinstance(config, ExternalToolConfig) else config.to_external_config()
