"""Real processes are killed with SIGKILL at the commits of their store; `make prove` kills 500 of them."""

import pytest

from tools.real_kills import run_trials

pytestmark = pytest.mark.programs


def test_killed_processes_lose_and_double_nothing() -> None:
    trials = list(run_trials(8))

    assert [trial.was_killed for trial in trials] == [True] * 8
    assert [trial.broken for trial in trials if trial.broken] == []
