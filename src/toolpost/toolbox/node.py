"""ToolNode: one external source whose tools are registered in a shared registry. MCPClient: one MCP server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.auth.user_credentials import AuthManager, UserCredentials, may_list_later, own_context
from toolpost.catalog.registry import ToolRegistry
from toolpost.connecting.presets import with_token_variable
from toolpost.contracts.config import AuthType, ExternalToolConfig, TransportType
from toolpost.contracts.errors import (
    ConfigError,
    MCPClientError,
    MCPConnectionError,
    MCPToolExecutionError,
    ToolAuthError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
)
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.policy.redaction import Redactor
from toolpost.toolbox.standalone import StandaloneRouter, without_elicitation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from toolpost.auth.user_credentials import AccountCounts
    from toolpost.catalog.registry import CatalogChange
    from toolpost.contracts.calls import Credential
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Completed
    from toolpost.contracts.sources import CredentialProvider, SourceHealth
    from toolpost.contracts.spec import Tool, ToolSpec

    Run = Callable[[str, Any, ToolContext | None], Awaitable[Completed]]

_UNAUTHORIZED = 401


class NodeTool:
    """A tool of a node in a shared registry; every call runs through the router of the node.

    A call uses the credential of the node or of the user of its context, a tool that is held back is refused, and
    the node's secrets are redacted. `redactor` knows the secrets, for events about its calls.
    """

    __slots__ = ("_run", "redactor", "spec")

    def __init__(self, spec: ToolSpec, run: Run, redactor: Redactor) -> None:
        self.spec = spec
        self.redactor = redactor
        self._run = run

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool for the user of the context, who may have to sign in first; raise its error."""
        started = now_ms()
        completed = await self._run(self.spec.name, params, context)
        return ToolResult.completed(completed.content, completed.text, started_at=started)


class _Mirror:
    """Copy the tools of a node's private registry to a shared one."""

    def __init__(self, private: ToolRegistry, shared: ToolRegistry, run: Run, redactor: Redactor) -> None:
        self._private = private
        self._shared = shared
        self._run = run
        self._redactor = redactor
        self.shown: dict[str, Tool] = {}
        private.subscribe(self._follow)

    def _follow(self, change: CatalogChange) -> None:
        name = change.tool_name
        if change.kind == "removed":
            if self.shown.pop(name, None) is not None:
                self._shared.unregister(name)
            return
        tool = NodeTool(self._private.find(name).spec, self._run, self._redactor)
        self._shared.register(tool, replace=name in self.shown)
        self.shown[name] = tool


