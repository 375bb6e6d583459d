"""The writer thread: groups events and functions into transactions and completes the futures of their callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.contracts.storage import WriteHealth
from toolpost.stores.threads import DAEMON_THREADS, StoreThreads, Take, Wait, Work

T = TypeVar("T")
Connection = TypeVar("Connection")
LINGER_S = 0.01
MANY_WAITERS = 8
FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 2.0


class ItemResult(NamedTuple):
    """The result or the error for a future."""

    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def deliver(results: Iterable[ItemResult]) -> None:
    """Set the results of futures from any thread; each event loop is woken once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[ItemResult]] = defaultdict(list)
    for result in results:
        by_loop[result.future.get_loop()].append(result)
    for loop, its_results in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits
            loop.call_soon_threadsafe(_set_results, its_results)


def _set_results(results: list[ItemResult]) -> None:
    for future, result, error in results:
        if future.done():  # the waiting task was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class WriteFunction(Struct, frozen=True):
    """A function to run on the writer's connection, and the future of its result."""

    work: Callable[[Any], Any]
    future: asyncio.Future[Any]


class StatementKind(NamedTuple):
    """A statement that a database runs for many rows together; `read` turns the rows that it returns into the result.

    `row` returns those of the values that identify the row: statements about one row run in their order.
    """

    sql: str
    row: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    read: Callable[[list[tuple[Any, ...]]], Any] | None = None


class Statement(Struct, frozen=True):
    """The values of one execution of a statement, and the future of its result."""

    kind: StatementKind
    values: tuple[Any, ...]
    future: asyncio.Future[Any]


class Barrier(Struct, frozen=True):
    """A future that is done once all items before it are durable."""

    future: asyncio.Future[Any]


class Stop:
    """Wakes the writer thread to end it."""


Item: TypeAlias = RunEvent | WriteFunction | Statement | Barrier | Stop
WAITED_FOR = (WriteFunction, Statement, Barrier)


