"""Notifications to MCP clients about changed lists and updated resources."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ToolListChangedNotification,
)

from toolpost.sources.mcp.sdk_seam import Parts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from mcp.server.connection import Connection
    from mcp_types import ServerNotification, SubscriptionsListenRequestParams, SubscriptionsListenResult

    from toolpost.gateway.mcp.client import Context
    from toolpost.gateway.mcp.contents import Contents
    from toolpost.gateway.mcp.names import Names, Origin

_SETTLE_S = 0.1
_SEND_S = 10.0  # for a client to receive a notification


class Notifications:
    """Notify clients of changes while `publishing` is open; concurrent changes cause one notification."""

    def __init__(self, contents: Contents, names: Names, *, tools_differ: Callable[[], bool]) -> None:
        self._contents = contents
        self._names = names
        self._tools_differ = tools_differ
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._changed = asyncio.Event()
        self._updated: dict[str, None] = {}
        self._listed: tuple[Any, Any] = ([], [])
        # Sessions are notified of changed lists without a subscription, and of resources that they subscribed to.
        self._clients: dict[Connection, dict[str, Origin | None]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def catalog_changed(self) -> None:
        """Record that tools, prompts or resources may have changed."""
        self._changed.set()

    def resource_updated(self, origin: Origin) -> None:
        """Record that a resource was updated."""
        self._updated[self._names.uri(origin)] = None
        self._changed.set()

    # ------------------------------------------------------------------ subscriptions

    def add_session(self, connection: Connection | None) -> None:
        """Notify a session-based client of changes while it is connected."""
        if connection is not None and connection not in self._clients:
            self._clients[connection] = {}
            connection.exit_stack.push_async_callback(self._remove_session, connection)

    async def _remove_session(self, connection: Connection) -> None:
        for origin in self._clients.pop(connection, {}).values():
            await self._release(origin)

    async def subscribe(self, connection: Connection | None, uri: str, user: str) -> None:
        """Notify a session-based client of updates of a resource."""
        if connection is None:
            raise MCPError(code=INVALID_REQUEST, message="this gateway cannot notify session-based clients of updates")
        self.add_session(connection)
        if uri in self._clients[connection]:
            return
        origin = await self._contents.subscribe(uri, user)
        wanted = self._clients.get(connection)
        if wanted is None or uri in wanted:  # the client is gone, or sent two concurrent requests
            await self._release(origin)
        else:
            wanted[uri] = origin

    async def unsubscribe(self, connection: Connection | None, uri: str) -> None:
        """Stop notifying a session-based client of updates of a resource."""
        if connection is not None:
            await self._release(self._clients.get(connection, {}).pop(uri, None))

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, user: str
    ) -> SubscriptionsListenResult:
        """Send a stateless client the notifications that it requests while its request is open."""
        wanted: list[Origin | None] = []
        try:
            for uri in params.notifications.resource_subscriptions or ():
                with suppress(MCPError):  # a resource that does not exist or is not visible has no updates
                    wanted.append(await self._contents.subscribe(uri, user))
            return await self._handler(ctx, params)
        finally:
            for origin in wanted:
                await self._release(origin)

    async def _release(self, origin: Origin | None) -> None:
        if origin is not None:
            await self._contents.unsubscribe(origin)

    # ------------------------------------------------------------------ sending

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Notify clients of changes while this is open."""
        self._listed = self._lists()
        task = asyncio.get_running_loop().create_task(self._publish_changes())
        try:
            yield
        finally:
            tasks = (task, *self._sending)
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._handler.close()

    def _lists(self) -> tuple[Any, Any]:
        return self._contents.prompts(), self._contents.listed_resources()

    async def _publish_changes(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_SETTLE_S)
            self._changed.clear()
            before, self._listed = self._listed, self._lists()
            updated, self._updated = list(self._updated), {}
            if self._tools_differ():
                await self._send(ToolsListChanged(), ToolListChangedNotification())
            if before[0] != self._listed[0]:
                await self._send(PromptsListChanged(), PromptListChangedNotification())
            if before[1] != self._listed[1]:
                await self._send(ResourcesListChanged(), ResourceListChangedNotification())
            for uri in updated:
                params = ResourceUpdatedNotificationParams(uri=uri)
                await self._send(ResourceUpdated(uri=uri), ResourceUpdatedNotification(params=params), about=uri)

    async def _send(self, event: Any, notification: ServerNotification, *, about: str | None = None) -> None:
        """Notify all subscribers concurrently, so that a client that does not read blocks no other."""
        await self._bus.publish(event)
        data = notification.model_dump(by_alias=True, mode="json", exclude_none=True)
        for connection, wanted in self._clients.items():
            if about is None or about in wanted:
                task = asyncio.get_running_loop().create_task(_notify(connection, data))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)


async def _notify(connection: Connection, data: dict[str, Any]) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_SEND_S):
            await connection.notify(data["method"], data.get("params"))


def connection_of(ctx: Context) -> Connection | None:
    """Return the connection of a request, or None if the SDK does not provide it."""
    connection: Connection | None = Parts.CONNECTION.of(ctx.session)
    return connection
