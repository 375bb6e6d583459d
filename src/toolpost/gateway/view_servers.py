"""The MCP servers of named views at `/mcp/NAME`, which come and go while the gateway runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.gateway.access import CALLER
from toolpost.gateway.problems import ProblemResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.mcp_server import McpServer
    from toolpost.gateway.views import View


class _Server:
    """One MCP server while it runs, with its view, its sessions and the task that keeps them open."""

    def __init__(self, mcp: McpServer, view: View, sessions: StreamableHTTPSessionManager) -> None:
        self.mcp = mcp
        self.view = view
        self.sessions = sessions
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()

    async def _run(self) -> None:
        # In one task: a task group is left where it was entered.
        async with self.mcp.publishing(), self.sessions.run():
            self._ready.set()
            await self._stopping.wait()

    async def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class ViewServers:
    """ASGI application of the named views. A view that is gone, or not for a caller, is not found."""

    def __init__(
        self, make: Callable[[View], McpServer], sessions: Callable[[McpServer], StreamableHTTPSessionManager]
    ) -> None:
        self._make = make
        self._sessions = sessions
        self._views: Mapping[str, View] = {}
        self._servers: dict[str, _Server] = {}
        self._running = False
        self._changing = asyncio.Lock()

    async def show(self, views: Mapping[str, View]) -> None:
        """Serve these views: start the new ones, change those that run, stop the others."""
        async with self._changing:
            self._views = views
            if self._running:
                await self._serve(views)

    async def _serve(self, views: Mapping[str, View]) -> None:
        for name in [name for name in self._servers if name not in views]:
            await self._servers.pop(name).stop()
        for name, view in views.items():
            server = self._servers.get(name)
            if server is not None:
                server.view = view
                server.mcp.show(view)
                continue
            mcp = self._make(view)
            server = _Server(mcp, view, self._sessions(mcp))
            await server.start()
            self._servers[name] = server

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve the views while this is open."""
        async with self._changing:
            self._running = True
            await self._serve(self._views)
        try:
            yield
        finally:
            async with self._changing:
                self._running = False
                await self._serve({})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["view"]
        server, caller = self._servers.get(name), self._caller(scope)
        if server is None or not server.view.is_for(str(caller.principal)):
            await ProblemResponse(404, "view_not_found", f"there is no view {name!r}")(scope, receive, send)
            return
        await server.sessions.handle_request(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller:
        caller: Caller = scope[CALLER]
        return caller
