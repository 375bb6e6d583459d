"""The operator of a machine sees the pending actions, runs and events of every tenant."""

import json
from pathlib import Path

import pytest

from tests.cli.program import Run

ANN = ("--user", "acme:ann")


@pytest.fixture
def waiting(toolpost: Run) -> str:
    """A call of another tenant that waits for a person; gives the id of the question."""
    called = toolpost("tools", "call", "local.wipe", "name=x", *ANN, "--json").json
    return str(called["pending"]["id"])


def test_the_operator_learns_that_something_waits_in_another_tenant(toolpost: Run, waiting: str) -> None:
    own = toolpost("pending", "list").out
    everywhere = toolpost("pending", "list", "--all-tenants").out
    [listed] = toolpost("pending", "list", "--all-tenants", "--json").json

    assert "1 waits in acme: `toolpost pending list --all-tenants` shows them." in own
    assert waiting in everywhere
    assert "acme:ann" in everywhere
    assert listed["id"] == waiting


def test_another_tenant_learns_nothing_and_may_not_ask(toolpost: Run, waiting: str) -> None:
    foreign = toolpost("pending", "list", "--user", "evil:eve")
    asked = toolpost("pending", "list", "--user", "evil:eve", "--all-tenants")

    assert "acme" not in foreign.out + foreign.err
    assert "acme" not in toolpost("pending", "show", waiting, "--user", "evil:eve").err
    assert asked.code == 2
    assert "only the operator, in the tenant local" in asked.err


def test_an_answer_without_the_tenant_names_the_option_that_is_missing(toolpost: Run, waiting: str, home: Path) -> None:
    missing = toolpost("pending", "approve", waiting)
    option = missing.err.partition("add ")[2].partition(".\n")[0].split()

    assert option[:1] == ["--user"]
    assert option[1].startswith("acme:")
    assert toolpost("pending", "approve", waiting, *option).code == 0
    assert (home / "wiped.txt").read_text() == "x\n"


def test_runs_and_events_of_all_tenants_are_listed(toolpost: Run, waiting: str) -> None:
    toolpost("tools", "call", "local.add", "a=1", "b=2")

    runs = toolpost("runs", "list", "--all-tenants", "--json").json
    events = [json.loads(line) for line in toolpost("events", "--all-tenants", "--json").out.splitlines()]

    assert {run["tenant"] for run in runs} == {"acme", "local"}
    assert {event["tenant"] for event in events} == {"acme", "local"}
    assert {run["tenant"] for run in toolpost("runs", "list", "--json").json} == {"local"}
    assert waiting in toolpost("events", "--all-tenants").out
    assert "for acme:ann" in toolpost("events", "--all-tenants").out
