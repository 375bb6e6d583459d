"""The servers of this folder as sources and as processes."""

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests import warm
from toolpost import ExternalToolConfig

SERVERS = Path(__file__).with_name("servers")


def inquirer(*, protocol: str = "auto", env: dict[str, str] | None = None, **options: Any) -> ExternalToolConfig:
    """A source that asks back."""
    return ExternalToolConfig(
        name="srv",
        transport="mcp",
        connection=shlex.join(warm.command(SERVERS / "inquirer.py")),
        env=env or {},
        options={"protocol": protocol, **options},
    )


@contextlib.contextmanager
def mirror(*tokens: str) -> Iterator[str]:
    """A server over HTTP that shows what arrives; gives its address."""
    with warm.served(SERVERS / "mirror.py", TOKENS=" ".join(tokens)) as url:
        yield url


@contextlib.contextmanager
def guarded(issuer: str) -> Iterator[str]:
    """A server over HTTP that wants tokens of an issuer; gives its address."""
    with warm.served(SERVERS / "guarded.py", ISSUER=issuer) as url:
        yield url


async def until(holds: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Wait for something to come true."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
