"""Other processes with the same limits: `limit_children.py DEED PLACE`; the place is a data folder or a URL."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.warm import Program
from toolpost.auth.keys import FileCipher
from toolpost.contracts.limits import Rate
from toolpost.contracts.storage import Store
from toolpost.stores.encryption import NoCipher
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.stores.sqlite.store import open_sqlite_store

RATE = Rate(interval_s=0.005, burst=20)
SECONDS = 1.0
LEASE_S = 1.0


@contextmanager
def child(deed: str, place: str) -> Iterator[Program]:
    """Another process; killed if it is still running at the end."""
    with Program(Path(__file__), deed, place) as process:
        try:
            yield process
        finally:
            process.kill()


async def open_place(place: str) -> Store:
    """Open the store of a data folder or a URL."""
    if not place.startswith("postgresql:"):
        return open_sqlite_store(Path(place), cipher=FileCipher(Path(place) / "key"))
    folder = Path(tempfile.gettempdir())
    return open_postgres_store(place, folder, cipher=NoCipher(), lease_s=LEASE_S)


async def take(store: Store) -> None:
    """Take as many tokens as there are for a second; print their number, and the times around."""
    print("ready", flush=True)
    sys.stdin.readline()
    taken, began = 0, time.monotonic()
    while time.monotonic() < began + SECONDS:
        wait_s = await store.limits.take("requests", RATE)
        taken += not wait_s
        await asyncio.sleep(wait_s)
    print(json.dumps([taken, began, time.monotonic()]), flush=True)


async def hold(store: Store) -> None:
    """Take two slots, and keep them."""
    print([await store.limits.enter("x", 2) for _ in range(3)], flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def main(deed: str, place: str) -> None:
    deeds: dict[str, Callable[[Store], Awaitable[None]]] = {"take": take, "hold": hold}
    store = await open_place(place)
    await deeds[deed](store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