class Transactions(Protocol):
    """Runs batches as transactions on the only connection of a store that writes.

    `place` names the database in messages, and `limit` is the largest number of items of one transaction. While many
    callers wait, the writer collects items for `gather_s` before each transaction.
    """

    @property
    def place(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def gather_s(self) -> float: ...

    def commit(self, batch: Sequence[Item]) -> list[ItemResult]:
        """Commit a batch and return the results of its functions; if this raises, nothing of the batch is stored."""
        ...

    def explain(self, error: Exception) -> StoreError:
        """Turn an error of the database into one with advice."""
        ...

    def describe_fault(self, cause: BaseException | None) -> str:
        """Return a short reason why the database cannot be written, without its place."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Writer(Generic[Connection]):
    """Commits queued events and functions in order, all queued items in one transaction with one sync to disk.

    Events alone wait a few milliseconds for more events; a function waits only as long as `Transactions.gather_s`. If a
    transaction fails, its functions raise the error, and its events are retried without limit. No event is dropped.
    """

    def __init__(
        self,
        transactions: Transactions,
        *,
        limit: int,
        committed: Callable[[Sequence[Item]], None] = lambda _: None,
        threads: StoreThreads = DAEMON_THREADS,
    ) -> None:
        self._transactions = transactions
        self._committed = committed
        self._limit = limit
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._held: list[Item] = []
        self._in_hand = 0
        self._waited = 0  # callers of the last transaction
        self._error: StoreError | None = None
        self._failures = 0
        self._backoff_s = FIRST_BACKOFF_S
        self._drainers: deque[asyncio.Future[None]] = deque()
        self._urgent = threading.Event()
        self._stopping = threading.Event()
        self.put: Callable[[RunEvent], None] = self._queue.put
        self._thread = threads.start(self._run(), name="toolpost-writer", stop=self._stop)

    @property
    def waiting(self) -> int:
        """The number of items that are not yet durable; off by one while the writer takes an item."""
        while True:  # an item taken between the two reads would be counted twice
            in_hand = self._in_hand
            waiting = self._queue.qsize() + in_hand
            if in_hand == self._in_hand:
                return waiting

    @property
    def health(self) -> WriteHealth:
        """The result of the last transaction and the number of queued items, without the place of the database."""
        error = self._error
        reason = "" if error is None else self._transactions.describe_fault(error.__cause__)
        return WriteHealth(reason, self._failures, self.waiting)

    @property
    def congested(self) -> bool:
        """Whether more items are queued than the limit; may be true a moment too early."""
        return self._queue.qsize() + self._in_hand > self._limit

    async def submit(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the next transaction and return its result once it is durable."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result: T = await self._enqueue(WriteFunction(work, future))
        return result

    async def execute(self, kind: StatementKind, values: tuple[Any, ...]) -> Any:
        """Execute a statement in the next transaction and return its result once it is durable.

        For the statements of every call: a server runs all those of a kind in one step, and functions one by one.
        """
        return await self._enqueue(Statement(kind, values, asyncio.get_running_loop().create_future()))

    async def flush(self) -> None:
        """Wait until all items put so far are durable."""
        # Always through the queue: the writer may have taken an event without counting it yet.
        await self._enqueue(Barrier(asyncio.get_running_loop().create_future()))

    async def drain(self) -> None:
        """Wait until the queue is down to half of the limit."""
        while self.waiting > self._limit // 2:  # the writer may have released drainers just before
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drainers.append(future)
            self._urgent.set()
            self._release_drainers()  # the writer may have caught up, or failed, just before
            await future

    async def close(self) -> None:
        """Write the queue and end the thread; StoreError contains the number of events that could not be written."""
        if self._stopping.is_set():
            return
        self._stop()
        await self._thread.finished()
        newer = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        if lost := sum(isinstance(item, RunEvent) for item in (*self._held, *newer)):
            events = "1 event was" if lost == 1 else f"{lost} events were"
            advice = "the calls are not undone, so check their effects before you repeat them"
            raise StoreError(f"{events} not written: {self._error}; {advice}", cause=self._error)

    async def _enqueue(self, item: WriteFunction | Statement | Barrier) -> Any:
        if self._stopping.is_set():
            _refuse(self._transactions.place, item)
        self._queue.put(item)
        self._urgent.set()
        return await item.future

    def _run(self) -> Work:
        try:
            while True:
                batch = yield from self._take()
                self._write(batch)
                self._release_drainers()
                if self._stopping.is_set() and (self._error is not None or not self.waiting):
                    break
                if self._error is not None:
                    yield Wait(self._stopping, self._backoff_s)
                    self._backoff_s = min(self._backoff_s * 2, LAST_BACKOFF_S)
        finally:
            self._transactions.close()

    def _take(self) -> Generator[Take | Wait, Any, list[Item]]:
        """Return the next batch: events of a failed transaction, else the queue; block while it is empty."""
        limit = self._transactions.limit
        batch = self._held[:limit]
        del self._held[:limit]
        if not batch:
            batch = [(yield Take(self._queue))]
            if self._queue.qsize() < limit:
                yield Wait(self._urgent, LINGER_S)
                if self._waited >= MANY_WAITERS and self._transactions.gather_s:
                    yield Wait(self._stopping, self._transactions.gather_s)
        self._urgent.clear()
        self._in_hand = len(self._held) + len(batch)
        take = self._queue.get_nowait
        for _ in range(min(self._queue.qsize(), limit - len(batch))):
            self._in_hand += 1
            batch.append(take())
        return batch

    def _write(self, batch: list[Item]) -> None:
        try:
            results = self._transactions.commit(batch)
        except Exception as exc:  # noqa: BLE001 - after any error the events are retried
            self._requeue(batch, self._transactions.explain(exc))
            return
        self._error, self._backoff_s = None, FIRST_BACKOFF_S
        self._in_hand = len(self._held)
        self._waited = len(results)
        deliver(results)
        self._committed(batch)

    def _requeue(self, batch: list[Item], error: StoreError) -> None:
        """Keep the events of a failed transaction for a retry, and fail its functions."""
        self._error = error
        self._failures += 1
        newer = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        items = [*batch, *self._held, *newer]
        self._held = [item for item in items if isinstance(item, RunEvent)]
        self._in_hand = len(self._held)
        deliver(ItemResult(item.future, error=_copy_error(error)) for item in items if isinstance(item, WAITED_FOR))

    def _release_drainers(self) -> None:
        error = self._error
        if error is None and self.waiting > self._limit // 2:
            return
        with contextlib.suppress(IndexError):  # two threads may empty it concurrently
            while True:
                deliver([ItemResult(self._drainers.popleft(), error=error and _copy_error(error))])

    def _stop(self) -> None:
        self._stopping.set()
        self.put = partial(_refuse, self._transactions.place)
        self._queue.put(Stop())
        self._urgent.set()


def _refuse(place: str, _: object) -> NoReturn:
    raise StoreError(f"the store at {place!r} is closed; open it again to continue")


def _copy_error(error: StoreError) -> StoreError:
    """Copy an error: each waiter raises a separate object."""
    return StoreError(error.message, cause=error.__cause__)
