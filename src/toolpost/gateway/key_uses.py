"""Write the last use of callers' keys to the store, once a minute instead of with each request."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from toolpost.contracts.storage import Store
    from toolpost.gateway.access import KeyUses

WRITE_EVERY_S = 60.0
_log = logging.getLogger("toolpost.gateway")


@asynccontextmanager
async def writing_uses(uses: KeyUses, store: Store) -> AsyncGenerator[None]:
    """Write the uses to the store while this is open, and at the end."""
    written: dict[str, float] = {}
    task = asyncio.get_running_loop().create_task(_write_regularly(uses, store, written))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await write_uses(uses, store, written)


async def write_uses(uses: KeyUses, store: Store, written: dict[str, float]) -> None:
    """Write the uses that are not in `written`, and add them to it; if the store fails, the next call writes them."""
    for key_id, at in uses.current().items():
        if written.get(key_id) == at:
            continue
        try:
            key = await store.caller_keys.find(key_id)
            if key is None:  # it was revoked
                uses.forget(key_id)
                continue
            await store.key_uses.save(key, at=at)
        except StoreError as error:
            _log.warning("the last use of keys waits for the store: %s", error)
            return
        written[key_id] = at


async def _write_regularly(uses: KeyUses, store: Store, written: dict[str, float]) -> None:
    while True:
        await asyncio.sleep(WRITE_EVERY_S)
        await write_uses(uses, store, written)


async def last_uses(store: Store, used: dict[str, float]) -> dict[str, float]:
    """Return the last use of each key, from the store and from `used`."""
    stored = await store.key_uses.list()
    return {key_id: max(used.get(key_id, 0.0), stored.get(key_id, 0.0)) for key_id in (used | dict(stored))}
