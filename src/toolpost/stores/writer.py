"""The writer thread: groups events and functions into transactions and answers those who wait for them."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import sqlite3
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.stores.database import FAULTS, store_error
from toolpost.stores.event_appender import EventAppender


class Reply(NamedTuple):
    """What to tell the one who waits: a result or an error."""

    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def send(replies: Iterable[Reply]) -> None:
    """Answer from any thread; each loop is woken once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Reply]] = defaultdict(list)
    for reply in replies:
        by_loop[reply.future.get_loop()].append(reply)
    for loop, its_replies in by_loop.items():
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(_deliver, its_replies)


def _deliver(replies: list[Reply]) -> None:
    for future, result, error in replies:
        if future.done():  # The one who waited was cancelled.
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class Job(NamedTuple):
    """A function to run on the writer's connection, and the one who waits for it."""

    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Barrier(NamedTuple):
    """One who waits for all that was put before; nothing by itself."""

    future: asyncio.Future[Any]


class Stop(NamedTuple):
    """Wakes the writer so that it sees that it should end."""


Item: TypeAlias = RunEvent | Job | Barrier | Stop


class Transactor:
    """Turns batches into transactions on the one connection that writes."""

    def __init__(self, db: sqlite3.Connection, appender: EventAppender, *, path: Path) -> None:
        self._db = db
        self._appender = appender
        self.path = path

    def commit(self, batch: Sequence[Item]) -> list[Reply]:
        """Make a batch durable and say what came of its functions; when this raises, nothing of it was kept."""
        if not any(isinstance(item, RunEvent | Job) for item in batch):
            return self._play(batch)
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            self._appender.begin(db)
            replies = self._play(batch)
            self._appender.finish(db)
            db.execute("COMMIT")
        except BaseException:
            self._appender.forget()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return replies

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    def _play(self, batch: Sequence[Item]) -> list[Reply]:
        """Everything in the order in which it was put."""
        replies: list[Reply] = []
        events: list[RunEvent] = []
        for item in batch:
            if isinstance(item, RunEvent):
                events.append(item)
            elif isinstance(item, Job):
                self._append(events)
                events = []
                replies.append(self._attempt(item))
            elif isinstance(item, Barrier):
                replies.append(Reply(item.future))
        self._append(events)
        return replies

    def _append(self, events: list[RunEvent]) -> None:
        if events:
            self._appender.append(self._db, events)

    def _attempt(self, job: Job) -> Reply:
        db = self._db
        db.execute("SAVEPOINT job")
        try:
            result = job.work(db)
        except Exception as exc:
            if not db.in_transaction:  # SQLite gave up the whole transaction, as it may when the disk is full.
                raise
            db.execute("ROLLBACK TO job")
            db.execute("RELEASE job")
            return Reply(job.future, error=store_error(exc, self.path) if isinstance(exc, FAULTS) else exc)
        db.execute("RELEASE job")
        return Reply(job.future, result)


T = TypeVar("T")

BATCH = 16_384
LINGER_S = 0.005
FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 2.0
EXIT_PATIENCE_S = 10.0


