"""The MCP servers of a gateway: the default view at `/mcp`, and named views at `/mcp/NAME`.

A server is started by the first request for it. Until then the MCP SDK is not imported: it takes longer to import than
the rest of the gateway, and clients of the REST interface do not need it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import copy_context
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolpost.gateway.access import CALLER
from toolpost.gateway.problems import ProblemResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextvars import Context

    from starlette.types import Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.mcp.http import McpEndpoint
    from toolpost.gateway.mcp.progress import ProgressRelay
    from toolpost.gateway.mcp.server import McpServer
    from toolpost.gateway.views import View
    from toolpost.toolbox.box import Toolbox

_SESSION_HEADER = "mcp-session-id"  # of protocol 2025-11-25 and earlier
_DEFAULT = ""  # the name of the view at `/mcp` itself
_MODULES = ("toolpost.gateway.mcp.http", "toolpost.gateway.mcp.server")


class ViewServers:
    """MCP servers of the default view at `/mcp` and of named views at `/mcp/NAME`.

    As an ASGI application it serves the named views; a view that does not exist or is not visible to the caller is not
    found. Clients receive progress only if `relay` is among the sinks of the Toolbox. `on_load` is called when the SDK
    has been imported.
    """

    def __init__(
        self,
        box: Toolbox,
        default: View,
        named: Mapping[str, View] | None = None,
        *,
        relay: ProgressRelay | None,
        on_load: Callable[[], None] = lambda: None,
    ) -> None:
        self._box = box
        self._relay = relay
        self._on_load = on_load
        self.default = default
        self._views: dict[str, View] = {**(named or {}), _DEFAULT: default}
        self._servers: dict[str, _Server] = {}
        self._running = False
        self._changing = asyncio.Lock()
        self._context = copy_context()  # a server outlives the request that starts it

    async def show(self, default: View, named: Mapping[str, View]) -> None:
        """Serve these views from now on: update running servers and stop those of removed views."""
        async with self._changing:
            self.default = default
            self._views = {**named, _DEFAULT: default}
            await self._stop([name for name in self._servers if name not in self._views])
            for name, server in self._servers.items():
                server.mcp.show(self._views[name])

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve the views while this is open."""
        self._running = True
        try:
            yield
        finally:
            async with self._changing:
                self._running = False
                await self._stop([*self._servers])

    async def _stop(self, names: Sequence[str]) -> None:
        for name in names:
            await self._servers.pop(name).stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["view"]
        view, caller = self._views.get(name), _caller_of(scope)
        if view is None or not view.is_for(str(caller.principal)):
            await _not_found(name)(scope, receive, send)
            return
        await self._serve(name, scope, receive, send)

    async def serve_default(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request at `/mcp`."""
        await self._serve(_DEFAULT, scope, receive, send)

    async def _serve(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._servers.get(name) or await self._start(name)
        if server is None:
            await _not_found(name)(scope, receive, send)
            return
        await server.endpoint(scope, receive, send)

    async def _start(self, name: str) -> _Server | None:
        """Return the server of a view, after starting it if needed; None if the view does not exist."""
        async with self._changing:
            server, view = self._servers.get(name), self._views.get(name)
            if server is not None or view is None:
                return server
            if not self._running:
                raise RuntimeError("the gateway has ended")
            for module in _MODULES:  # in a thread, so that other requests are served
                await asyncio.to_thread(import_module, module)
            server = self._make(view)
            await server.start(self._context)
            if not self._servers:
                self._on_load()
            self._servers[name] = server
            return server

    def _make(self, view: View) -> _Server:
        from toolpost.gateway.mcp.http import McpEndpoint  # noqa: PLC0415 - loads the SDK
        from toolpost.gateway.mcp.server import McpServer  # noqa: PLC0415 - as above

        mcp = McpServer(
            self._box,
            principal=_principal_of,
            interactive=_is_interactive,
            session=_session_of,
            relay=self._relay,
            view=view,
        )

        def listed(version: str, scope: Scope) -> bytes | None:
            return mcp.encoded_list(version, str(_caller_of(scope).principal))

        return _Server(mcp, McpEndpoint(mcp.server, listed=listed, call_tool=mcp.untraced_call))


class _Server:
    """A running MCP server with its endpoint and the task that keeps both open."""

    def __init__(self, mcp: McpServer, endpoint: McpEndpoint) -> None:
        self.mcp = mcp
        self.endpoint = endpoint
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, context: Context) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), context=context)
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._stopping.set()
            raise
        finally:
            ready.cancel()
        if self._task.done():
            await self._task  # raises the exception of a failed start

    async def _run(self) -> None:
        async with self.mcp.publishing(), self.endpoint.running():
            self._ready.set()
            await self._stopping.wait()

    async def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


def _not_found(name: str) -> ProblemResponse:
    return ProblemResponse(404, "view_not_found", f"unknown view {name!r}")


def _principal_of(ctx: Any) -> str:
    """Return the principal of a request to an MCP server."""
    return str(_caller_of(ctx.request.scope).principal)


def _is_interactive(ctx: Any) -> bool:
    """Return whether a user operates the client of a request to an MCP server."""
    return _caller_of(ctx.request.scope).interactive


def _session_of(ctx: Any) -> str:
    """Return the session of a request: its caller, and its MCP session if the protocol has one."""
    return f"{_caller_of(ctx.request.scope).id} {ctx.request.headers.get(_SESSION_HEADER, '')}"


def _caller_of(scope: Scope) -> Caller:
    caller: Caller = scope[CALLER]
    return caller
