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
    with _served("mirror.py", TOKENS=" ".join(tokens)) as url:
        yield url


@contextlib.contextmanager
def guarded(issuer: str) -> Iterator[str]:
    """A server over HTTP that wants tokens of an issuer; gives its address."""
    with _served("guarded.py", ISSUER=issuer) as url:
        yield url


@contextlib.contextmanager
def _served(program: str, **environment: str) -> Iterator[str]:
    command = [sys.executable, str(SERVERS / program)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
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