class Writer:
    """Groups what waits into transactions, in the order it came; one sync to disk for each.

    Events alone may wait a few milliseconds for company; a function never does.
    When a transaction fails its functions are told, its events are kept and tried
    again for ever. Nothing that was put is dropped.
    """

    def __init__(self, transactor: Transactor, *, limit: int) -> None:
        self._transactor = transactor
        self._limit = limit
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._held: list[Item] = []
        self._in_hand = 0
        self._trouble: StoreError | None = None
        self._backoff_s = FIRST_BACKOFF_S
        self._drainers: deque[asyncio.Future[None]] = deque()
        self._urgent = threading.Event()
        self._stopping = threading.Event()
        self.put: Callable[[RunEvent], None] = self._queue.put
        self._thread = threading.Thread(target=self._run, name="toolpost-writer", daemon=True)
        self._thread.start()
        atexit.register(self._stop_at_exit)

    @property
    def waiting(self) -> int:
        """How much was put and is not yet durable, but for one that the writer may just be taking."""
        while True:  # What the writer takes between the two looks would be counted twice.
            in_hand = self._in_hand
            waiting = self._queue.qsize() + in_hand
            if in_hand == self._in_hand:
                return waiting

    @property
    def congested(self) -> bool:
        """Whether more waits than the limit; sometimes a moment too early, which costs one look more."""
        return self._queue.qsize() + self._in_hand > self._limit

    async def submit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` within the next transaction; returns when that is durable."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result: T = await self._reply_to(Job(work, future))
        return result

    async def flush(self) -> None:
        """Wait until all that was put is durable.

        Always by going through the queue: the writer may hold an event that it has
        taken and not yet counted.
        """
        await self._reply_to(Barrier(asyncio.get_running_loop().create_future()))

    async def drain(self) -> None:
        """Wait until at most half of the limit waits."""
        while self.waiting > self._limit // 2:  # Again, because the writer may have looked before this one came.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drainers.append(future)
            self._urgent.set()
            self._answer_drainers()  # The writer may have caught up, or failed, just before it could see this one.
            await future

    async def close(self) -> None:
        """Write what waits and end; StoreError says how many events could not be written."""
        if self._stopping.is_set():
            return
        self._stop()
        await asyncio.to_thread(self._thread.join)
        newer = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        if lost := sum(isinstance(item, RunEvent) for item in (*self._held, *newer)):
            raise StoreError(f"{lost} events were not written: {self._trouble}", cause=self._trouble)

    async def _reply_to(self, item: Job | Barrier) -> Any:
        if self._stopping.is_set():
            _refuse(self._transactor.path, item)
        self._queue.put(item)
        self._urgent.set()
        return await item.future

    def _run(self) -> None:
        while True:
            self._write(self._take())
            self._answer_drainers()
            if self._stopping.is_set() and (self._trouble is not None or not self.waiting):
                break
            if self._trouble is not None:
                self._stopping.wait(self._backoff_s)
                self._backoff_s = min(self._backoff_s * 2, LAST_BACKOFF_S)
        self._transactor.close()

    def _take(self) -> list[Item]:
        """The next batch: what an earlier failure left, else what waits; sleeps while nothing does."""
        batch = self._held[:BATCH]
        del self._held[:BATCH]
        if not batch:
            batch = [self._queue.get()]
            if self._queue.qsize() < BATCH:
                self._urgent.wait(LINGER_S)
        self._urgent.clear()
        self._in_hand = len(self._held) + len(batch)
        for _ in range(min(self._queue.qsize(), BATCH - len(batch))):
            self._in_hand += 1
            batch.append(self._queue.get_nowait())
        return batch

    def _write(self, batch: list[Item]) -> None:
        try:
            replies = self._transactor.commit(batch)
        except Exception as exc:  # noqa: BLE001 - whatever it was, nothing is lost and it is tried again
            self._keep(batch, store_error(exc, self._transactor.path))
            return
        self._trouble, self._backoff_s = None, FIRST_BACKOFF_S
        self._in_hand = len(self._held)
        send(replies)

    def _keep(self, batch: list[Item], trouble: StoreError) -> None:
        """After a failed transaction: keep the events for another try, tell the functions."""
        self._trouble = trouble
        newer = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        items = [*batch, *self._held, *newer]
        self._held = [item for item in items if isinstance(item, RunEvent)]
        self._in_hand = len(self._held)
        send(Reply(item.future, error=_again(trouble)) for item in items if isinstance(item, Job | Barrier))

    def _answer_drainers(self) -> None:
        trouble = self._trouble
        if trouble is None and self.waiting > self._limit // 2:
            return
        with contextlib.suppress(IndexError):  # Two threads may empty it at once.
            while True:
                send([Reply(self._drainers.popleft(), error=trouble and _again(trouble))])

    def _stop(self) -> None:
        self._stopping.set()
        self.put = partial(_refuse, self._transactor.path)
        self._queue.put(Stop())
        self._urgent.set()
        atexit.unregister(self._stop_at_exit)

    def _stop_at_exit(self) -> None:
        """A program that ends without closing its store still gets its events written."""
        self._stop()
        self._thread.join(EXIT_PATIENCE_S)


def _refuse(path: Path, _: object) -> NoReturn:
    raise StoreError(f"the store at {str(path)!r} is closed; open it again to go on")


def _again(error: StoreError) -> StoreError:
    """The same error as an object of its own: each waiter raises one."""
    return StoreError(error.message, cause=error.__cause__)
