"""Follow the event log for many listeners with one reader, which sends each event to a listener exactly once."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from toolpost.contracts.events import EventFilter, StoredEvent
    from toolpost.contracts.storage import EventLog

_PAGE = 1000
_MOST_WAITING = 5_000  # a listener with more events reads them from the log
_LOOK_S = 15.0
_STORE_RETRY_S = 1.0
_MIN_PAUSE_S = 0.02


async def events_after(
    log: EventLog, after: int, *, tenant: str, run_id: str | None = None, only: EventFilter | None = None
) -> AsyncIterator[StoredEvent]:
    """Yield all events of the log after an ID."""
    while page := await log.read(tenant=tenant, run_id=run_id, after=after, limit=_PAGE, only=only):
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].id


class RunWatch:
    """Waits for new events of one run."""

    def __init__(self, log: EventLog, run: tuple[str, str], closing: asyncio.Future[None]) -> None:
        self._log = log
        self._run = run
        self._closing = closing
        self._position = 0
        self._read_at = 0.0

    async def wait(self, ending: asyncio.Future[Any] | None = None, *, at_most_s: float = math.inf) -> None:
        """Wait until the run has new events, `ending` is done, the feed closes, or `at_most_s` seconds have passed."""
        loop = asyncio.get_running_loop()
        changed = loop.create_task(self._log.wait(self._position, timeout_s=at_most_s, run=self._run))
        closing = None if self._closing.done() else self._closing  # it does not end a wait that begins later
        try:
            await _first_of(changed, ending, closing)
            if changed.done():
                self._position = changed.result()
                # A tool that reports a thousand times a second is read less often.
                pause_s = self._read_at + _MIN_PAUSE_S - loop.time()
                if pause_s > 0:
                    await _first_of(loop.create_task(asyncio.sleep(pause_s)), ending)
        finally:
            changed.cancel()
            await asyncio.gather(changed, return_exceptions=True)
        self._read_at = loop.time()


async def _first_of(*futures: asyncio.Future[Any] | None) -> None:
    await asyncio.wait([future for future in futures if future is not None], return_when=asyncio.FIRST_COMPLETED)


class EventFeed:
    """Sends new events of the log, of any process, to many listeners."""

    def __init__(self) -> None:
        self._listeners: defaultdict[tuple[str, str | None], set[_Listener]] = defaultdict(set)
        self._has_listeners = asyncio.Event()
        self._position = 0
        self._joining = asyncio.Lock()
        self.is_closed = False
        self.on_close: Callable[[], object] = lambda: None

    def watch(self, run_id: str, *, tenant: str) -> RunWatch:
        """Return an object that waits for events of a run."""
        return RunWatch(self._log, (tenant, run_id), self._closing)

    @property
    def listeners(self) -> int:
        """The number of listeners."""
        return sum(map(len, self._listeners.values()))

    def close(self) -> None:
        """End all listeners and waits, for the gateway to stop."""
        self.is_closed = True
        self.on_close()
        if not self._closing.done():
            self._closing.set_result(None)
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.ready.set()

    @asynccontextmanager
    async def following(self, log: EventLog) -> AsyncGenerator[None]:
        """Read the log while this is open."""
        self._log = log
        loop = asyncio.get_running_loop()
        self._closing: asyncio.Future[None] = loop.create_future()
        task = loop.create_task(self._follow())
        try:
            yield
        finally:
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
        """Yield the events after an ID (None: from now on) as they arrive; yield None first and while there are none.

        `only` filters the events that are read from the log, and `wanted` applies the same filter to one event.
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
                listener.ready.clear()  # first, because events can arrive while others are yielded
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
            self._has_listeners.set()
        return listener, self._position

    def _leave(self, tenant: str, run_id: str | None, listener: _Listener) -> None:
        others = self._listeners[tenant, run_id]
        others.discard(listener)
        if not others:
            del self._listeners[tenant, run_id]
        if not self._listeners:
            self._has_listeners.clear()

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
            await self._has_listeners.wait()
            try:
                newest = await self._log.wait(self._position, timeout_s=_LOOK_S)
                await self._read_on()
                self._position = max(self._position, newest)  # also past damaged events
            except StoreError:  # the writer of events reports it
                await asyncio.sleep(_STORE_RETRY_S)

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


class _Listener:
    """The events that one listener has not taken yet; if `behind`, it must read them from the log."""

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
