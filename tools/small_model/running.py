"""The small model while it runs: started under a supervisor, ended with the block or with this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import start

_SERVER = Path(__file__).with_name("server.py")
_START_S = 60.0


@asynccontextmanager
async def small_model(python: Path) -> AsyncIterator[str]:
    """Start the server with the interpreter of its environment; yield the base URL of its API."""
    async with await start(Launch(argv=(str(python), str(_SERVER)), env=child_environment({}))) as process:
        async with asyncio.timeout(_START_S):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise RuntimeError(f"the model's server ended before it listened:\n{process.stderr_tail[-2000:]}")
        yield address
