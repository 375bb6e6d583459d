"""The demo ends by itself, shows every outcome, and is honest about what did not come out."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.program import Run
from toolpost.cli import demo
from toolpost.contracts.errors import ToolError

pytestmark = pytest.mark.programs

LISTING = demo.SCENES[0]


def test_every_step_of_the_demo_comes_out_as_expected(child: Run) -> None:
    done = child("demo", "--json")

    document = json.loads(done.out)
    assert [step["title"] for step in document["steps"] if not step["ok"]] == []
    assert (done.code, document["status"]) == (0, "ok")
    assert {"listed", "completed", "failed", "paused", "approved", "verified"} <= {
        step["status"] for step in document["steps"]
    }


def test_the_demo_prints_each_outcome_and_leaves_nothing_behind(toolpost: Run, home: Path) -> None:
    before = sorted(home.iterdir())

    done = toolpost("demo")

    assert done.code == 0
    assert [word for word in ("completed", "failed", "paused", "approved") if f" {word}  " not in done.out] == []
    assert "steps succeeded" in done.out
    assert done.out.partition("2. A call")[0].count("\n") <= 24
    assert sorted(home.iterdir()) == before


@pytest.mark.parametrize("broken", ["unexpected", "raising"])
def test_a_step_that_comes_out_otherwise_is_shown_and_exits_1(
    broken: str, toolpost: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "SCENES", ({"unexpected": _unexpected, "raising": _raising}[broken],))

    done = toolpost("demo")

    assert done.code == 1
    assert "Expected: " in done.out


def test_a_second_process_that_says_nothing_readable_is_a_failure(tmp_path: Path) -> None:
    code, answer = demo.other_process(tmp_path, ["no-such-command"])

    assert code == 2
    assert answer["status"] == "failed"
    assert "no-such-command" in answer["error"]


async def _unexpected(stage: demo.Stage) -> AsyncIterator[demo.DemoStep]:
    async for step in LISTING(stage):
        yield replace(step, fine=False)


async def _raising(stage: demo.Stage) -> AsyncIterator[demo.DemoStep]:
    async for step in LISTING(stage):
        yield step
        raise ToolError("the scene fell down")
