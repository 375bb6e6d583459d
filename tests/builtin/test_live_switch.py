"""Real providers are asked only when somebody says so, and then at the rate that they have."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builtin.pages import allowed, provider
from tests.builtin.rates import Clock, OneASecond, searched_at_their_rate
from tests.builtin.recorded import KEY
from toolpost.builtin.providers.factory import build_search_chain

ROOT = Path(__file__).parent.parent.parent
LIVE = "tests/builtin/test_live_providers.py"
# Says of each test what its conditions come to, and runs none.
COLLECT = """
import pytest, sys
class Told:
    def pytest_collection_finish(self, session):
        for item in session.items:
            skipped = any(mark.args[0] for mark in item.iter_markers("skipif"))
            print("told", "skipped" if skipped else "runs", item.originalname)
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Told()]))
"""


def output_of(*command: str, **environment: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLPOST_", "PYTEST_"))}
    done = subprocess.run(
        command, cwd=ROOT, env={**env, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def collected(**environment: str) -> dict[str, str]:
    lines = [line.split() for line in output_of(sys.executable, "-c", COLLECT, LIVE, **environment).splitlines()]
    return {line[2]: line[1] for line in lines if line[:1] == ["told"]}


@pytest.mark.req("TEST-14")
def test_the_live_workflow_is_started_by_hand_and_runs_the_live_tests() -> None:
    workflow: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/live.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    commands = [step for step in job["steps"] if "run" in step]

    assert list(workflow["on"]) == ["workflow_dispatch"]
    assert [step["run"] for step in commands] == ["make test-live"]
    given = commands[0]["env"]
    assert {"TOOLPOST_BRAVE_KEY", "TOOLPOST_JINA_KEY"} <= set(given)
    assert all(value == f"${{{{ secrets.{name} }}}}" for name, value in given.items())


@pytest.mark.programs
@pytest.mark.req("TEST-08", "TEST-14")
def test_real_providers_are_asked_with_the_switch_only() -> None:
    usual, live = collected(), collected(TOOLPOST_LIVE="1")

    searches = {"test_brave_is_searched_at_its_rate", "test_known_pages_are_read"}
    assert searches <= set(usual)
    assert set(usual.values()) == {"skipped"}
    assert {name for name, state in live.items() if state == "runs"} >= searches


@pytest.mark.programs
@pytest.mark.req("TEST-14")
def test_the_switch_is_in_one_target_that_no_other_needs() -> None:
    live, usual = output_of("make", "--dry-run", "test-live"), output_of("make", "--dry-run", "test", "docs", "check")

    assert f"TOOLPOST_LIVE=1 .venv/bin/python -m pytest {LIVE}" in live
    assert "TOOLPOST_LIVE" not in usual


@pytest.mark.req("TEST-14")
async def test_searching_at_the_rate_of_brave_is_refused_once_and_waits_as_long_as_it_is_reported() -> None:
    clock = Clock()
    queries = [f"tea {number}" for number in range(5)]
    async with OneASecond(clock) as there:
        chain = build_search_chain([provider("brave", api_key=KEY, url=there.url)], allowed())
        found = await searched_at_their_rate(chain.providers[0], queries, wait=clock.wait)
        await chain.close()

    assert [one.query for one in found] == queries
    assert [moment for moment, _ in there.answered] == [0, 1, 2, 3, 4]
    assert [f"q=tea+{number}&" in path for number, (_, path) in enumerate(there.answered)] == [True] * 5
    assert (there.refused, clock.waits) == (4, [1.0] * 4)
