"""The servers of this folder as sources and as processes."""

import asyncio
import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolpost import ExternalToolConfig

SERVERS = Path(__file__).with_name("servers")


def inquirer(*, protocol: str = "auto", env: dict[str, str] | None = None, **options: Any) -> ExternalToolConfig:
    """A source that asks back."""
    return ExternalToolConfig(
        name="srv",
        transport="mcp",
        connection=shlex.join([sys.executable, str(SERVERS / "inquirer.py")]),
        env=env or {},
        mcp={"protocol": protocol, **options},
    )


@contextlib.contextmanager
def mirror(*tokens: str) -> Iterator[str]:
    """A server over HTTP that shows what arrives; gives its address."""
    environment = {**os.environ, "TOKENS": " ".join(tokens)}
    command = [sys.executable, str(SERVERS / "mirror.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def until(holds: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
