"""A worker that claims a pause and is killed: `python -m tests.postgres.claimants URL FOLDER LEASE_S TOKEN`."""

import asyncio
import sys
from pathlib import Path

from toolpost.auth.keys import FileCipher
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.postgres.store import open_postgres_store


async def main(url: str, folder: str, lease_s: str, token: str) -> None:
    home = Path(folder)
    async with open_postgres_store(url, home, cipher=FileCipher(home / "key"), lease_s=float(lease_s)) as store:
        claimed = await PlannerPauses(store.state).claim(token)
        await claimed.save({"step": 2})
        print("claimed", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
