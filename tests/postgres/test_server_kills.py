"""A PostgreSQL server that is killed and started again while calls run."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import PartMissingError
from tests.postgres.server import NotStartedError, restartable
from toolpost import Completed, Toolbox, tool

pytestmark = pytest.mark.programs
CALLS, USER = 12, "acme:ann"


async def test_calls_continue_after_the_server_was_killed(tmp_path: Path) -> None:
    effects, running, killed = Counter[str](), asyncio.Event(), asyncio.Event()

    @tool(side_effects="write", replay="unsafe")
    async def send(key: str) -> str:
        """Send a message."""
        effects[key] += 1
        running.set()
        await killed.wait()
        return key

    async def repeated(box: Toolbox, key: str) -> str:
        while True:
            outcome = await box.call("send", {"key": key}, user=USER, idempotency_key=key)
            if isinstance(outcome, Completed):
                return str(outcome.content)
            await asyncio.sleep(0.05)

    async def kill_during_calls(kill_and_start: Callable[[], None]) -> None:
        await running.wait()
        await asyncio.to_thread(kill_and_start)
        killed.set()

    keys = [f"k{number}" for number in range(CALLS)]
    try:
        with restartable() as (server, kill_and_start):
            async with (
                asyncio.timeout(120),
                Toolbox(
                    tools=[send], settings={"database": server.url(), "data_dir": str(tmp_path), "lock": None}
                ) as box,
            ):
                killer = asyncio.create_task(kill_during_calls(kill_and_start))
                done = await asyncio.gather(*(repeated(box, key) for key in keys))
                await killer
                signs = await box.store.events.verify()
    except (PartMissingError, NotStartedError) as missing:
        pytest.skip(f"NOT TESTED against a real PostgreSQL: {missing}")

    assert done == keys
    assert effects == Counter(keys)
    assert signs == []
