"""Waits for the answers to the questions of suspended tasks."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError
from toolpost.runtime.failures import failure_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.agents.tasks import Task
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.storage import PendingStore

_log = logging.getLogger("toolpost.agents")
_FIRST_LOOK_S, _LAST_LOOK_S = 0.1, 10.0
_RETRY_S = 1.0


class AnswerWatch:
    """Takes the answers to questions of `suspended` tasks, given in any process; one coroutine does this for all."""

    def __init__(
        self,
        pending: PendingStore,
        *,
        suspended: Callable[[], list[Task]],
        take: Callable[[Task], Awaitable[None]],
        fail: Callable[[Task, ToolError], None],
    ) -> None:
        self._pending = pending
        self._suspended = suspended
        self._take = take
        self._fail = fail
        self._has_more = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def add(self) -> None:
        """Wait also for the questions of a task that was suspended just now."""
        self._has_more.set()
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop waiting."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _watch(self) -> None:
        known, look_s = None, _FIRST_LOOK_S
        while True:
            self._has_more.clear()
            suspended = self._suspended()
            ids = sorted({one.pending_id for task in suspended for one in task.waiting if one.pending_id})
            try:
                before, known = known, await self._wait_for_change(ids, known, timeout_s=look_s)
                # Checked again soon after a change: a call that waited for the answered one resumes first.
                look_s = min(look_s * 2, _LAST_LOOK_S) if known is before else _FIRST_LOOK_S
            except StoreError as error:
                _log.warning("the answers of tasks cannot be read: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            for task in suspended:
                await self._take_of(task)

    async def _take_of(self, task: Task) -> None:
        """Take the answers of one task; if the store fails, the next look takes them."""
        try:
            await self._take(task)
        except StoreError as error:
            _log.warning("the answers of task %s cannot be read: %s", task.id, error)
        except Exception as raised:  # noqa: BLE001 - after any defect one task ends, not all
            self._fail(task, failure_of(raised, ""))

    async def _wait_for_change(self, ids: Sequence[str], known: object, *, timeout_s: float) -> object:
        """Wait until a question is answered, or another task is suspended."""
        loop = asyncio.get_running_loop()
        more = loop.create_task(self._has_more.wait())
        waits: set[asyncio.Task[Any]] = {more}
        changed: asyncio.Task[object] | None = None
        if ids:
            changed = loop.create_task(self._pending.wait(ids, known, timeout_s=timeout_s))
        try:
            if changed is not None:
                waits.add(changed)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return changed.result() if changed is not None and changed.done() else None
        finally:
            for one in waits:
                one.cancel()
