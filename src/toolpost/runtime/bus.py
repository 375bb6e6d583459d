"""The event bus: tells subscribers in this process what happens to calls."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.contracts.events import EventCode, RunEvent
    from toolpost.contracts.storage import EventSink

_log = logging.getLogger("toolpost.events")


class EventBus:
    """Hands each event to whoever subscribed to its code, or to all codes (None).

    A subscriber that raises is logged and does not disturb the call or the others.
    """

    def __init__(self, *, keep_history: bool = False) -> None:
        self._handlers: list[tuple[EventCode | None, Callable[[RunEvent], None]]] = []
        self.history: list[RunEvent] = []
        self._keep_history = keep_history

    def subscribe(self, code: EventCode | None, handler: Callable[[RunEvent], None]) -> Callable[[], None]:
        """Be told of events; call what is returned to be told no more.

        The handler is a plain function and returns at once. It is called on the event loop, but for the progress of a
        plain function, which is told from its worker thread: hand that on with `loop.call_soon_threadsafe`.
        """
        subscription = (code, handler)
        self._handlers.append(subscription)
        return lambda: self._handlers.remove(subscription)

    def emit(self, event: RunEvent) -> None:
        """Tell everyone who wants to know."""
        if self._keep_history:
            self.history.append(event)
        for code, handler in tuple(self._handlers):
            if code is None or code == event.code:
                _tell(handler, event)


def fan_out(sinks: Sequence[EventSink]) -> Callable[[RunEvent], None]:
    """One function that emits to every sink; the first must be the log, whose failure is the caller's to know."""
    if len(sinks) == 1:
        return sinks[0].emit
    first, others = sinks[0].emit, [sink.emit for sink in sinks[1:]]

    def emit(event: RunEvent) -> None:
        first(event)
        for other in others:
            _tell(other, event)

    return emit


def _tell(handler: Callable[[RunEvent], None], event: RunEvent) -> None:
    try:
        handler(event)
    except Exception:  # noqa: BLE001 - foreign code; one subscriber must not disturb the others
        _log.exception("an event subscriber failed on %s", event.code.name)
