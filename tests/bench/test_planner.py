"""The benchmark of the planner measures what it says; how fast anything is, no test asserts."""

import pytest

from bench.core.harness import Measured
from bench.planner import crowd, resume, step
from bench.planner.names import LANGGRAPH, OURS, SQLITE
from bench.planner.scale import PlannerScale

pytestmark = pytest.mark.slow

TINY = PlannerScale(rounds=1, runs=1, at_once=5, steps=3, resumed=1)


def test_a_step_of_each_contender_is_measured() -> None:
    ticks: list[str] = []

    figure = step.measure(TINY, ticks.append)

    assert [row["name"] for row in figure.rows] == [OURS, SQLITE]
    assert len(figure.targets) == 1
    assert len(ticks) == step.count(TINY, peers=0)


def test_a_peer_that_is_faster_is_a_miss() -> None:
    ours, peer = (Measured(us, us, us, us, us, (us,)) for us in (11_000.0, 5_500.0))

    figure = step.figure({OURS: ours, LANGGRAPH: peer})

    assert [(target.value, target.met) for target in figure.targets] == [(1000.0, False), (2.0, False)]
    assert [row["step_us"] for row in figure.rows] == [1000.0, 500.0]


def test_runs_at_once_hold_more_than_their_messages() -> None:
    ticks: list[str] = []

    (row,) = crowd.measure(TINY, ticks.append).rows

    assert (row["runs"], len(ticks)) == (5, crowd.count(TINY))
    assert row["messages_kb"] > 1
    assert row["beyond_kb"] > 0


def test_a_long_run_continues() -> None:
    ticks: list[str] = []

    figure = resume.measure(TINY, ticks.append)

    assert figure.rows[0]["steps"] == 3
    assert len(ticks) == resume.count(TINY)
