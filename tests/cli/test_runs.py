"""`toolpost runs` and `toolpost events`: what happened, what happens, and stopping it."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment, command
from tests.gateway.serving import add
from toolpost import Settings, Toolbox, ToolContext


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
def test_a_run_that_is_not_there_is_reported(toolpost: Run, verb: str) -> None:
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

    everything = [json.loads(line) for line in toolpost("events", "--tool", "local.*", "--json").out.splitlines()]
    of_one = [json.loads(line) for line in toolpost("events", "--run", second["run_id"], "--json").out.splitlines()]
    later = toolpost("events", "--tool", "local.*", "--after", str(everything[2]["id"]), "--json").out.splitlines()

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


@pytest.mark.parametrize("id_of", ["run_id", "call_id"])
def test_cancelling_a_run_that_has_ended_says_how(toolpost: Run, id_of: str) -> None:
    called = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json").json

    done = toolpost("runs", "cancel", called[id_of])

    assert done.code == 1
    assert f"Run '{called['run_id']}' has ended: completed. It cannot be cancelled." in done.err
    assert toolpost("runs", "cancel", called[id_of], "--json").json["error"]["error_code"] == "run_ended"


def test_where_nothing_has_happened_a_sentence_says_so(toolpost: Run) -> None:
    assert "No events yet for" in toolpost("events").out
    assert "No runs yet for" in toolpost("runs", "list").out
    assert "No artifacts for" in toolpost("artifacts", "list").out
    assert [toolpost(*words, "--json").json for words in (("runs", "list"), ("artifacts", "list"))] == [[], []]


def test_events_can_be_chosen_by_number_tool_type_and_time(toolpost: Run) -> None:
    toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}')
    toolpost("tools", "call", "local.wait", "--args", '{"seconds": "soon"}')

    def shown(*options: str) -> list[str]:
        events = [json.loads(line) for line in toolpost("events", *options, "--json").out.splitlines()]
        return [f"{event['payload'].get('tool_name')} {event['code']}" for event in events]

    # The event of the source may come before or after those of a call that its tools were there for.
    assert shown("-n", "2", "--tool", "local.*") == ["local.wait 400", "local.wait 420"]
    assert shown("--tool", "local.a*") == ["local.add 400", "local.add 405", "local.add 410"]
    assert shown("--type", "tool_call_failed", "--type", "410") == ["local.add 410", "local.wait 420"]
    assert shown("--type", "tool_call_*ED", "--tool", "local.wait")[-1] == "local.wait 420"
    assert len(shown("--since", "1h", "--tool", "local.*")) == 5
    assert shown("--since", "2999-01-01") == []
    for option, value in (("--tool", "local.w*"), ("--source", "local"), ("--search", "WAIT")):
        runs = toolpost("runs", "list", option, value, "--status", "failed", "--json").json
        assert [run["tool_name"] for run in runs] == ["local.wait"]
    assert "No events match." in toolpost("events", "--since", "2999-01-01").out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--type", "TOOL_CALL_FALED"], "did you mean TOOL_CALL_FAILED?"),
        (["--since", "yesterday"], "'yesterday' is not a time: write how long ago"),
    ],
)
def test_a_choice_that_means_nothing_is_a_wrong_command_line(toolpost: Run, options: list[str], told: str) -> None:
    done = toolpost("events", *options)

    assert (done.code, told in " ".join(done.err.split())) == (2, True), done.err


@pytest.mark.req("OPS-07")
def test_runs_and_events_are_filtered_by_user_key_and_time(toolpost: Run, home: Path) -> None:
    made = {name: toolpost("keys", "create", name, "--for", f"local:{name}", "--json").json for name in ("bot", "bee")}

    async def call_as_each() -> None:
        async with Toolbox(tools=[add], settings=Settings(data_dir=home / ".toolpost")) as box:
            for name, key in made.items():
                context = ToolContext(caller=f"key:{key['id']}")
                await box.call("add", {"a": 1, "b": 2}, user=f"local:{name}", context=context)

    asyncio.run(call_as_each())
    toolpost("keys", "revoke", made["bee"]["id"])

    def users(*options: str) -> tuple[set[str], set[str]]:
        runs = toolpost("runs", "list", *options, "--json").json
        events = toolpost("events", "--tool", "add", *options, "--json").out.splitlines()
        return {run["user"] for run in runs}, {json.loads(event)["user"] for event in events}

    assert users("--for", "bot") == users("--key", made["bot"]["id"]) == ({"bot"}, {"bot"})
    assert users("--key", made["bee"]["key"]) == ({"bee"}, {"bee"})
    assert users("--since", "1h", "--until", "2999-01-01T09:30") == ({"bot", "bee"}, {"bot", "bee"})
    assert users("--until", "2h") == users("--since", "2999-01-01") == users("--key", "none") == (set(), set())


def test_only_the_last_events_are_shown_unless_more_are_asked_for(toolpost: Run) -> None:
    for _ in range(18):
        toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}')

    usual = toolpost("events", "--tool", "local.add")

    assert len(usual.out.splitlines()) == 50
    assert "These are the last 50 events; -n 200 shows more, --after 0 shows all." in usual.err
    assert len(toolpost("events", "--tool", "local.add", "--after", "0").out.splitlines()) == 54


def test_an_event_is_reported_without_long_numbers_and_nothing_twice(toolpost: Run) -> None:
    toolpost("tools", "call", "local.wait", "--args", '{"seconds": "soon"}')

    [line] = toolpost("events", "--type", "TOOL_CALL_FAILED").out.splitlines()

    assert line.count("seconds") == 1
    assert re.search(r"duration_ms=[\d.]{1,6}$", line), line


@pytest.mark.usefixtures("one_segment_a_call")
def test_what_was_changed_from_outside_is_found(toolpost: Run, home: Path) -> None:
    called = toolpost("tools", "call", "local.add", "--args", '{"a": 2, "b": 3}', "--json").json
    before = [toolpost("runs", "verify"), toolpost("runs", "verify", called["run_id"])]
    with closing(sqlite3.connect(home / ".toolpost" / "toolpost.db")) as db, db:
        db.execute("UPDATE segments SET events = replace(events, '\"summary\":5', '\"summary\":6')")

    after = toolpost("runs", "verify", "--json")

    assert [(done.code, done.out) for done in before] == [(0, "verified: no changes found.\n")] * 2
    assert (after.code, after.json["status"]) == (1, "changed")
    assert "events 1 to 3 were changed" in after.json["problems"][0]


def test_a_key_that_was_given_rights_from_outside_is_named_and_can_be_revoked(toolpost: Run, home: Path) -> None:
    key = toolpost("keys", "create", "bot", "--json").json
    before = toolpost("runs", "verify")
    with closing(sqlite3.connect(home / ".toolpost" / "toolpost.db")) as db, db:
        db.execute("UPDATE caller_keys SET scopes = 'call answer admin'")

    after, listed = toolpost("runs", "verify"), toolpost("keys", "list", "--json")
    revoked = toolpost("keys", "revoke", key["id"])

    assert (before.code, after.code) == (0, 1)
    assert f"key '{key['id']}' of local:bot was changed" in after.out
    assert (listed.json, revoked.code, toolpost("runs", "verify").code) == ([], 0, 0)


@pytest.mark.programs
@pytest.mark.req("NRT-05")
def test_one_process_calls_another_follows_and_a_third_cancels(home: Path, toolpost: Run) -> None:
    with (
        started(home, "events", "--follow", "--after", "0", "--json") as following,
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


@pytest.mark.programs
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_call_that_is_interrupted_ends_in_the_record_too(
    home: Path, toolpost: Run, sent: signal.Signals, code: int
) -> None:
    with (
        started(home, "events", "--follow", "--after", "0", "--json") as following,
        started(home, "tools", "call", "local.wait", "--args", '{"seconds": 300}', "--timeout", "300s") as calling,
    ):
        run_id = events_until(following, "TOOL_CALL_STARTED")["run_id"]

        calling.send_signal(sent)

        assert calling.wait(timeout=30) == code
        assert calling.stderr is not None
        assert "Traceback" not in calling.stderr.read()
    assert toolpost("runs", "show", run_id, "--json").json["status"] == "failed"


@pytest.mark.programs
def test_a_tool_that_raises_an_interrupt_fails_and_ctrl_c_ends_one_that_holds_up_the_loop(home: Path) -> None:
    (home / "tools.py").write_text(
        "import signal\nfrom toolpost import tool\n\n"
        "@tool(side_effects='pure')\nasync def quit() -> str:\n    raise KeyboardInterrupt\n\n"
        "@tool(side_effects='pure')\nasync def hold() -> str:\n"
        "    signal.raise_signal(signal.SIGINT)  # cancels the call, which cannot notice\n"
        "    signal.raise_signal(signal.SIGINT)  # interrupts it\n"
        "    return 'never'\n"
    )
    with started(home, "tools", "call", "local.quit", "--json") as leaving:
        out, _ = leaving.communicate(timeout=60)
    with started(home, "tools", "call", "local.hold") as holding:
        shown = holding.communicate(timeout=60)

    assert (leaving.returncode, holding.returncode) == (1, 130)
    assert json.loads(out)["error"]["message"] == "RuntimeError: the tool raised KeyboardInterrupt"
    assert (shown[0], "Traceback" in shown[1]) == ("", False)
