"""Request the calls of schedules when they are due, once in all processes."""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError, ToolError
from toolpost.runtime.cron import Cron
from toolpost.runtime.jobs import call_job

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.contracts.clock import Clock
    from toolpost.contracts.jobs import Job, Schedule
    from toolpost.contracts.storage import Store

_log = logging.getLogger("toolpost.runtime")
_LOOK_S = 5.0
_MISSED_S = 60.0  # times that passed longer ago, while no process ran, are skipped


class ScheduleTicker:
    """Stores a job for each time of each schedule; its ID follows from both, so several processes store one job."""

    def __init__(self, store: Store, clock: Clock, enqueue: Callable[[Job], Awaitable[bool]]) -> None:
        self._store = store
        self._clock = clock
        self._enqueue = enqueue

    async def run(self) -> None:
        """Store jobs at their times; continue after errors of the store."""
        while True:
            wait_s = _LOOK_S
            try:
                wait_s = min(wait_s, await self.tick() - self._clock.wall())
            except StoreError as error:
                _log.warning("schedules cannot be read: %s", error)
            await asyncio.sleep(max(0.05, wait_s))

    async def tick(self) -> float:
        """Store the jobs that are due, and return the time of the next one."""
        now, following = self._clock.wall(), float("inf")
        for schedule in await self._store.schedules.list():
            cron = _parse(schedule)
            if cron is None:
                continue
            begin = max(schedule.created_at, schedule.last_at or 0.0, now - _MISSED_S)
            due = cron.next_after(begin)
            if due <= now:
                await self._request(schedule, due)
                due = cron.next_after(max(due, now))
            following = min(following, due)
        return following

    async def _request(self, schedule: Schedule, due: float) -> None:
        # The job first: a process that is killed in between leaves a time that another one requests again.
        try:
            await self._enqueue(scheduled_job(schedule, due))
        except StoreError:
            raise
        except ToolError as error:
            _log.warning("the schedule %s of %s is skipped: %s", schedule.name, schedule.principal, error)
        await self._store.schedules.tick(schedule.name, tenant=schedule.principal.tenant, at=due)


def scheduled_job(schedule: Schedule, due: float) -> Job:
    """Return the job of a time of a schedule."""
    tenant = schedule.principal.tenant
    named = sha256(f"{tenant}|{schedule.name}|{schedule.created_at}|{due:.0f}".encode()).hexdigest()
    return call_job(
        f"run_{named[:20]}",
        schedule.tool_name,
        dict(schedule.arguments),
        principal=schedule.principal,
        at=due,
        queue="runs",
    )


def _parse(schedule: Schedule) -> Cron | None:
    try:
        return Cron.parse(schedule.cron, schedule.timezone)
    except ToolError as error:  # such as a time zone that this machine does not know
        _log.warning("the schedule %s of %s is skipped: %s", schedule.name, schedule.principal, error)
        return None
