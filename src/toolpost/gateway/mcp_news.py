"""News for MCP clients: lists that have changed, and resources that were updated, in both protocol eras."""

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

from toolpost.sources.mcp import sdk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp_types import ServerNotification, SubscriptionsListenRequestParams, SubscriptionsListenResult

    from toolpost.gateway.mcp_contents import Contents
    from toolpost.gateway.mcp_names import Names, Origin

    Context = ServerRequestContext[Any, Any]

_SETTLE_S = 0.1
_TELL_S = 10.0  # for a client to take a notification


class News:
    """Tell clients of changes, while `publishing` is open; several changes at once are told once."""

    def __init__(self, contents: Contents, names: Names, *, tools_differ: Callable[[], bool]) -> None:
        self._contents = contents
        self._names = names
        self._tools_differ = tools_differ
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._changed = asyncio.Event()
        self._updated: dict[str, None] = {}
        self._listed: tuple[Any, Any] = ([], [])
        # Older clients are told of changed lists unasked, and of resources that they subscribed to.
        self._clients: dict[Connection, dict[str, Origin | None]] = {}
        self._telling: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ what happens

    def catalog_changed(self) -> None:
        """Note that tools, or what there is besides, may have changed."""
        self._changed.set()

    def resource_updated(self, origin: Origin) -> None:
        """Note that a resource was updated."""
        self._updated[self._names.uri(origin)] = None
        self._changed.set()

    # ------------------------------------------------------------------ who wants to know

    def add_older_client(self, connection: Connection | None) -> None:
        """Tell an older client of changes from now on, for as long as it is connected."""
        if connection is not None and connection not in self._clients:
            self._clients[connection] = {}
            connection.exit_stack.push_async_callback(self._forget, connection)

    async def _forget(self, connection: Connection) -> None:
        for origin in self._clients.pop(connection, {}).values():
            await self._release(origin)

    async def subscribe(self, connection: Connection | None, uri: str, user: str) -> None:
        """Tell an older client of updates of a resource."""
        if connection is None:
            raise MCPError(code=INVALID_REQUEST, message="this gateway cannot tell older clients of updates")
        self.add_older_client(connection)
        if uri in self._clients[connection]:
            return
        origin = await self._contents.subscribe(uri, user)
        wanted = self._clients.get(connection)
        if wanted is None or uri in wanted:  # it has gone meanwhile, or asked twice at once
            await self._release(origin)
        else:
            wanted[uri] = origin

    async def unsubscribe(self, connection: Connection | None, uri: str) -> None:
        """Tell an older client of a resource no more."""
        if connection is not None:
            await self._release(self._clients.get(connection, {}).pop(uri, None))

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, user: str
    ) -> SubscriptionsListenResult:
        """Tell a newer client what it asks for, for as long as it listens."""
        wanted: list[Origin | None] = []
        try:
            for uri in params.notifications.resource_subscriptions or ():
                with suppress(MCPError):  # of what is not there, or not told of, there is no news
                    wanted.append(await self._contents.subscribe(uri, user))
            return await self._handler(ctx, params)
        finally:
            for origin in wanted:
                await self._release(origin)

    async def _release(self, origin: Origin | None) -> None:
        if origin is not None:
            await self._contents.unsubscribe(origin)

    # ------------------------------------------------------------------ telling them

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Tell clients of changes while this is open."""
        self._listed = self._lists()
        task = asyncio.get_running_loop().create_task(self._publish_changes())
        try:
            yield
        finally:
            tasks = (task, *self._telling)
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
                await self._tell(ToolsListChanged(), ToolListChangedNotification())
            if before[0] != self._listed[0]:
                await self._tell(PromptsListChanged(), PromptListChangedNotification())
            if before[1] != self._listed[1]:
                await self._tell(ResourcesListChanged(), ResourceListChangedNotification())
            for uri in updated:
                params = ResourceUpdatedNotificationParams(uri=uri)
                await self._tell(ResourceUpdated(uri=uri), ResourceUpdatedNotification(params=params), about=uri)

    async def _tell(self, event: Any, notification: ServerNotification, *, about: str | None = None) -> None:
        """Tell all who want to know; a client that is gone, or reads nothing, keeps nobody from being told."""
        await self._bus.publish(event)
        data = notification.model_dump(by_alias=True, mode="json", exclude_none=True)
        for connection, wanted in self._clients.items():
            if about is None or about in wanted:
                task = asyncio.get_running_loop().create_task(_tell_one(connection, data))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)


async def _tell_one(connection: Connection, data: dict[str, Any]) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_TELL_S):
            await connection.notify(data["method"], data.get("params"))


def connection_of(ctx: Context) -> Connection | None:
    """Return the connection of a request; None where the SDK does not say."""
    connection: Connection | None = sdk.CONNECTION.of(ctx.session)
    return connection
