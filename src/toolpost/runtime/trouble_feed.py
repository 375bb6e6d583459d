"""Background task that applies the breakers and gates that other processes have changed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.limits import LimitStore, Troubles

_POLL_S = 1.0  # the longest wait for a notification; a store that has none returns earlier
_OVERLAP_S = 2.0  # a change may be committed after a later one


class TroubleFeed:
    """Reads the changes of a store in one task a process, and passes them to `apply` with the time of the reading."""

    def __init__(
        self, limits: LimitStore, apply: Callable[[Troubles, float], None], clock: Callable[[], float]
    ) -> None:
        self._limits = limits
        self._apply = apply
        self._now = clock
        self._read_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the breakers and gates of other processes, and follow their changes in the background."""
        if self._limits.is_shared:
            with suppress(StoreError):
                await self._read()
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        while True:
            try:
                await self._limits.trouble_reported(timeout_s=_POLL_S)
                await self._read()
            except StoreError:  # the breakers continue with the state that this process knows
                await asyncio.sleep(_POLL_S)

    async def _read(self) -> None:
        began = self._now()
        within_s = None if self._read_at is None else began - self._read_at + _OVERLAP_S
        self._apply(await self._limits.read_troubles(within_s=within_s), began)
        self._read_at = began
