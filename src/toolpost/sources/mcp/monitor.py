"""Connection monitor: keep one session of an MCP server open and its tools current."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.client.subscriptions import listen

from toolpost.contracts.sources import SourceHealth
from toolpost.sources.mcp.callbacks import SessionCallbacks
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.listing import ToolListing
from toolpost.sources.mcp.listing_cache import AnonymousListing
from toolpost.sources.mcp.session import McpSession

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 60.0
_MIN_TTL_S = 1.0
_MIN_PAUSE_S = 0.2
_MAX_PAUSE_S = 30.0


class ConnectionMonitor:
    """Background task of a source that keeps its session open and its tools current."""

    def __init__(
        self,
        callbacks: SessionCallbacks,
        connect: Callable[[], Awaitable[McpSession]],
        list_tools: Callable[[McpSession], Awaitable[ToolListing]],
        *,
        anonymous: AnonymousListing,
        poll_s: float,
    ) -> None:
        self._callbacks = callbacks
        self._connect = connect
        self._list = list_tools
        self._poll_s = poll_s
        self._anonymous = anonymous
        self._task: asyncio.Task[None] | None = None
        self._last: tuple[McpSession, float | None] | None = (
            None  # the listed session, and the validity of its listing in seconds
        )
        self._refreshed_at = 0.0
        self._pause_s = _MIN_PAUSE_S
        self._subscription: tuple[McpSession, asyncio.Task[None]] | None = None
        self.health = SourceHealth("connecting")

    def resume_from(self, session: McpSession, listing: ToolListing) -> None:
        """Start from a listing that was just made."""
        self._last = (session, listing.ttl_s)
        self.health = SourceHealth("up")

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._unsubscribe()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                session, ttl_s = self._last or await self._refresh()
            except Exception as raised:  # noqa: BLE001 - the next attempt may succeed
                failures += 1
                error = to_tool_error(raised)
                if self._anonymous.note_refusal(error):
                    tools, problems = await asyncio.to_thread(self._anonymous.known_tools)
                    if tools:
                        await self._callbacks.publish_tools(tools, problems)
                    return  # further anonymous requests would be refused again
                self._set_health(SourceHealth("down", error.message))
                wait = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(failures, 20))
                await asyncio.sleep(max(wait, error.retry_after_s or 0.0))
                continue
            failures = 0
            self._set_health(SourceHealth("up"))
            await self._wait_for_change(session, ttl_s)
            await self._throttle()
            self._last = None
            if session.is_closed:
                self._set_health(SourceHealth("down", "the connection broke"))

    async def _throttle(self) -> None:
        """Delay the next refresh, longer each time, when a server changes all the time."""
        since = time.monotonic() - self._refreshed_at
        if since < self._pause_s:
            await asyncio.sleep(self._pause_s - since)
            self._pause_s = min(_MAX_PAUSE_S, self._pause_s * 2)
        else:
            self._pause_s = _MIN_PAUSE_S
        self._refreshed_at = time.monotonic()

    async def _refresh(self) -> tuple[McpSession, float | None]:
        """Connect if needed, list the tools, and publish them; return how long they stay valid."""
        session = await self._connect()
        self._callbacks.list_changed.clear()
        listing = await self._list(session)
        await self._callbacks.publish_tools(listing.tools, listing.problems)
        return session, listing.ttl_s

    def _set_health(self, health: SourceHealth) -> None:
        if health != self.health:
            self.health = health
            self._callbacks.publish_health(health)

    async def _wait_for_change(self, session: McpSession, ttl_s: float | None) -> None:
        """Wait until the session ends, the tools change, or the next poll is due."""
        loop = asyncio.get_running_loop()
        self._subscribe(session)
        waits: set[asyncio.Task[Any]] = {
            loop.create_task(session.closed.wait()),
            loop.create_task(self._callbacks.list_changed.wait()),
        }
        ttl = self._poll_s if ttl_s is None else max(_MIN_TTL_S, ttl_s)
        try:
            await asyncio.wait(waits, timeout=ttl, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _subscribe(self, session: McpSession) -> None:
        """Subscribe to a session's changes, once; a subscription ends with its session."""
        if self._subscription is None or self._subscription[0] is not session:
            self._unsubscribe()
            self._subscription = (session, asyncio.get_running_loop().create_task(self._listen(session)))

    def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription[1].cancel()

    async def _listen(self, session: McpSession) -> None:
        """Keep a subscription where protocol and server have it; resubscribe after it ended."""
        capabilities = session.client_session.server_capabilities
        declared = {kind: getattr(capabilities, kind, None) for kind in ("tools", "resources", "prompts")}
        lists = frozenset(kind for kind, one in declared.items() if one is not None and one.list_changed)
        if not (session.client_session.modern and lists):
            return
        pause_s, subscribed = _MIN_PAUSE_S, False
        while True:
            since = time.monotonic()
            subscribed = await self._receive_changes(session, lists) or subscribed
            if not subscribed:  # refused: polling alone finds changes
                return
            lasted = time.monotonic() - since > _MAX_PAUSE_S
            pause_s = _MIN_PAUSE_S if lasted else min(self._poll_s, pause_s * 2)
            await asyncio.sleep(pause_s)

    async def _receive_changes(self, session: McpSession, lists: frozenset[str]) -> bool:
        """Receive changes until the subscription ends; return whether the server accepted it."""
        subscribed = False
        with contextlib.suppress(Exception):  # the next attempt or poll reports a lasting failure
            async with listen(
                session.client_session,
                tools_list_changed="tools" in lists,
                resources_list_changed="resources" in lists,
                prompts_list_changed="prompts" in lists,
            ) as events:
                subscribed = True
                self._callbacks.list_changed.set()  # changes before the subscription were not announced
                async for _ in events:
                    self._callbacks.list_changed.set()
        return subscribed
