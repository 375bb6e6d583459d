"""Resources, templates and prompts of a server: their lists, and subscriptions to resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from mcp.client.subscriptions import ResourceUpdated, listen

from toolpost.contracts.errors import ToolClientError, ToolError
from toolpost.contracts.sources import ServerContents
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp.results import with_passed_meta
from toolpost.sources.mcp.session import McpSession

LISTS = {
    "resources": (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
    "prompts": (("prompts/list", "prompts"),),
}
_KEYS = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


def declared_kinds(session: McpSession) -> list[str]:
    """Return the kinds of contents that the server declares besides tools."""
    capabilities = session.client_session.server_capabilities
    return [kind for kind in LISTS if getattr(capabilities, kind, None) is not None]


async def list_contents(session: McpSession) -> ServerContents:
    """List resources, templates and prompts that the server declares; a list that it refuses is empty."""
    requests = [request for kind in declared_kinds(session) for request in LISTS[kind]]
    found = await asyncio.gather(*(_items(session, method, key) for method, key in requests))
    lists = {key: items for (_, key), items in zip(requests, found, strict=True)}
    capabilities = session.client_session.server_capabilities
    return ServerContents(
        resources=lists.get("resources", []),
        templates=lists.get("resourceTemplates", []),
        prompts=lists.get("prompts", []),
        completes=getattr(capabilities, "completions", None) is not None,
        notifies=bool(getattr(getattr(capabilities, "resources", None), "subscribe", False)),
    )


async def _items(session: McpSession, method: str, key: str) -> list[dict[str, Any]]:
    try:
        listed = await session.list_all(method, key)
    except ToolError:
        return []
    return usable(listed, key)


def usable(items: Iterable[Any], key: str) -> list[dict[str, Any]]:
    """Return the items that have a name or a URI."""
    named = (one for one in items if is_object(one) and isinstance(one.get(_KEYS[key]), str) and one[_KEYS[key]])
    return [with_passed_meta(one) for one in named]


class ResourceNews:
    """Subscriptions to resources of a server, which are renewed after reconnects."""

    def __init__(self, connect: Callable[[], Awaitable[McpSession]], updated: Callable[[str], None]) -> None:
        self._connect = connect
        self._updated = updated
        self._wanted: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def subscriptions(self) -> list[str]:
        """The URIs of subscribed resources, once per subscriber."""
        return [uri for uri, count in self._wanted.items() for _ in range(count)]

    async def subscribe(self, uri: str) -> None:
        """Add a subscriber, the first one also at the server; raise ToolError if the server refuses."""
        session = await self._connect()
        first = uri not in self._wanted
        if first and not session.client_session.modern:
            await session.request("resources/subscribe", {"uri": uri})
        self._wanted[uri] = self._wanted.get(uri, 0) + 1
        if first:
            self._restart()

    async def unsubscribe(self, uri: str) -> None:
        """Remove a subscriber, the last one also at the server."""
        left = self._wanted.get(uri, 0) - 1
        if left > 0:
            self._wanted[uri] = left
            return
        if self._wanted.pop(uri, None) is None:
            return
        self._restart()
        with contextlib.suppress(ToolError):  # it ends with the session at the latest
            session = await self._connect()
            if not session.client_session.modern:
                await session.request("resources/unsubscribe", {"uri": uri})

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _restart(self) -> None:
        """Restart the listener, without an await: concurrent calls must not leave a task behind."""
        if self._task is not None:
            self._task.cancel()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(subscribed=True)) if self._wanted else None

    async def _run(self, *, subscribed: bool) -> None:
        """Listen in the newer protocol; in the older one, subscribe in each session again."""
        pause_s = _RETRY_S
        while True:
            with contextlib.suppress(Exception):  # the next attempt may succeed
                session = await self._connect()
                if session.client_session.modern:
                    await self._listen(session)
                else:
                    await self._hold(session, subscribed=subscribed)
                pause_s = _RETRY_S
            subscribed = False
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_RETRY_S, pause_s * 2)

    async def _listen(self, session: McpSession) -> None:
        async with listen(session.client_session, resource_subscriptions=list(self._wanted)) as events:
            async for event in events:
                if isinstance(event, ResourceUpdated):
                    self._updated(event.uri)

    async def _hold(self, session: McpSession, *, subscribed: bool) -> None:
        """Wait for the end of a session of the older protocol, in which updates arrive as notifications."""
        if not subscribed:
            for uri in list(self._wanted):
                with contextlib.suppress(ToolClientError):
                    await session.request("resources/subscribe", {"uri": uri})
        await session.closed.wait()
