"""`toolpost pending`: a question is answered once, by the right person, in whatever process."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import Done, Run, child_environment, command


@pytest.fixture
def paused(toolpost: Run) -> str:
    """The id of a destructive call that waits."""
    return pause(toolpost)


def pause(toolpost: Run, *options: str) -> str:
    done = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', "--json", *options)
    assert done.code == 3, done
    return done.json["pending"]["id"]


@pytest.mark.programs
def test_another_process_approves_and_the_call_runs_once(child: Run, paused: str, home: Path) -> None:
    approved = child("pending", "approve", paused, "--json")
    again = child("pending", "approve", paused, "--json")

    assert (approved.code, approved.json["status"], approved.json["content"]) == (0, "completed", "wiped disk")
    assert (again.code, again.json["status"]) == (1, "failed")
    assert again.json["error"]["error_code"] == "already_answered"
    assert (home / "wiped.txt").read_text() == "disk\n"


def test_changed_arguments_are_what_runs(toolpost: Run, paused: str, home: Path) -> None:
    done = toolpost("pending", "approve", paused, "--set", "/name=cup", "--json")

    assert (done.code, done.json["content"]) == (0, "wiped cup")
    assert (home / "wiped.txt").read_text() == "cup\n"


@pytest.mark.parametrize("change", [("--set", "/name=5"), ("--remove", "/name"), ("--changes", "[1]")])
def test_changed_arguments_are_validated_and_the_question_stays_open(
    toolpost: Run, paused: str, change: tuple[str, str]
) -> None:
    done = toolpost("pending", "approve", paused, *change, "--json")

    assert (done.code, done.json["error"]["error_code"]) == (1, "validation_failed")
    assert toolpost("pending", "show", paused, "--json").json["status"] == "open"


def test_a_denied_call_is_never_run(toolpost: Run, paused: str, home: Path) -> None:
    done = toolpost("pending", "deny", paused, "--reason", "not today", "--json")
    again = toolpost("pending", "approve", paused, "--json")

    assert (done.code, done.json["status"]) == (0, "failed")
    assert done.json["error"]["error_code"] == "approval_denied"
    assert "not today" in done.json["error"]["message"]
    assert (again.code, again.json["status"]) == (1, "failed")
    assert not (home / "wiped.txt").exists()


def test_people_learn_what_their_answer_did(toolpost: Run) -> None:
    denied = toolpost("pending", "deny", pause(toolpost))
    assert (denied.code, "was not run" in denied.out) == (0, True)
    assert toolpost("pending", "approve", pause(toolpost)).out == "wiped disk\n"


OPTIONAL = """
from msgspec.structs import replace
from toolpost import ToolContext, tool
from toolpost.contracts.errors import PauseSignal

@tool(side_effects="write")
async def send(ctx: ToolContext) -> str:
    \"\"\"Send something, with a remark if there is one.\"\"\"
    try:
        remark = await ctx.pause("remark", prompt="A remark?")
    except PauseSignal as asked:
        raise PauseSignal(replace(asked.question, deliver_denial=True)) from None
    return f"sent with {remark}"
