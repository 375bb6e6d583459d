"""The calls that run now: their deadlines and their cancellation, on one loop timer for all of them."""

from __future__ import annotations

import asyncio
from typing import Literal

Stop = Literal["timeout", "cancelled"]
_NAG_S = 1.0  # a tool that swallowed the cancellation is told again after this long


class Flight:
    """One running call."""

    __slots__ = ("call_id", "deadline", "run_id", "stopped", "task", "tenant")

    def __init__(self, call_id: str, run_id: str, tenant: str, task: asyncio.Task[object], deadline: float) -> None:
        self.call_id = call_id
        self.run_id = run_id
        self.tenant = tenant
        self.task = task
        self.deadline = deadline
        self.stopped: Stop | None = None

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self.task.get_loop().time()

    def stop(self, why: Stop) -> None:
        """Cancel the call and remember why, so that its end can be told right."""
        if self.stopped is None:
            self.stopped = why
        self.task.cancel()


class InFlight:
    """All running calls of one Toolbox. A timer is armed only for the earliest deadline."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._flights)

    def enter(self, call_id: str, run_id: str, tenant: str, *, timeout_s: float) -> Flight:
        """Begin to watch the calling task."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - every coroutine runs in a task
        loop = task.get_loop()
        deadline = loop.time() + timeout_s
        flight = self._flights[call_id] = Flight(call_id, run_id, tenant, task, deadline)
        if deadline < self._armed_for:
            self._arm(loop, deadline)
        return flight

    def leave(self, flight: Flight) -> None:
        """Stop watching; the timer is left to find out by itself."""
        self._flights.pop(flight.call_id, None)

    def cancel(self, target_id: str, *, tenant: str | None = None) -> int:
        """Cancel a call, or every call of a run; says how many there were."""
        found = [f for f in self._flights.values() if target_id in (f.call_id, f.run_id)]
        mine = [f for f in found if tenant is None or f.tenant == tenant]
        for flight in mine:
            flight.stop("cancelled")
        return len(mine)

    def ids(self) -> list[str]:
        """The ids under which running calls can be cancelled."""
        return [an_id for f in self._flights.values() for an_id in (f.call_id, f.run_id)]

    def _arm(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = loop.call_at(when, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._timer, self._armed_for = None, float("inf")
        for flight in list(self._flights.values()):
            if flight.task.get_loop() is loop and flight.deadline <= now:
                flight.stop("timeout")
                flight.deadline = now + _NAG_S
        coming = [f.deadline for f in self._flights.values() if f.task.get_loop() is loop]
        if coming:
            self._arm(loop, min(coming))
