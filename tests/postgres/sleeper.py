"""A process that is stopped between the intent and the result of a call: `sleeper.py URL FOLDER`."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from tests.postgres.stores import open_store
from toolpost.contracts.errors import StoreError
from toolpost.stores.postgres.store import PostgresStore
from toolpost.testing.stores.samples import intent


async def main(url: str, folder: Path) -> None:
    async with open_store(url, folder, lease_s=1.0) as store:
        await store.journal.begin(intent("call_old"))
        print("began", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            await store.journal.finish("call_old", "", "done")
        except StoreError:
            print("old call refused", flush=True)
        await call_anew(store)
        print("new call finished", flush=True)


async def call_anew(store: PostgresStore) -> None:
    """On a busy machine a lease of a second may end once more."""
    for _ in range(10):
        with suppress(StoreError):
            await store.journal.begin(intent("call_new"))
            await store.journal.finish("call_new", "", "done")
            return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