"""


@pytest.mark.parametrize("called", ["local.send", "flows.flow"])
def test_a_tool_that_continues_without_an_answer_is_not_said_to_be_not_run(
    toolpost: Run, home: Path, called: str
) -> None:
    (home / "send.py").write_text(OPTIONAL)
    (home / "flow.yaml").write_text("{name: flow, steps: {send: {tool: local.send}}, outputs: '${{ steps.send }}'}")
    local = "{name: local, transport: python, connection: ./send.py}"
    flows = "{name: flows, transport: workflow, connection: ./flow.yaml}"
    (home / "toolpost.yaml").write_text(f"sources: [{local}, {flows}]\n")
    asked = toolpost("tools", "call", called, "--json").json["pending"]["id"]
    denied = toolpost("pending", "deny", asked)

    assert (denied.code, denied.out) == (0, "sent with None\n")


def test_another_tenant_finds_nothing_to_answer(toolpost: Run, paused: str, home: Path) -> None:
    def as_mallory(*command: str) -> Done:
        return toolpost("pending", *command, "--user", "evil:mallory", "--json")

    assert as_mallory("list").json == []
    for done in (as_mallory("show", paused), as_mallory("approve", paused), as_mallory("deny", paused)):
        assert (done.code, done.json["error"]["error_code"]) == (1, "pending_not_found")
        assert (done.json["meta"], done.json["duration_ms"]) == ({}, 0.0)
    assert not (home / "wiped.txt").exists()


def test_a_colleague_of_the_same_tenant_may_answer(toolpost: Run) -> None:
    pending_id = pause(toolpost, "--user", "acme:ann")

    assert toolpost("pending", "approve", pending_id, "--user", "acme:bob", "--json").code == 0


def test_open_questions_are_listed_and_shown_with_what_they_would_run(toolpost: Run, paused: str) -> None:
    [listed] = toolpost("pending", "list", "--json").json
    shown = toolpost("pending", "show", paused, "--json").json

    assert listed == shown
    assert (shown["id"], shown["status"], shown["tool_name"]) == (paused, "open", "local.wipe")
    assert shown["arguments"] == {"name": "disk"}
    assert paused in toolpost("pending", "list").out
    told = toolpost("pending", "show", paused)
    assert "disk" in told.out
    assert f"toolpost pending approve {paused}" in told.err


def test_two_waiting_calls_of_one_tool_are_distinguished_by_what_they_would_do(toolpost: Run) -> None:
    first, second = (toolpost("tools", "call", "local.wipe", f"name={name}").out for name in ("disk", "tape"))
    listed = toolpost("pending", "list").out

    assert '  arguments: {"name": "disk"}\n  target: Python function wipe in ' in first
    assert '  arguments: {"name": "tape"}\n' in second
    assert '{"name": "disk"}' in listed
    assert '{"name": "tape"}' in listed
    assert listed.count("Python function wipe in ") == 2


def test_the_hint_names_no_one_where_an_agent_asked(toolpost: Run, home: Path) -> None:
    asked = toolpost("tools", "call", "local.wipe", "name=disk", "--user", "acme:agent").out
    pending_id = asked.partition("pending approve ")[2].partition(" ")[0]
    with (home / "toolpost.yaml").open("a") as file:
        file.write("approvals: {four_eyes: true, answerers: ['local:*', 'acme:*']}\n")
    by_two = toolpost("tools", "call", "local.wipe", "name=disk").out

    assert "--user acme:agent" not in asked
    assert f"`toolpost pending deny {pending_id} --user acme:NAME` does not." in asked
    for looking, named in (("acme:ann", "acme:ann"), ("acme:agent", "acme:NAME")):
        shown = toolpost("pending", "show", pending_id, "--user", looking).err
        assert f"pending approve {pending_id} --user {named}`" in shown
    assert "--user local:NAME` runs it" in by_two
    assert "Only local:* or acme:* may answer. The requesting user may not approve (four_eyes)." in by_two


def test_what_a_file_would_lose_is_shown_at_the_terminal(toolpost: Run, home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "a.txt").write_text("old\n")

    asked = toolpost("tools", "call", "write_file", "path=data/a.txt", "content=new").out

    assert "  | -old\n  | +new\n" in asked


def test_a_password_is_not_shown_to_the_one_who_approves_and_is_used_all_the_same(toolpost: Run) -> None:
    args = '{"user": "ann", "password": "open-sesame"}'
    pending_id = toolpost("tools", "call", "local.sign_in", "--args", args, "--json").json["pending"]["id"]

    shown = toolpost("pending", "show", pending_id, "--json")
    told = toolpost("pending", "show", pending_id)
    approved = toolpost("pending", "approve", pending_id, "--json")

    assert shown.json["arguments"]["user"] == "ann"
    assert "open-sesame" not in shown.out + told.out
    assert approved.json["content"] == "ann is in with 11 characters"


def test_answered_questions_are_listed_when_asked_for(toolpost: Run, paused: str) -> None:
    toolpost("pending", "approve", paused)

    assert "No pending action is open" in toolpost("pending", "list").out
    [kept] = toolpost("pending", "list", "--status", "all", "--json").json
    assert (kept["id"], kept["status"]) == (paused, "answered")
    assert kept["answered_by"].startswith("local:")


@pytest.mark.parametrize(("value", "read"), [("blue", "blue"), ('"red"', "red"), ("7", "7")])
def test_a_question_of_a_tool_gets_its_answer(toolpost: Run, value: str, read: str) -> None:
    asked = toolpost("tools", "call", "local.ask", "--json")

    done = toolpost("pending", "answer", asked.json["pending"]["id"], value, "--json")

    assert (asked.code, asked.json["pending"]["prompt"]) == (3, "Which colour?")
    assert (done.code, done.json["content"]) == (0, f"painted {read}")


def test_an_approval_takes_no_other_decision(toolpost: Run, paused: str) -> None:
    done = toolpost("pending", "answer", paused, "--decision", "happened", "--json")

    assert (done.code, done.json["status"]) == (1, "failed")
    assert "accepts approve, deny" in done.json["error"]["message"]


HANG = '''
import asyncio
from toolpost import tool


@tool(side_effects="write")
async def pay() -> str:
    """Pay, and take for ever."""
    print("begun", flush=True)
    await asyncio.sleep(3600)
    return "paid"
'''


def interrupted(home: Path, toolpost: Run) -> str:
    """The id of the question about a call whose process was killed."""
    (home / "tools.py").write_text(HANG)
    (home / "toolpost.yaml").write_text(
        "policy: exploratory\nsources: [{name: local, transport: python, connection: ./tools.py}]\n"
    )
    with subprocess.Popen(
        command("tools", "call", "local.pay"), cwd=home, env=child_environment(), stderr=subprocess.PIPE, text=True
    ) as calling:
        assert calling.stderr is not None
        assert any("begun" in line for line in calling.stderr)
        calling.kill()
    [question] = toolpost("pending", "list", "--json").json
    return question["id"]


@pytest.mark.programs
def test_a_wrong_way_to_answer_is_reported_with_the_right_one(toolpost: Run, home: Path) -> None:
    asked = interrupted(home, toolpost)

    told = [toolpost("pending", verb, asked) for verb in ("approve", "deny", "answer")]
    settled = toolpost("pending", "answer", asked, "--decision", "not_happened")

    for done in told:
        assert (done.code, "accepts happened, not_happened, rerun, not " in done.err) == (1, True)
        assert f"`toolpost pending answer {asked} --decision happened` (or not_happened, or rerun)" in done.err
        assert "tools show" not in done.err
    assert (settled.code, "accepts" in settled.err) == (1, False)
    assert "No pending action is open" in toolpost("pending", "list").out


def test_a_command_that_people_are_told_to_run_works_as_it_is_printed(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").rename(home / "my own.yaml")
    said = ("--user", "acme:ann", "--config", "my own.yaml")
    by_agent = ("--user", "acme:agent", "--config", "my own.yaml")
    paused = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', *by_agent)
    [asked] = [question["id"] for question in toolpost("pending", "list", "--json", *said).json]

    shown = toolpost("pending", "show", asked, *said)
    approve, deny = (shlex.split(words) for words in re.findall(r"`toolpost (.*?)`", shown.err))

    assert approve == ["pending", "approve", asked, "--config", "my own.yaml", "--user", "acme:ann"]
    named = [shlex.split(words.replace("NAME", "ann")) for words in re.findall(r"`toolpost (.*?)`", paused.out)]
    assert [approve, deny] == named
    assert toolpost(*approve).out == "wiped disk\n"
    assert "pending list --config 'my own.yaml' --user acme:ann`" in toolpost(*approve).err


def test_a_list_without_questions_says_for_whom_it_looked(toolpost: Run, paused: str) -> None:
    assert "No pending action is open in the tenant 'acme'" in toolpost("pending", "list", "--user", "acme:ann").out
    assert "No pending action is denied in the tenant 'local'" in toolpost("pending", "list", "--status", "denied").out
    assert "No pending actions" in toolpost("pending", "list", "--status", "all", "--user", "acme:ann").out


@pytest.mark.parametrize("words", ["pending show x", "pending approve x", "runs show x", "events --run x"])
def test_a_user_without_a_tenant_learns_how_that_was_read(toolpost: Run, words: str) -> None:
    bare = toolpost(*words.split(), "--user", "bad").err
    whole = toolpost(*words.split(), "--user", "acme:ann").err

    assert "not found for local:bad (--user is TENANT:USER; without a tenant it is local:USER)" in bare
    assert "list --user local:bad`" in bare
    assert "not found for acme:ann. " in whole


def test_an_approval_changes_arguments_by_path_and_keeps_masked_secrets(toolpost: Run) -> None:
    call = ("tools", "call", "local.sign_in", "user=ann", "password=correct-horse", "--json")
    asked = toolpost(*call).json["pending"]["id"]
    shown = toolpost("pending", "show", asked, "--json").json
    masked = toolpost("pending", "approve", asked, "--set", "/password=[redacted]")
    missing = toolpost("pending", "approve", asked, "--remove", "/usr")
    done = toolpost("pending", "approve", asked, "--set", "/user=bob")

    assert (shown["masked"], shown["arguments"]["password"]) == (["/password"], "[redacted]")
    assert (masked.code, "represents a masked secret" in masked.err) == (1, True)
    assert (missing.code, "nothing at '/usr': beside 'usr' there is 'user', 'password'" in missing.err) == (1, True)
    assert (done.code, done.out) == (0, "bob is in with 13 characters\n")


def test_an_approval_takes_a_whole_json_patch(toolpost: Run, home: Path) -> None:
    asked = toolpost("tools", "call", "local.wipe", "name=disk", "--json").json["pending"]["id"]
    changes = '[{"op": "remove", "path": "/name"}]'
    assert toolpost("pending", "approve", asked, "--changes", changes, "--set", "/name=tape").code == 0
    assert (home / "wiped.txt").read_text() == "tape\n"
