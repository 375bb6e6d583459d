"""The HTTP benchmark measures what it says; how fast anything is, no test asserts."""

import asyncio
import subprocess
import sys

import pytest

from bench.core.harness import Turn
from bench.http import calls, names
from bench.http.endpoint import serving
from bench.http.floor import raw_api
from bench.http.own import MAX_CONCURRENCY, settings, through
from bench.http.server import DOCUMENT, ECHO, document
from bench.mcp.endpoint import ARGUMENTS, ROOT
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, Sat
from toolpost.contracts.outcomes import Completed
from toolpost.toolbox.box import Toolbox

pytestmark = pytest.mark.slow

TINY = McpScale(rounds=1, calls=2, crowds=1, starts=1, tools=1, cycles=1)


def taken(us: float) -> calls.Taken:
    sat = Sat.of([Turn([us], us, us)] * 2)
    return calls.Taken(sat, sat)


@pytest.mark.programs
def test_calls_are_measured_beside_the_floor_and_bare_clients() -> None:
    ticks: list[str] = []

    figure = calls.measure(TINY, ticks.append, peers=False)

    rows = {row["name"]: row for row in figure.rows}
    assert tuple(rows) == names.OWN
    assert rows[names.FLOOR]["of_floor"] == rows[names.AIOHTTP]["of_aiohttp"] == 1
    assert [target.limit for target in figure.targets] == [calls.OF_AIOHTTP, calls.CALLS_OF_AIOHTTP]
    assert len(ticks) == calls.count(TINY, peers=False)


def test_a_box_in_memory_is_held_to_aiohttp_and_to_its_peers() -> None:
    costs = dict.fromkeys(names.ROWS, 100.0) | {names.MEMORY: 200.0, names.UTCP: 600.0, names.FASTMCP: 150.0}

    figure = calls.figure({name: taken(us) for name, us in costs.items()})

    assert [target.value for target in figure.targets] == [2, 0.5, 3, 3, 0.75, 0.75]
    assert [target.met for target in figure.targets] == [False, False, True, True, False, False]


def test_a_crowd_counts_with_what_it_leaves_to_settle() -> None:
    settled = calls.whole(Turn([1.0], 3.0, 2.0))

    assert settled == Turn([3.0], 3.0, 2.0)


@pytest.mark.programs
async def test_the_server_echoes_by_hand_and_describes_itself() -> None:
    with serving() as url:
        async with asyncio.timeout(100), raw_api(url) as api:
            assert await api.get(f"/{ECHO}", ARGUMENTS) == ARGUMENTS
            assert await api.get(DOCUMENT, {}) == document(url)
            assert await api.get("/elsewhere", {}) == {}


@pytest.mark.programs
async def test_a_box_calls_the_operation_as_often_at_once_as_a_crowd_does() -> None:
    with serving() as url:
        async with asyncio.timeout(100), Toolbox(settings=settings(url, None)) as box:
            call = through(box)
            said = await asyncio.gather(*(call() for _ in range(USUAL.callers)))

    assert all(isinstance(outcome, Completed) and ARGUMENTS["message"] in str(outcome.content) for outcome in said)
    assert USUAL.callers <= MAX_CONCURRENCY


@pytest.mark.programs
def test_the_server_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "bench.http.server"]

    done = subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, timeout=100, check=True)

    assert done.stdout.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("name", names.ROWS)
def test_a_floor_stands_in_every_process(name: str) -> None:
    assert names.floor_of(name) == (names.FLOOR if name in names.OWN else names.FLOOR_PEERS)
