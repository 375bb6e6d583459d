"""`toolpost schedule` and `toolpost worker`: calls at times, and the process that makes them."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Run, command

WIPE = ("local.wipe", "name=disk")


@pytest.mark.req("SCALE-05")
def test_a_schedule_is_added_listed_and_removed(toolpost: Run) -> None:
    added = toolpost("schedule", "add", "night", "0 2 * * *", *WIPE, "--timezone", "Europe/Berlin", "--json")
    again = toolpost("schedule", "add", "night", "0 3 * * *", *WIPE)
    listed = toolpost("schedule", "list", "--json").json
    shown = toolpost("schedule", "list").out
    removed = [toolpost("schedule", "remove", "night") for _ in range(2)]

    assert (added.code, added.json["tool"], added.json["timezone"]) == (0, "local.wipe", "Europe/Berlin")
    assert (again.code, "a schedule 'night' exists already" in again.err) == (1, True)
    assert [(one["name"], one["cron"], one["last_at"]) for one in listed] == [("night", "0 2 * * *", None)]
    assert "Europe/Berlin" in shown
    assert [done.code for done in removed] == [0, 1]
    assert "there is no schedule 'night'" in removed[1].err


@pytest.mark.req("SCALE-05")
@pytest.mark.parametrize(
    ("cron", "call", "reason"),
    [
        ("0 0 30 2 *", WIPE, "never matches"),
        ("61 * * * *", WIPE, "field minute"),
        ("@daily", ("local.wipe",), 'missing required "name"'),
        ("@daily", ("local.wpe", "name=x"), "local.wipe"),
    ],
)
def test_a_schedule_that_could_never_call_is_refused(
    toolpost: Run, cron: str, call: tuple[str, ...], reason: str
) -> None:
    refused = toolpost("schedule", "add", "never", cron, *call)

    assert (refused.code, reason in refused.err) == (1, True)
    assert toolpost("schedule", "list", "--json").json == []


def test_schedules_of_other_tenants_are_not_listed(toolpost: Run) -> None:
    toolpost("schedule", "add", "mine", "@daily", *WIPE, "--user", "acme:ann")

    assert toolpost("schedule", "list", "--json", "--user", "evil:eve").json == []
    assert len(toolpost("schedule", "list", "--json", "--all-tenants").json) == 1
    assert "There are no schedules" in toolpost("schedule", "list").out


def test_an_unknown_queue_is_refused_with_the_known_ones(toolpost: Run) -> None:
    refused = toolpost("worker", "--queues", "calls,mail")

    assert refused.code == 2
    assert "'mail' is not a queue" in refused.err
    assert "runs, tasks, calls" in refused.err.replace("\n", " ")


@pytest.mark.programs
def test_a_worker_on_sqlite_stops_at_a_signal(home: Path) -> None:
    with subprocess.Popen(command("worker"), cwd=home, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        first = worker.stderr.readline()
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(60)

    assert first.startswith("worker is running; queues: runs, tasks, calls.")
    assert code == 0


def test_workers_with_dbos_need_postgresql(toolpost: Run, home: Path) -> None:
    with (home / "toolpost.yaml").open("a") as config:
        config.write("background: {engine: dbos}\n")
    refused = toolpost("worker")

    assert (refused.code, "background.engine: dbos needs a database on PostgreSQL" in refused.err) == (1, True)
