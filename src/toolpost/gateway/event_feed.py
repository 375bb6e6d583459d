"""Follow the event log for many listeners with one reader: none misses an event, none gets one twice."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator

    from toolpost.contracts.events import EventFilter, RunEvent, StoredEvent
    from toolpost.contracts.storage import EventLog

_PAGE = 1000
_MOST_WAITING = 5_000  # a listener that is further behind reads the log again
_LOOK_S = 1.0  # other processes write to the log, too
_RARER = 1.25
_AT_ONCE_S = 0.02


async def events_after(
    log: EventLog, after: int, *, tenant: str, run_id: str | None = None, only: EventFilter | None = None
) -> AsyncIterator[StoredEvent]:
    """Yield all events behind an id that are in the log."""
    while page := await log.read(tenant=tenant, run_id=run_id, after=after, limit=_PAGE, only=only):
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].id


class _Listener:
    """What one listener has not taken yet; `behind` says that it has to read the log again."""

    def __init__(self) -> None:
        self.waiting: deque[StoredEvent] = deque()
        self.behind = False
        self.ready = asyncio.Event()

    def put(self, event: StoredEvent) -> None:
        if len(self.waiting) >= _MOST_WAITING:
            self.waiting.clear()
            self.behind = True
        if not self.behind:
            self.waiting.append(event)
        self.ready.set()


class RunWatch:
    """Wait for news of one run: at once of what this process emits, after a while of what other processes write.

    The looks for others become rarer while there is nothing new, up to one in `2 * look_s` seconds.
    """

    def __init__(self, look_s: float) -> None:
        self._first_s, self._longest_s = look_s / 10, look_s * 2
        self._next_s = self._first_s
        self._loop = asyncio.get_running_loop()
        self._looked_at = self._loop.time()
        self._news = self._loop.create_future()
        self.wake()  # what was emitted before, nobody told

    def wake(self) -> None:
        """Let whoever waits look at once, and often for a while: what follows an event may come from elsewhere."""
        self._next_s = self._first_s
        if not self._news.done():
            self._news.set_result(None)

    async def wait(self, ending: asyncio.Future[Any] | None = None, *, at_most_s: float = math.inf) -> None:
        """Wait until it is time to look at the run, or `ending` is done."""
        ending = ending or self._loop.create_future()
        limit_s = min(self._next_s, at_most_s)
        await asyncio.wait([self._news, ending], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if self._news.done():  # a tool that reports a thousand times a second is not read as often
            await asyncio.wait([ending], timeout=max(0.0, self._looked_at + _AT_ONCE_S - self._loop.time()))
            self._news = self._loop.create_future()
        else:
            self._next_s = min(self._next_s * _RARER, self._longest_s)
        self._looked_at = self._loop.time()


class EventFeed:
    """Event sink that tells listeners of new events in the log; it must be among the sinks of the Toolbox.

    Events are read from the log, so that each has its number, and those of other processes come too, within `look_s`
    seconds.
    """

    def __init__(self, *, look_s: float = _LOOK_S) -> None:
        self._look_s = look_s
        self._written = asyncio.Event()
        self._listeners: defaultdict[tuple[str, str | None], set[_Listener]] = defaultdict(set)
        self._position = 0
        self._watches: defaultdict[tuple[str, str], set[RunWatch]] = defaultdict(set)
        self._joining = asyncio.Lock()
        self.is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, event: RunEvent) -> None:
        """Look at the log soon; progress may come from a worker thread."""
        if self._loop is None:
            return
        if self._listeners:
            self._loop.call_soon_threadsafe(self._written.set)
        if self._watches and (event.call.tenant, event.call.run_id) in self._watches:
            self._loop.call_soon_threadsafe(self._wake, event.call.tenant, event.call.run_id)

    def _wake(self, tenant: str, run_id: str) -> None:
        for watch in self._watches.get((tenant, run_id), ()):
            watch.wake()

    @contextmanager
    def watching(self, run_id: str, *, tenant: str) -> Generator[RunWatch]:
        """Wait for news of a run while this is open."""
        watch = RunWatch(self._look_s)
        self._watches[tenant, run_id].add(watch)
        try:
            yield watch
        finally:
            self._watches[tenant, run_id].discard(watch)
            if not self._watches[tenant, run_id]:
                del self._watches[tenant, run_id]

    @property
    def listeners(self) -> int:
        """How many listen."""
        return sum(map(len, self._listeners.values()))

    def close(self) -> None:
        """Let everybody go who listens, so that the gateway can stop."""
        self.is_closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.ready.set()
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    @asynccontextmanager
    async def following(self, log: EventLog) -> AsyncGenerator[None]:
        """Read the log while this is open."""
        self._log = log
        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._follow())
        try:
            yield
        finally:
            self._loop = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def listen(
        self,
        *,
        tenant: str,
        run_id: str | None = None,
        after: int | None = None,
        only: EventFilter | None = None,
        wanted: Callable[[StoredEvent], bool],
    ) -> AsyncIterator[StoredEvent | None]:
        """Yield the events after an id (None: from now on) as they come; None at first, and when there are none.

        `only` narrows what is read from the log, and `wanted` must say the same of an event.
        """
        listener, begin = await self._join(tenant, run_id)
        try:
            yield None
            seen = begin if after is None else after
            async for event in self._catch_up(tenant, run_id, seen, begin, only):
                seen = event.id
                yield event
            seen = max(seen, begin) if after is None or after < begin else after
            while not self.is_closed:
                listener.ready.clear()  # first: what comes while events are being taken must not be slept over
                if listener.behind:
                    listener.behind, upto = False, self._position
                    async for event in self._catch_up(tenant, run_id, seen, upto, only):
                        yield event
                    seen = max(seen, upto)
                while listener.waiting:
                    event = listener.waiting.popleft()
                    if event.id > seen and wanted(event):
                        yield event
                    seen = max(seen, event.id)
                try:
                    async with asyncio.timeout(15):
                        await listener.ready.wait()
                except TimeoutError:
                    yield None
        finally:
            self._leave(tenant, run_id, listener)

    async def _join(self, tenant: str, run_id: str | None) -> tuple[_Listener, int]:
        listener = _Listener()
        async with self._joining:
            if not self._listeners:
                newest = await self._log.read(limit=1, newest=True)
                self._position = newest[0].id if newest else 0
            self._listeners[tenant, run_id].add(listener)
        return listener, self._position

    def _leave(self, tenant: str, run_id: str | None, listener: _Listener) -> None:
        others = self._listeners[tenant, run_id]
        others.discard(listener)
        if not others:
            del self._listeners[tenant, run_id]

    async def _catch_up(
        self, tenant: str, run_id: str | None, after: int, upto: int, only: EventFilter | None
    ) -> AsyncIterator[StoredEvent]:
        if after >= upto:
            return
        async for event in events_after(self._log, after, tenant=tenant, run_id=run_id, only=only):
            if event.id > upto:
                return
            yield event

    async def _follow(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_s):
                    await self._written.wait()
            except TimeoutError:
                pass
            self._written.clear()
            if self._listeners:
                try:
                    await self._read_on()
                except StoreError:
                    continue  # whoever writes reports it; reading goes on when the store does

    async def _read_on(self) -> None:
        while True:
            page = await self._log.read(after=self._position, limit=_PAGE)
            for event in page:
                for key in ((event.tenant, event.run_id), (event.tenant, None)):
                    for listener in self._listeners.get(key, ()):
                        listener.put(event)
            if page:
                self._position = page[-1].id
            if len(page) < _PAGE:
                return
