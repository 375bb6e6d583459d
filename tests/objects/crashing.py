"""`python -m tests.objects.crashing STEP FOLDER PLACE`: store one content, and be killed at a step."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.objects.stores import open_store
from toolpost.stores.object_storage import Bucket
from toolpost.testing.stores.samples import artifact

CONTENT = b"content of a process that is killed " * 5_000


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_at(step: str, put: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def put_and_die(self: Bucket, name: str, data: bytes) -> None:
        if step == "before the upload":
            _die()
        if step == "during the upload":
            upload = asyncio.ensure_future(put(self, name, data))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(_die)
            await upload
        await put(self, name, data)
        if step == "after the upload":
            _die()

    return put_and_die


async def main(step: str, folder: Path, place: str) -> None:
    changed: Any = Bucket
    changed.put = _killed_at(step, Bucket.put)
    store = open_store(folder, place)
    await store.artifacts.put(CONTENT, artifact())
    _die()  # after the commit


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
