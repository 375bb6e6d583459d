"""The benchmark of accounts measures what it says; how fast anything is, no test asserts."""

import pytest

from bench.mcp.scale import McpScale
from bench.oauth import expiries, flow
from bench.oauth.flow import STEPS, Spent

pytestmark = pytest.mark.slow

TINY = McpScale(rounds=1, calls=2, crowds=1, starts=1, tools=1, cycles=5)


def test_people_sign_in_and_their_calls_finish() -> None:
    ticks: list[str] = []

    figure = flow.measure(TINY, ticks.append)

    assert [row["name"] for row in figure.rows] == [*STEPS, "all of it"]
    assert len(ticks) == flow.count(TINY)


def test_the_slowest_flow_counts() -> None:
    quick, slow = Spent(0.1, 0.1), Spent(1.0, 0.2)

    figure = flow.figure([(quick, quick, quick), (quick, quick, quick), (slow, slow, slow)])

    assert round(figure.rows[-1]["median_ms"]) == 300
    assert [(target.value, target.met) for target in figure.targets] == [(3.0, False)]


@pytest.mark.programs
def test_processes_renew_once_for_each_expiry() -> None:
    ticks: list[str] = []

    figure = expiries.measure(TINY, ticks.append)

    (row,) = figure.rows
    assert (row["refreshes"], row["invalid_grant"], row["finished"]) == (TINY.cycles, 0, expiries.PROCESSES)
    assert all(target.met for target in figure.targets)
    assert len(ticks) == expiries.count(TINY)


def test_one_refresh_too_many_is_a_miss() -> None:
    counted = {"refreshes": 6, "invalid_grant": 1, "early": 0, "generation": 5, "finished": 8}

    figure = expiries.figure(counted, expiries=5, took_s=1.0)

    assert [target.met for target in figure.targets] == [False, True, False, True]
