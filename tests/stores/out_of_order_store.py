"""A third store: slow, with events that commit out of order, as rows with numbers of a PostgreSQL sequence do.

It keeps its data in a SQLite store that several of these stores open. Every method waits a little before and after its
work. Events of a run are committed together after a delay of their own, so that a run that was emitted later is often
visible before an earlier one. An id is a position in the order of commits: a reader that continues after the last id
misses nothing. Waiting polls nothing: whoever writes notifies the stores on the same folder, as LISTEN and NOTIFY do.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from toolpost.auth.keys import FileCipher
from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.storage import Cipher, IdKind, Store
from toolpost.contracts.store_status import StoreInspection
from toolpost.stores.registry import StoreCheck, StoreOptions
from toolpost.stores.sqlite.store import SQLiteBackend, SQLiteStore, open_sqlite_store

NAME = "out-of-order"
LONGEST_S = 0.002
READS = ("get", "list", "find", "read", "run", "info", "open_calls", "verify", "requested", "load", "count", "is_")


class OutOfOrderStore:
    """A store whose parts are those of a SQLite store, behind delays."""

    def __init__(self, store: SQLiteStore, writes: Writes, *, seed: int = 0) -> None:
        self._store = store
        self._link = Link(writes, random.Random(seed))
        self.events: Any = OutOfOrderLog(store.events, self._link)

    def __getattr__(self, name: str) -> Any:
        """Return another part, or a method, which sees the events that were emitted before."""
        value = getattr(self._store, name)
        if inspect.iscoroutinefunction(value):
            return self._link.wrap(value, first=self.events.flush)
        if callable(value) or isinstance(value, str):
            return value
        # A request to cancel a run is for those who have it: it sees the runs that began before.
        first = self.events.flush if name == "cancels" else None
        vars(self)[name] = part = SlowPart(value, self._link, first)
        return part

    async def close(self) -> None:
        try:
            await self.events.flush()
        finally:
            await self._store.close()


class Writes:
    """Notifies the stores of a folder that one of them has written."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """Return a future that the next write completes."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Link:
    """The way to the database: every request takes a little time, and requests end in another order than they began."""

    def __init__(self, writes: Writes, delays: random.Random) -> None:
        self.writes = writes
        self._delays = delays

    async def delay(self) -> None:
        await asyncio.sleep(self._delays.random() * LONGEST_S)

    def wrap(
        self, method: Callable[..., Awaitable[Any]], first: Callable[[], Awaitable[None]] | None = None
    ) -> Callable[..., Awaitable[Any]]:
        async def slow(*args: Any, **options: Any) -> Any:
            if first is not None:
                await first()
            await self.delay()
            done = await method(*args, **options)
            if not method.__name__.startswith(READS):
                self.writes.notify()
            await self.delay()
            return done

        async def wait(*args: Any, timeout_s: float = 0.0, **options: Any) -> Any:
            deadline = None if timeout_s == math.inf else asyncio.get_running_loop().time() + timeout_s
            while True:
                written = self.writes.next()
                await self.delay()
                found = await method(*args, timeout_s=0, **options)
                if found != args[-1]:
                    return found
                try:
                    async with asyncio.timeout_at(deadline):
                        await written
                except TimeoutError:
                    return args[-1]

        return wait if method.__name__ == "wait" else slow


class SlowPart:
    """A part of a store, with slow methods."""

    def __init__(self, part: object, link: Link, first: Callable[[], Awaitable[None]] | None = None) -> None:
        self._part = part
        self._link = link
        self._first = first

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        return self._link.wrap(value, self._first) if inspect.iscoroutinefunction(value) else value


class OutOfOrderLog:
    """An event log that commits each run by itself, some later than others; reading waits for what was emitted."""

    def __init__(self, log: Any, link: Link) -> None:
        self._log = log
        self._link = link
        self._lock = threading.Lock()  # tools in threads report their progress
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, str], list[RunEvent]] = {}
        self._commits: set[asyncio.Task[None]] = set()

    def emit(self, event: RunEvent) -> None:
        self._queue(event)

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        self._queue(RunEvent(code, time.time(), call, facts))

    def _queue(self, event: RunEvent) -> None:
        run = (event.call.tenant, event.call.run_id)
        with self._lock:
            waiting = self._waiting.setdefault(run, [])
            waiting.append(event)
            is_first = len(waiting) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._start, run)

    def _start(self, run: tuple[str, str]) -> None:
        task = self._loop.create_task(self._commit(run))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit(self, run: tuple[str, str]) -> None:
        await self._link.delay()
        await self._link.delay()
        with self._lock:
            for event in self._waiting.pop(run, ()):
                self._log.emit(event)
        with suppress(StoreError):  # the one who waits for the events is told
            await self._log.flush()
        self._link.writes.notify()

    async def flush(self) -> None:
        while self._waiting:
            if self._commits:
                await asyncio.wait(self._commits)
            await asyncio.sleep(0)
        await self._log.flush()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._log, name)
        return self._link.wrap(value, first=self.flush) if inspect.iscoroutinefunction(value) else value


class OutOfOrderBackend:
    """The backend of the setting `database`."""

    seeds = itertools.count()
    writes: ClassVar[defaultdict[Path, Writes]] = defaultdict(Writes)

    async def open(self, options: StoreOptions) -> Store:
        assert options.data_dir is not None
        cipher = options.make_cipher(options.data_dir)
        return open_out_of_order(options.data_dir, cipher, clock=options.clock, limit=options.event_queue)

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        beneath = options._replace(database="sqlite")
        return SQLiteBackend().find_ids(beneath, kind, prefix, tenant=tenant, limit=limit)

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        return SQLiteBackend().check(options._replace(database="sqlite"))

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return SQLiteBackend().inspect(options._replace(database="sqlite"))


def open_out_of_order(
    folder: Path, cipher: Cipher | None = None, *, clock: Clock = SYSTEM_CLOCK, limit: int = 50_000
) -> Any:
    """Open the data of a folder, which may be open already."""
    beneath = open_sqlite_store(folder, cipher=cipher or FileCipher(folder / "key"), clock=clock, queue_limit=limit)
    writes = OutOfOrderBackend.writes[folder.resolve()]
    return OutOfOrderStore(beneath, writes, seed=next(OutOfOrderBackend.seeds))
