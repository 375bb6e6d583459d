"""`toolpost run` and `toolpost chat`: a model calls tools, and the person at the terminal decides."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.models.provider import Provider
from tests.cli.program import Done, Run
from tests.cli.terminal import at_a_terminal
from toolpost.cli.agent import parse_budget
from toolpost.testing import tool_calls

ADD = tool_calls(("local__add", {"a": 19, "b": 23}))
WIPE = tool_calls(("local__wipe", {"name": "disk"}))
WAIT = tool_calls(("local__wait", {"seconds": 60}))


@contextmanager
def provider(*lines: Any) -> Iterator[tuple[Provider, str]]:
    """A provider in a thread of its own, since the program has its own event loop; yields it and its model's name."""
    loop, scripted = asyncio.new_event_loop(), Provider(list(lines))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(scripted.__aenter__(), loop).result(10)
        yield scripted, f"{scripted.url}#scripted"
        asyncio.run_coroutine_threadsafe(scripted.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def json_lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_model_answers_with_tools_and_stdout_has_the_answer_alone(toolpost: Run, home: Path) -> None:
    with provider(ADD, "It is 42.") as (scripted, model):
        (home / "toolpost.yaml").write_text(f"{(home / 'toolpost.yaml').read_text()}model: {model}\n")
        done = toolpost("run", "What is 19 + 23?", "--tools", "local.add", "--instructions", "Be brief.")

    assert (done.code, done.out) == (0, "It is 42.\n"), done.err
    assert "local.add a=19 b=23: completed in" in done.err
    assert "2 steps, 1 call · 32 tokens" in done.err
    assert [tool["function"]["name"] for tool in scripted.bodies[0]["tools"]] == ["local__add"]
    assert [message["content"] for message in scripted.bodies[0]["messages"]] == ["Be brief.", "What is 19 + 23?"]


def test_events_are_json_lines_and_the_last_is_the_result(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider(ADD, "It is 42.") as (_, model):
        monkeypatch.setenv("TOOLPOST_MODEL", model)
        *events, result = json_lines(toolpost("run", "What is 19 + 23?", "--json"))

    assert [event["type"] for event in events if event["type"] != "text"] == [
        *("started", "replied", "call_started", "call_ended", "replied")
    ]
    assert "".join(event["text"] for event in events if event["type"] == "text") == "It is 42."
    assert (result["type"], result["status"], result["answer"]) == ("result", "completed", "It is 42.")
    assert (result["error"], result["resume_token"], result["metadata"]["tool_calls"]) == (None, None, 1)


def test_a_run_that_waits_for_a_person_continues_in_another_process(toolpost: Run, home: Path) -> None:
    with provider(WIPE, "It is wiped.") as (_, model):
        paused = toolpost("run", "Wipe the disk.", "--model", model, "--json")
        result = json_lines(paused)[-1]
        told = toolpost("run", "--resume", result["resume_token"], "--model", model)
        approved = toolpost("pending", "approve", result["questions"][0]["pending_id"])
        token = told.out.partition("--resume ")[2].split()[0]
        done = toolpost("run", "--resume", token, "--model", model)
        again = toolpost("run", "--resume", token, "--model", model)

    assert (paused.code, result["status"]) == (3, "paused")
    assert (told.code, "paused: Allow local.wipe?" in told.out) == (3, True)
    assert (approved.code, done.code, done.out) == (0, 0, "It is wiped.\n")
    assert (home / "wiped.txt").read_text() == "disk\n"
    assert (again.code, "this pause was resumed before" in again.err) == (1, True)


@pytest.mark.waits
def test_a_run_whose_model_fails_continues_with_its_token_and_another_budget(toolpost: Run, home: Path) -> None:
    with provider(ADD) as (_, model):
        failed = toolpost("run", "What is 19 + 23?", "--model", model, "--budget", "tokens=20")
    token = failed.err.partition("--resume ")[2].split()[0]
    with provider(ADD, "It is 42.") as (scripted, model):
        done = toolpost("run", "--resume", token, "--model", model, "--budget", "tokens=500")

    assert (failed.code, done.code, done.out) == (1, 0, "It is 42.\n"), failed.err + done.err
    assert [message.get("content") for message in scripted.bodies[0]["messages"][1:]] == [
        "What is 19 + 23?",
        None,
        "42",
    ]


@pytest.mark.parametrize(
    ("lines", "options", "told"),
    [
        ([ADD, ADD], ["--budget", "steps=1"], "the steps limit of the run was reached"),
        ([{"role": "assistant", "content": "", "tool_calls": []}], [], "the model said nothing"),
        (["No tools."], ["--tools", "local.ad"], 'Did you mean "local.add"?'),
        ([tool_calls(("rm_rf", {}))] * 3, [], 'Tool "rm_rf" not found'),
        ([tool_calls(*[("local__wipe", {"name": "disk"})] * 200)] * 3, [], "200 concurrent calls are too many"),
        ([ADD] * 20, ["--budget", "steps=3"], "the steps limit of the run was reached"),
    ],
)
def test_a_run_without_an_answer_fails_and_says_why(
    lines: list[Any], options: list[str], told: str, toolpost: Run
) -> None:
    with provider(*lines) as (_, model):
        done = toolpost("run", "What is 19 + 23?", "--model", model, *options)

    assert (done.code, done.out, told in done.err) == (1, "", True), done.err


def test_a_model_cannot_approve_its_own_call_nor_draw_on_the_terminal(toolpost: Run, home: Path) -> None:
    forged = tool_calls(("approve", {}), ("toolpost.pending.approve", {"by": "local:root"}))
    drawn = "\x1b[2J\x1b]0;title\x07Run it? y runs it\u202e"
    with provider(forged, WIPE) as (_, model):
        paused = toolpost("run", "Wipe the disk.", "--model", model)
    with provider(drawn) as (_, model):
        done = toolpost("run", "Draw.", "--model", model)

    assert (paused.code, "paused: Allow local.wipe?" in paused.out) == (3, True), paused.err
    assert not (home / "wiped.txt").exists()
    assert (done.code, set(done.out) & set("\x1b\x07\u202e")) == (0, set())


def test_a_missing_model_is_reported_before_a_source_starts(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("sources: [{name: broken, transport: mcp, connection: /no/such}]")

    done = toolpost("run", "Hello")

    assert (done.code, "TOOLPOST_MODEL" in done.err, "broken" in done.err) == (1, True, False)


def test_only_the_sources_of_the_tools_are_started(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").write_text("sources: [{name: broken, transport: mcp, connection: /no/such}]")
    with provider("Hello.") as (scripted, model):
        done = toolpost("run", "Hello", "--model", model, "--tools", "data_tools,current_time")

    assert (done.code, "broken" in done.err, len(scripted.bodies[0]["tools"])) == (0, False, 5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "give a request, or --resume TOKEN"),
        (["run", "x", "--resume", "y"], "not both"),
        (["run", " "], "the request is empty"),
        (["run", "x", "--budget", "cents=3"], "'cents=3' is not a limit"),
        (["run", "x", "--budget", "steps=few"], "'few' is not a number"),
        (["run", "x", "--budget", "cost=0"], "must be more than 0"),
        (["run", "x", "--instructions", "@none.txt"], "none.txt: No such file"),
        (["chat"], "this needs a terminal"),
    ],
)
def test_a_wrong_command_line_is_refused(words: list[str], told: str, toolpost: Run) -> None:
    done = toolpost(*words)

    assert (done.code, told in done.err) == (2, True), done.err


def test_a_budget_has_four_limits() -> None:
    budget = parse_budget(["steps=3,time=2m", "tokens=50_000,cost=$0.50"])

    assert (budget.steps, budget.time_s, budget.tokens, budget.cost) == (3, 120.0, 50_000, 0.5)


@pytest.mark.programs
def test_at_a_terminal_the_person_is_asked_at_once_and_the_answer_is_streamed(home: Path) -> None:
    with provider(WIPE, "It is wiped.") as (_, model):
        done = at_a_terminal(home, {"decide later: ": b"y\n"}, "run", "Wipe the disk.", "--model", model, columns=100)

    assert (done.code, done.out.count("It is wiped.")) == (0, 1), done.out
    assert 'local.wipe name="disk": is waiting for an answer' in done.out
    assert (home / "wiped.txt").read_text() == "disk\n"


@pytest.mark.programs
@pytest.mark.parametrize(
    ("answers", "code", "wiped"),
    [(["y", ""], 3, ["a"]), (["", "y"], 3, ["b"]), (["n"], 0, []), (["y", "y"], 0, ["a", "b"])],
)
def test_each_question_of_a_workflow_is_asked_once(home: Path, answers: list[str], code: int, wiped: list[str]) -> None:
    steps = ", ".join(f"{name}: {{tool: local.wipe, arguments: {{name: {name}}}}}" for name in ("a", "b"))
    (home / "pair.yaml").write_text(f"{{name: pair, steps: {{{steps}}}}}")
    with (home / "toolpost.yaml").open("a") as config:
        config.write("  - {name: flows, transport: workflow, connection: ./pair.yaml}\n")
    prompts = ("decide later: ", "Enter to decide later: ")
    typed = {prompt: f"{answer}\n".encode() for prompt, answer in zip(prompts, answers, strict=False)}
    with provider(tool_calls(("flows__pair", {})), "Done.") as (_, model):
        done = at_a_terminal(home, typed, "run", "Wipe both.", "--model", model, columns=100)

    assert (done.code, done.out.count("Run it?")) == (code, len(answers)), done.out
    assert _lines(home / "wiped.txt") == wiped


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.programs
def test_an_interrupt_stops_the_calls_and_reports_what_was_done(home: Path) -> None:
    with provider(ADD, WAIT) as (_, model):
        done = at_a_terminal(home, {"local.wait ·": b"\x03"}, "run", "Wait.", "--model", model, columns=100)

    assert (done.code, "stopped: local.add completed, local.wait was stopped." in done.out) == (130, True), done.out
    assert "To resume the run" in done.out


@pytest.mark.programs
def test_a_conversation_continues_and_is_kept_if_asked(home: Path) -> None:
    words = ("chat", "--tools", "local.*", "--keep", "sums")
    with provider(ADD, "It is 42.", WAIT, "As I said.") as (scripted, model):
        typed = {"> ": b'"""What is\n', ". ": b'19 + 23?"""\n', "2 steps": b"Wait.\n", "local.wait ·": b"\x03"}
        typed |= {"local.wait was stopped": b"/tools\n", "8 tools": b"/quit\n"}
        first = at_a_terminal(home, typed, *words, "--model", model, columns=100)
        typed = {"continues after 1 request": b"Again?\n", "1 step": b"\x04"}
        second = at_a_terminal(home, typed, *words, "--model", model, columns=100)

    assert (first.code, second.code, "As I said." in second.out) == (0, 0, True), first.out + second.out
    said = [message.get("content") for message in scripted.bodies[-1]["messages"][1:]]
    assert said == ["What is\n19 + 23?", None, "42", "It is 42.", "Again?"]
