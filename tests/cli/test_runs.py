"""`toolpost runs` and `toolpost events`: what happened, what happens, and stopping it."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment, command


@contextmanager
def started(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*arguments),
        cwd=home,
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def events_until(process: subprocess.Popen[str], kind: str) -> dict:
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind} before the end")


def test_a_run_is_listed_and_shown_with_its_events(toolpost: Run) -> None:
    called = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json").json

    [listed] = toolpost("runs", "list", "--json").json
    shown = toolpost("runs", "show", called["run_id"], "--json").json

    assert (listed["run_id"], listed["tool_name"], listed["status"]) == (called["run_id"], "local.add", "completed")
    assert [event["code"] for event in shown["log"]] == [400, 405, 410]
    assert shown["artifacts"] == []
    assert called["run_id"] in toolpost("runs", "list").out
    assert "TOOL_CALL_COMPLETED" in toolpost("runs", "show", called["run_id"]).out


def test_the_artifacts_of_a_run_are_shown(toolpost: Run) -> None:
    called = toolpost("tools", "call", "local.large", "--json").json

    shown = toolpost("runs", "show", called["run_id"], "--json").json

    assert [artifact["id"] for artifact in shown["artifacts"]] == called["artifacts"]
    assert called["artifacts"][0] in toolpost("runs", "show", called["run_id"]).out


@pytest.mark.parametrize("verb", ["show", "cancel"])
def test_a_run_that_is_not_there_is_told(toolpost: Run, verb: str) -> None:
    done = toolpost("runs", verb, "run_nowhere", "--json")

    assert (done.code, done.json["status"]) == (1, "failed")
    assert done.json["error"]["error_code"] == "run_not_found"
    assert "toolpost runs list" in toolpost("runs", verb, "run_nowhere").err


def test_the_runs_of_another_tenant_are_not_there(toolpost: Run) -> None:
    called = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json").json

    assert toolpost("runs", "list", "--user", "evil:mallory", "--json").json == []
    assert toolpost("runs", "show", called["run_id"], "--user", "evil:mallory").code == 1
    assert toolpost("events", "--user", "evil:mallory", "--json").out == ""


def test_events_are_one_json_object_a_line(toolpost: Run) -> None:
    first = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json").json
    second = toolpost("tools", "call", "local.add", "--args", '{"a": 4, "b": 5}', "--json").json

    everything = [json.loads(line) for line in toolpost("events", "--json").out.splitlines()]
    of_one = [json.loads(line) for line in toolpost("events", "--run", second["run_id"], "--json").out.splitlines()]
    later = toolpost("events", "--after", str(everything[2]["id"]), "--json").out.splitlines()

    assert [event["run_id"] for event in everything] == [first["run_id"]] * 3 + [second["run_id"]] * 3
    assert [event["seq"] for event in of_one] == [1, 2, 3]
    assert len(later) == 3
    assert "TOOL_CALL_REQUESTED" in toolpost("events").out


def test_a_paused_run_is_cancelled(toolpost: Run) -> None:
    paused = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', "--json").json

    done = toolpost("runs", "cancel", paused["run_id"], "--json")

    assert (done.code, done.json["status"]) == (0, "cancelling")
    approved = toolpost("pending", "approve", paused["pending"]["id"], "--json")
    assert (approved.code, approved.json["status"]) == (1, "failed")
    assert toolpost("runs", "cancel", paused["run_id"]).code == 1


@pytest.mark.req("NRT-05")
def test_one_process_calls_another_follows_and_a_third_cancels(home: Path, toolpost: Run) -> None:
    with (
        started(home, "events", "--follow", "--json") as following,
        started(
            home, "tools", "call", "local.wait", "--args", '{"seconds": 300}', "--timeout", "300s", "--json"
        ) as calling,
    ):
        run_id = events_until(following, "TOOL_CALL_STARTED")["run_id"]

        cancelled = toolpost("runs", "cancel", run_id)
        out, _ = calling.communicate(timeout=30)
        ended = events_until(following, "TOOL_CALL_FAILED")
        following.send_signal(signal.SIGINT)

        assert (cancelled.code, calling.returncode) == (0, 1)
        assert json.loads(out)["error"]["error_code"] == "cancelled"
        assert ended["run_id"] == run_id
        assert following.wait(timeout=30) == 0
        assert following.stderr is not None
        assert following.stderr.read() == ""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_call_that_is_interrupted_ends_in_the_record_too(
    home: Path, toolpost: Run, sent: signal.Signals, code: int
) -> None:
    with (
        started(home, "events", "--follow", "--json") as following,
        started(home, "tools", "call", "local.wait", "--args", '{"seconds": 300}', "--timeout", "300s") as calling,
    ):
        run_id = events_until(following, "TOOL_CALL_STARTED")["run_id"]

        calling.send_signal(sent)

        assert calling.wait(timeout=30) == code
        assert calling.stderr is not None
        assert "Traceback" not in calling.stderr.read()
    assert toolpost("runs", "show", run_id, "--json").json["status"] == "failed"