@dataclass(slots=True)
class ToolNode:
    """An external tool source; connecting registers its tools in `registry` as `{name}.{tool}`.

    With `auth_type=oauth2_user` each call uses the token of its user: `auth_manager` has the token under the node's
    name, or the call pauses until the user has signed in. Without an `auth_manager` the credential of the
    configuration is used. `server` is an MCP server object of this process. Tools that differ from the file `lock`
    are held back: their calls fail until `toolpost lock approve`. Unlike a Toolbox, a node raises its errors.
    """

    config: ExternalToolConfig
    registry: ToolRegistry
    auth_manager: AuthManager | CredentialProvider | None = None
    server: Any = None
    lock: str | Path | None = None
    _open: StandaloneRouter | None = field(default=None, init=False, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _redactor: Redactor = field(default_factory=Redactor, init=False, repr=False)
    _users: UserCredentials | None = field(default=None, init=False, repr=False)
    _shown: _Mirror | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.config = with_token_variable(self.config)
        if self.config.auth_type is AuthType.OAUTH2_USER:
            self._users = UserCredentials(self.config, self.auth_manager, self._redactor.learn)

    async def connect(self, ctx: ToolContext | None = None) -> None:
        """Connect and register the tools; does nothing when the node is connected.

        A server that lists no tools without a user is asked again with the token of the user of `ctx`, or at the
        first call of a user who has signed in. `auth_config.discovery_auth` lists the tools at once.
        """
        async with self._turn:
            if self._open is not None:
                return
            if self._users is None:
                self._open = await self._open_router(self.config)
                return
            config = await self._users.discovery_config(ctx)
            try:
                self._open = await self._open_router(config)
            except (ToolAuthError, ToolConnectionError) as refused:
                if not may_list_later(config, refused):
                    raise

    async def _open_router(self, config: ExternalToolConfig) -> StandaloneRouter:
        name, users = config.name, self._users
        private = ToolRegistry()
        self._shown = _Mirror(private, self.registry, self._completed, self._redactor)
        given = None if isinstance(self.auth_manager, AuthManager) else self.auth_manager
        provider = given if users is None else users.provider
        opened = StandaloneRouter(
            private,
            servers={name: self.server} if self.server is not None else None,
            credentials=None if provider is None else {name: provider},
            redactor=self._redactor,
            lock=self.lock,
        )
        try:
            wanted = config.model_copy(update={"enabled": True, "required": True})
            await opened.sources.add(without_elicitation(wanted))
            self._refuse_collisions(opened)
        except BaseException as error:
            await _close_router(opened)
            if isinstance(error, ConfigError) and (fault := error.__cause__) is not None:
                raise fault from fault.__cause__
            raise
        return opened

    def _refuse_collisions(self, opened: StandaloneRouter) -> None:
        """Raise for names that are taken, which the caller must solve; a bad schema only leaves its tool out."""
        for problem in opened.sources.problems:
            if problem.startswith("Duplicate tool name"):
                raise ToolNodeError(problem)
        for tool, problem in opened.sources.collisions(self.config.name).items():
            raise ToolNodeError(f"Tool name collision for '{tool}' (native tool or another ToolNode): {problem}")

    @property
    def problems(self) -> list[str]:
        """Tools that were left out, and why."""
        return [] if self._open is None else self._open.sources.problems

    @property
    def health(self) -> SourceHealth | None:
        """How the connection is doing, once it is open."""
        source = None if self._open is None else self._open.sources.source(self.config.name)
        return None if source is None else source.health

    @property
    def counts(self) -> AccountCounts | None:
        """Counters of sign-ins, for sources with users' own accounts."""
        return None if self._users is None else self._users.counts

    def get_tools(self) -> list[Tool]:
        """Return the tools that this node has registered."""
        if self._open is None or self._shown is None:
            raise ToolNodeError(f"ToolNode '{self.config.name}' not connected")
        return [tool for tool in self._shown.shown.values() if not tool.spec.is_helper]

    async def call(self, tool_name: str, args: Any, ctx: ToolContext | None = None) -> Any:
        """Call a tool by its full or its bare name; return its content or raise its error."""
        return (await self._completed(tool_name, args, ctx)).content

    async def _completed(self, tool_name: str, args: Any, ctx: ToolContext | None) -> Completed:
        prefix = f"{self.config.name}."
        name = tool_name if tool_name.startswith(prefix) else prefix + tool_name
        if self._users is None:
            return await (await self._ready(ctx)).call(name, args, ctx)
        credential = await self._users.credential(ctx)
        try:
            return await self._run_for(credential, name, args, ctx)
        except ToolAuthError as refused:
            if refused.status_code != _UNAUTHORIZED or credential is None:
                raise
        credential = await self._users.credential(ctx, refused=credential)
        return await self._run_for(credential, name, args, ctx)

    async def _run_for(self, credential: Credential | None, name: str, args: Any, ctx: Any) -> Completed:
        """Run a call with a user's own credential; None if a credential provider supplies it."""
        opened, users = await self._ready(ctx), self._users
        if credential is None or users is None:
            return await opened.call(name, args, own_context(ctx))
        with users.calls.use(credential) as correlation_id:
            return await opened.call(name, args, own_context(ctx), correlation_id=correlation_id)

    async def _ready(self, ctx: ToolContext | None) -> StandaloneRouter:
        if self._open is None:
            await self.connect(ctx)
        if self._open is None:
            raise ToolConnectionError(f"ToolNode '{self.config.name}' not connected", sent=False)
        return self._open

    async def close(self) -> None:
        """Disconnect and unregister the tools; safe to call twice."""
        async with self._turn:
            opened, self._open = self._open, None
            if opened is not None:
                await _close_router(opened)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _close_router(opened: StandaloneRouter) -> None:
    """Unregister the tools, then close the source."""
    opened.sources.withdraw()
    await opened.close()


class MCPClient:
    """Connect to one MCP server by URL or command, list its tools and call them.

    Raises MCPConnectionError without a connection and MCPToolExecutionError when a call fails; MCPClientError is the
    parent of both. Approvals and storage need a Toolbox.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._node: ToolNode | None = None

    async def connect(self, server_uri: str) -> None:
        """Connect to a server; the options of the client are those of an ExternalToolConfig."""
        given = {"name": "server", "transport": TransportType.MCP, **self._options, "connection": server_uri}
        node = ToolNode(config=ExternalToolConfig.model_validate(given), registry=ToolRegistry())
        try:
            await node.connect()
        except ToolError as error:
            raise _client_error(error) from error
        await self.close()
        self._node = node

    async def list_tools(self) -> list[ToolSpec]:
        """Return the server's tools, named `server.tool`, without the helpers for its resources and prompts."""
        return [tool.spec for tool in self._connected().get_tools()]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool by the server's name or by that of `list_tools`, and return its content."""
        node = self._connected()
        try:
            return await node.call(tool_name, arguments or {})
        except ToolError as error:
            raise _client_error(error) from error

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        node, self._node = self._node, None
        if node is not None:
            await node.close()

    def _connected(self) -> ToolNode:
        if self._node is None:
            raise MCPClientError("the client is not connected; call connect(server_uri) first")
        return self._node

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _client_error(error: ToolError) -> MCPClientError:
    """Convert an error of the library into the client's own, with the same category, status and code."""
    facts: dict[str, Any] = {
        "tool_name": error.tool_name,
        "category": error.category,
        "status_code": error.status_code,
        "code": error.error_code,
        "retry_after_s": error.retry_after_s,
        "cause": error,
    }
    if isinstance(error, ToolConnectionError):
        return MCPConnectionError(error.message, sent=error.sent, **facts)
    return MCPToolExecutionError(error.message, **facts)
