"""The UTCP benchmark measures what it says; how fast anything is, no test asserts."""

import asyncio

import pytest

from bench.core.harness import Turn
from bench.http.calls import Taken
from bench.http.endpoint import serving
from bench.http.names import UTCP as UTCP_HTTP
from bench.http.own import through
from bench.mcp.endpoint import ARGUMENTS
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, Sat
from bench.utcp import calls, names
from bench.utcp.own import settings
from toolpost.contracts.outcomes import Completed
from toolpost.toolbox.box import Toolbox

pytestmark = pytest.mark.slow

TINY = McpScale(rounds=1, calls=2, crowds=1, starts=1, tools=1, cycles=1)


def taken(us: float) -> Taken:
    sat = Sat.of([Turn([us], us, us)] * 2)
    return Taken(sat, sat)


@pytest.mark.programs
def test_calls_are_measured_beside_the_floor_and_the_same_operation_by_its_document() -> None:
    ticks: list[str] = []

    figure = calls.measure(TINY, ticks.append, peers=False)

    rows = {row["name"]: row for row in figure.rows}
    assert tuple(rows) == names.OWN
    assert rows[names.FLOOR]["of_floor"] == rows[names.OPENAPI]["of_openapi"] == 1
    assert len(figure.targets) == 2
    assert len(ticks) == calls.count(TINY, peers=False)


def test_a_tool_of_a_manual_is_held_to_one_of_a_document_and_to_its_peer() -> None:
    costs = dict.fromkeys(names.ROWS, 100.0) | {names.UTCP: 200.0, UTCP_HTTP: 600.0}

    figure = calls.figure({name: taken(us) for name, us in costs.items()})

    assert [target.value for target in figure.targets] == [2, 0.5, 3, 3]
    assert [target.met for target in figure.targets] == [False, False, True, True]


@pytest.mark.programs
async def test_a_box_calls_the_tool_as_often_at_once_as_a_crowd_does() -> None:
    with serving() as url:
        async with asyncio.timeout(100), Toolbox(settings=settings(url, None)) as box:
            call = through(box)
            said = await asyncio.gather(*(call() for _ in range(USUAL.callers)))

    assert all(isinstance(outcome, Completed) and ARGUMENTS["message"] in str(outcome.content) for outcome in said)
