"""What a tool asks, answered at the terminal while its call is open, or by a later command."""

import sys
from pathlib import Path

import pytest

from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal
from toolpost.cli.answers import answer_of

LATER = "answer later: "
ASK = ("tools", "call", "local.ask")
ONE_FIELD = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
SERVER = """
from fastmcp import Context, FastMCP

server = FastMCP("asking")


@server.tool
async def register(ctx: Context) -> str:
    name = await ctx.elicit("Your name?", response_type=str)
    age = await ctx.elicit("Your age?", response_type=int)
    return f"{name.data} is {age.data}"


server.run(show_banner=False)
"""


def test_a_question_is_asked_at_the_terminal_and_the_call_goes_on(home: Path) -> None:
    done = at_a_terminal(home, {f"Which colour?\r\nYour answer, JSON or text; nothing to {LATER}": b"red\n"}, *ASK)

    assert (done.code, "painted red" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("typed", "code", "told"), [(b"\n", 3, "toolpost pending answer ask_"), (b"\x03", 130, "runs")]
)
def test_who_says_nothing_can_answer_later(home: Path, typed: bytes, code: int, told: str) -> None:
    done = at_a_terminal(home, {LATER: typed}, *ASK)

    assert (done.code, told in done.out) == (code, True)


def test_an_older_server_gets_all_its_answers_in_the_one_call(home: Path) -> None:
    (home / "server.py").write_text(SERVER)
    (home / "toolpost.yaml").write_text(
        "policy: exploratory\n"
        f"sources: [{{name: old, transport: mcp, connection: {sys.executable} server.py, cwd: .,\n"
        "  mcp: {protocol: legacy}}]\n"
    )
    typed = {f"name?\r\n  value: string, required, Value\r\nYour answer, JSON or text; nothing to {LATER}": b"42\n"}
    typed |= {"Your age?": b"old\n", "That does not fit": b"41\n"}

    done = at_a_terminal(home, typed, "tools", "call", "old.register")

    assert (done.code, "42 is 41" in done.out) == (0, True), done.out


def test_without_a_terminal_nobody_is_asked(child: Run) -> None:
    done = child(*ASK, given="red\n")

    assert (done.code, LATER in done.err) == (3, False)


@pytest.mark.parametrize(
    ("written", "form", "value"),
    [
        ("42", None, 42),
        ("red", None, "red"),
        ("42", {"type": "string"}, "42"),
        ('"42"', {"type": "string"}, "42"),
        ("42", ONE_FIELD, {"value": "42"}),
        ('{"value": "x"}', ONE_FIELD, {"value": "x"}),
        ("1", {"type": "object", "properties": {"a": {}, "b": {}}}, 1),
    ],
)
def test_what_is_written_is_read_as_the_question_wants_it(written: str, form: dict[str, object], value: object) -> None:
    assert answer_of(written, form) == value
