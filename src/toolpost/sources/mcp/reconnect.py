"""Keeps a server connected and its tools current: reconnects after a death, lists anew after a change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from mcp.client.subscriptions import listen

from toolpost.contracts.sources import SourceHealth
from toolpost.sources.mcp.faults import fault_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.sources.mcp.callbacks import Hearing
    from toolpost.sources.mcp.door import Door
    from toolpost.sources.mcp.listing import Listing
    from toolpost.sources.mcp.session import Link

_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 60.0
_SHORTEST_TTL_S = 1.0
_SHORTEST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0


class Keeping:
    """The one background task of a source."""

    def __init__(
        self,
        hearing: Hearing,
        connect: Callable[[], Awaitable[Link]],
        list_tools: Callable[[Link], Awaitable[Listing]],
        *,
        door: Door,
        poll_s: float,
    ) -> None:
        self._hearing = hearing
        self._connect = connect
        self._list = list_tools
        self._poll_s = poll_s
        self._door = door
        self._task: asyncio.Task[None] | None = None
        self._last: tuple[Link, Listing] | None = None
        self._looked = 0.0
        self._pause_s = _SHORTEST_PAUSE_S
        self._listening: tuple[Link, asyncio.Task[None]] | None = None
        self.health = SourceHealth("connecting")

    def listed(self, link: Link, listing: Listing) -> None:
        """Begin from a listing that somebody just made."""
        self._last = (link, listing)
        self.health = SourceHealth("up")

    def start(self) -> None:
        """Begin, once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """End."""
        self._unsubscribe()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                link, listing = self._last or await self._refresh()
            except Exception as raised:  # noqa: BLE001 - whatever a server does, the next try may work
                failures += 1
                error = fault_of(raised)
                if self._door.found_shut(error):
                    await self._leave_to_people()
                    return
                self._say(SourceHealth("down", error.message))
                wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(failures, 20))
                await asyncio.sleep(max(wait, error.retry_after_s or 0.0))
                continue
            failures = 0
            self._say(SourceHealth("up"))
            await self._until_news(link, listing)
            await self._breathe()
            self._last = None
            if link.dead:
                self._say(SourceHealth("down", "the connection broke"))

    async def _leave_to_people(self) -> None:
        """Stop asking as a stranger, who would get the same answer again; the tools that are known stay."""
        tools, problems = await asyncio.to_thread(self._door.tools)
        if tools:
            await self._hearing.found(tools, problems)

    async def _breathe(self) -> None:
        """Let a server that changes all the time wait longer and longer, and others not at all."""
        since = time.monotonic() - self._looked
        if since < self._pause_s:
            await asyncio.sleep(self._pause_s - since)
            self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        else:
            self._pause_s = _SHORTEST_PAUSE_S
        self._looked = time.monotonic()

    async def _refresh(self) -> tuple[Link, Listing]:
        """Connect if need be, list, and tell what came of it."""
        link = await self._connect()
        self._hearing.changed.clear()
        listing = await self._list(link)
        await self._hearing.found(listing.tools, listing.problems)
        return link, listing

    def _say(self, health: SourceHealth) -> None:
        if health != self.health:
            self.health = health
            self._hearing.health(health)

    async def _until_news(self, link: Link, listing: Listing) -> None:
        """Wait until the session dies, the tools change, or it is time to look."""
        loop = asyncio.get_running_loop()
        self._subscribe(link)
        waits: set[asyncio.Task[Any]] = {
            loop.create_task(link.died.wait()),
            loop.create_task(self._hearing.changed.wait()),
        }
        ttl = self._poll_s if listing.ttl_s is None else max(_SHORTEST_TTL_S, listing.ttl_s)
        try:
            await asyncio.wait(waits, timeout=ttl, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _subscribe(self, link: Link) -> None:
        """Listen to a session's changes, once; a subscription ends with its session."""
        if self._listening is None or self._listening[0] is not link:
            self._unsubscribe()
            self._listening = (link, asyncio.get_running_loop().create_task(self._listen(link)))

    def _unsubscribe(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening[1].cancel()

    async def _listen(self, link: Link) -> None:
        """Subscribe where the protocol has that and the server offers it; one that was cut off is begun again."""
        told = _told_changes(link)
        if not (link.session.modern and told):
            return
        pause_s, granted = _SHORTEST_PAUSE_S, False
        while True:
            since = time.monotonic()
            granted = await self._heard_out(link, told) or granted
            if not granted:  # polling goes on
                return
            lasted = time.monotonic() - since > _LONGEST_PAUSE_S
            pause_s = _SHORTEST_PAUSE_S if lasted else min(self._poll_s, pause_s * 2)
            await asyncio.sleep(pause_s)

    async def _heard_out(self, link: Link, told: frozenset[str]) -> bool:
        """Hear of changes until the subscription ends; whether there was one at all."""
        granted = False
        with contextlib.suppress(Exception):  # whatever it was, the next try or the next poll will tell
            async with listen(
                link.session,
                tools_list_changed="tools" in told,
                resources_list_changed="resources" in told,
                prompts_list_changed="prompts" in told,
            ) as events:
                granted = True
                self._hearing.changed.set()  # what changed before the server was listening to us was not told
                async for _ in events:
                    self._hearing.changed.set()
        return granted


def _told_changes(link: Link) -> frozenset[str]:
    """The lists whose changes a server says that it tells of."""
    capabilities = link.session.server_capabilities
    declared = {kind: getattr(capabilities, kind, None) for kind in ("tools", "resources", "prompts")}
    return frozenset(kind for kind, one in declared.items() if one is not None and one.list_changed)
