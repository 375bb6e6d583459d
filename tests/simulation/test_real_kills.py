"""Real processes are killed with SIGKILL at the commits of their store; `make prove` kills 500 on each database."""

from functools import partial

import pytest

from tests.postgres.databases import temporary_database
from tests.postgres.server import PostgreSQL
from tools.real_kills import Trial, run_trials

pytestmark = pytest.mark.programs
KILLS = 8


@pytest.mark.req("SCALE-22")
def test_killed_processes_lose_and_double_nothing_on_sqlite() -> None:
    check(list(run_trials(KILLS)))


@pytest.mark.req("SCALE-22")
def test_killed_processes_lose_and_double_nothing_on_postgresql(postgres: PostgreSQL) -> None:
    check(list(run_trials(KILLS, new_database=partial(temporary_database, postgres))))


def check(trials: list[Trial]) -> None:
    assert [trial.was_killed for trial in trials] == [True] * KILLS
    assert [trial.broken for trial in trials if trial.broken] == []
