"""Count events of the log into metrics, in the background of the gateway."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from toolpost.contracts.storage import Store

_log = logging.getLogger("toolpost.gateway")
_LOOK_S = 15.0
_GATHER_S = 1.0  # events of this time are counted together
_STORE_RETRY_S = 5.0
_STEP_PAUSE_S = 0.01  # between the steps of a long backlog: other writes come first


@asynccontextmanager
async def counting_metrics(store: Store) -> AsyncGenerator[None]:
    """Count events while this is open. Several processes may count: each event is counted once."""
    task = asyncio.get_running_loop().create_task(_count(store))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _count(store: Store) -> None:
    newest = 0
    while True:
        try:
            if await store.metrics.count():
                await asyncio.sleep(_STEP_PAUSE_S)
                continue
            newest = await store.events.wait(newest, timeout_s=_LOOK_S)
            await asyncio.sleep(_GATHER_S)
        except StoreError as error:
            _log.warning("metrics wait for the store: %s", error)
            await asyncio.sleep(_STORE_RETRY_S)
