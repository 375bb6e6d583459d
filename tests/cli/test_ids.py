"""Ids of questions, runs and artifacts by how they begin."""

from pathlib import Path

import pytest

from tests.cli.program import Run


@pytest.fixture
def ids(toolpost: Run) -> dict[str, str]:
    """Two of each kind, so that the first letters alone say nothing."""
    large, _ = [toolpost("tools", "call", "local.large", "--json").json for _ in range(2)]
    paused, _ = [toolpost("tools", "call", "local.wipe", f"name={name}", "--json").json for name in ("disk", "tape")]
    return {"run": large["run_id"], "artifact": large["artifacts"][0], "question": paused["pending"]["id"]}


def test_an_id_is_known_by_how_it_begins(toolpost: Run, ids: dict[str, str], home: Path) -> None:
    run, artifact, question = (ids[kind][:-4] for kind in ("run", "artifact", "question"))

    assert toolpost("runs", "show", run, "--json").json["run_id"] == ids["run"]
    assert toolpost("runs", "verify", run).code == 0
    assert f"{ids['run']!r} has ended: completed" in toolpost("runs", "cancel", run).err
    assert '"run_id": "' + ids["run"] in toolpost("events", "--run", run, "--json").out
    assert [one["id"] for one in toolpost("artifacts", "list", "--run", run, "--json").json] == [ids["artifact"]]
    assert toolpost("artifacts", "save", artifact, "large.txt").code == 0
    assert toolpost("pending", "show", question, "--json").json["id"] == ids["question"]
    assert toolpost("pending", "approve", question).code == 0
    assert (home / "wiped.txt").read_text() == "disk\n"


def test_a_beginning_of_several_ids_answers_none(toolpost: Run, home: Path) -> None:
    asked: list[str] = []
    while len({one[: len("ask_") + 1] for one in asked}) == len(asked):  # until two begin with the same character
        asked.append(toolpost("tools", "call", "local.wipe", f"name=disk{len(asked)}", "--json").json["pending"]["id"])
    shared = asked[-1][: len("ask_") + 1]

    several, too_short = toolpost("pending", "approve", shared), toolpost("pending", "approve", "ask_")

    assert (several.code, f"{shared!r} is ambiguous: it matches ask_" in several.err) == (1, True), several.err
    assert (too_short.code, "not found" in too_short.err) == (1, True), too_short.err
    assert not (home / "wiped.txt").exists()


def test_how_an_id_of_another_tenant_begins_says_nothing(toolpost: Run, ids: dict[str, str]) -> None:
    done = toolpost("pending", "approve", ids["question"][:-4], "--user", "other:eve", "--json")

    assert done.json["error"]["error_code"] == "pending_not_found"


def test_ids_of_one_process_differ_early_enough_to_be_shortened(toolpost: Run, ids: dict[str, str]) -> None:
    first, second = (question["id"] for question in toolpost("pending", "list", "--json").json)

    assert ids["question"] in (first, second)
    assert first[:15] != second[:15]
