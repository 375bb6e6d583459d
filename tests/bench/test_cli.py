"""The benchmark of commands measures what it says; how fast anything is, no test asserts."""

import sys

import pytest

from bench.cli import calls, names
from bench.cli.tracks import TreeTrack, cpu_s
from bench.core.harness import Contender, Turn
from bench.mcp.scale import McpScale
from bench.mcp.seats import Sat

TINY = McpScale(rounds=1, calls=2, crowds=1, starts=1, tools=1, cycles=1)

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="CPU is read from /proc"), pytest.mark.slow]


def taken(us: float) -> calls.Taken:
    sat = Sat.of([Turn([us], us, us)] * 2)
    return calls.Taken(sat, sat)


@pytest.mark.programs
def test_commands_are_measured_beside_a_bare_subprocess() -> None:
    ticks: list[str] = []

    figure = calls.measure(TINY, ticks.append)

    rows = {row["name"]: row for row in figure.rows}
    assert tuple(rows) == names.ROWS
    assert rows[names.BARE]["of_bare"] == rows[names.BARE]["many_of_bare"] == 1
    assert len(ticks) == calls.count(TINY)


def test_a_box_in_memory_is_held_to_a_bare_subprocess() -> None:
    costs = dict.fromkeys(names.ROWS, 100.0) | {names.MEMORY: 130.0}

    figure = calls.figure({name: taken(us) for name, us in costs.items()})

    assert [target.value for target in figure.targets] == [1.3] * 4
    assert [target.met for target in figure.targets] == [False] * 4


async def test_the_cpu_of_a_turn_is_that_of_all_callers() -> None:
    async def burn() -> None:
        end = cpu_s() + 0.05
        while cpu_s() < end:
            pass

    turn = await TreeTrack([Contender(name="burns", call=burn)], callers=10).turn("burns", 1)

    assert 40_000 < turn.cpu_us < 200_000
