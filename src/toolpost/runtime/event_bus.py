"""Deliver events to sinks, and to the subscribers of an EventBus."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from toolpost.contracts.clock import Clock
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.storage import EventRecorder, EventSink
from toolpost.runtime.concurrency import BackgroundTasks

Emit: TypeAlias = Callable[[CallRef, EventCode, Mapping[str, Any]], None]  # an event of a call, with its facts
Handler = Callable[[RunEvent], Awaitable[None] | None]

_log = logging.getLogger("toolpost.events")
_PATIENCE_S = 5.0


class EventBus:
    """Event sink that passes each event to the subscribers of its code, or of all codes (None).

    Events are delivered immediately. Inside `async with bus`, they are queued until the next event loop iteration and
    delivered by priority, lowest number first, then in order of arrival. If a subscriber raises, the exception is
    logged; the call and the other subscribers are not affected.
    """

    def __init__(self, *, keep_history: bool = False) -> None:
        self.history: list[RunEvent] = []
        self._handlers: list[tuple[EventCode | None, Handler]] = []
        self._keep_history = keep_history
        self._queue = EventQueue()
        self._background = BackgroundTasks()
        self._loop: asyncio.AbstractEventLoop | None = None

    def subscribe(self, code: EventCode | None, handler: Handler) -> Callable[[], None]:
        """Call `handler` for every event of a code. Return a function that unsubscribes.

        A plain function must not block; a coroutine runs in the background. The handler is called on the event loop.
        The exception is the progress of a plain function outside `async with bus`, which comes from its worker thread:
        forward it with `loop.call_soon_threadsafe`.
        """
        subscription = (code, handler)
        self._handlers.append(subscription)
        return lambda: self._handlers.remove(subscription)

    def emit(self, event: RunEvent) -> None:
        """Deliver an event to its subscribers, or queue it inside `async with bus`."""
        loop = self._loop
        if loop is None:
            self._deliver(event)
        elif _is_current(loop):
            self._enqueue(event)
        else:
            loop.call_soon_threadsafe(self._enqueue, event)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None
        self._deliver_queued()
        await self._background.finish(patience_s=_PATIENCE_S)

    def _enqueue(self, event: RunEvent) -> None:
        if not self._queue and self._loop is not None:
            self._loop.call_soon(self._deliver_queued)
        self._queue.put(event)

    def _deliver_queued(self) -> None:
        while self._queue:
            self._deliver(self._queue.get())

    def _deliver(self, event: RunEvent) -> None:
        if self._keep_history:
            self.history.append(event)
        for code, handler in tuple(self._handlers):
            if code is None or code == event.code:
                name = f"an event subscriber failed on {event.code.name}"
                self._background.notify(handler, event, log=_log, name=name)


class EventQueue:
    """Queued events, by priority and then in order of arrival."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, RunEvent]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, event: RunEvent) -> None:
        """Add an event."""
        heapq.heappush(self._heap, (event.priority, next(self._count), event))

    def get(self) -> RunEvent:
        """Remove and return the event with the lowest priority; IndexError without events."""
        return heapq.heappop(self._heap)[2]


def fan_out(sinks: Sequence[EventSink], clock: Clock) -> Emit:
    """Return one function that emits to every sink; the first must be the log, whose errors reach the caller."""
    log = sinks[0]
    if len(sinks) == 1 and isinstance(log, EventRecorder):
        return log.record
    first, others, now = log.emit, [sink.emit for sink in sinks[1:]], clock.wall

    def emit(call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        event = RunEvent(code, now(), call, facts)
        first(event)
        for other in others:
            try:
                other(event)
            except Exception:  # noqa: BLE001 - foreign code; one sink must not affect the others
                _log.exception("an event sink failed on %s", event.code.name)

    return emit


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
