"""What a tool asks, answered at the terminal while its call is open, or by a later command."""

import os
import pty
import select
import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.cli.conftest import CONFIG
from tests.cli.program import Run
from tests.cli.terminal import at_a_terminal
from tests.cli.test_pending import interrupted
from toolpost.cli.prompts import discard_typed_ahead, has_typed_ahead, parse_answer, parse_field

pytestmark = pytest.mark.programs

LATER = "answer later: "
ASK = ("tools", "call", "local.ask")
ORDER = ("tools", "call", "old.order")
WIPE = ("tools", "call", "local.wipe", "name=disk")
ONE_FIELD = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
SERVER = """
from typing import Literal

from fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

server = FastMCP("asking")


@server.tool
async def register(ctx: Context) -> str:
    name = await ctx.elicit("Your name?", response_type=str)
    age = await ctx.elicit("Your age?", response_type=int)
    return f"{name.data} is {age.data}"


class Order(BaseModel):
    item: str = Field(description="What you want")
    count: int = Field(ge=1)
    size: Literal["small", "large"] = "small"
    gift: bool = False


@server.tool
async def order(ctx: Context) -> str:
    told = await ctx.elicit("Your order?", response_type=Order)
    return str(told.data)


server.run(show_banner=False)
"""


def test_a_question_is_asked_at_the_terminal_and_the_call_continues(home: Path) -> None:
    typed = {f"Which colour?\r\nYour answer, JSON or text; Enter to {LATER}": b"red\n"}
    done = at_a_terminal(home, typed, *ASK, cold=True)

    assert (done.code, "painted red" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("typed", "code", "told"), [(b"\n", 3, "toolpost pending answer ask_"), (b"\x03", 130, "runs")]
)
def test_who_says_nothing_can_answer_later(home: Path, typed: bytes, code: int, told: str) -> None:
    done = at_a_terminal(home, {LATER: typed}, *ASK)

    assert (done.code, told in done.out) == (code, True)


@pytest.fixture
def older_server(home: Path) -> Path:
    (home / "server.py").write_text(SERVER)
    server = shlex.join(warm.command(home / "server.py"))
    (home / "toolpost.yaml").write_text(
        "policy: exploratory\n"
        "sources:\n"
        f"  - {{name: old, transport: mcp, connection: {server}, cwd: ., options: {{protocol: legacy}}}}\n"
        "  - {name: flows, transport: workflow, connection: ./flows}\n"
    )
    (home / "flows").mkdir()
    (home / "flows" / "shop.yaml").write_text("{name: shop, steps: {order: {tool: old.order}}}")
    return home


def test_an_older_server_gets_all_its_answers_in_the_one_call(older_server: Path) -> None:
    typed = {"value (string, required, Value): ": b"42\n"}
    typed |= {"value (integer, required, Value): ": b"old\n", "Invalid value: ": b"41\n"}

    done = at_a_terminal(older_server, typed, "tools", "call", "old.register")

    assert (done.code, "42 is 41" in done.out) == (0, True), done.out


@pytest.mark.parametrize("called", ["old.order", "flows.shop"])
def test_a_form_is_asked_for_field_by_field(older_server: Path, called: str) -> None:
    typed = {"item (string, required, What you want): ": b"\n", "Invalid value: a value is required": b"tea\n"}
    typed |= {"count (integer, required, Count): ": b"0\n", "expected at least 1": b"2\n"}
    typed |= {"size ('small' or 'large', Size) [small]: ": b"\n", "gift (boolean, Gift) [false]: ": b"yes\n"}

    done = at_a_terminal(older_server, typed, "tools", "call", called)

    assert "item='tea' count=2 size='small' gift=True" in done.out
    assert done.code == 0


def test_a_form_can_be_left_and_it_is_reported_that_the_server_does_not_wait(older_server: Path) -> None:
    done = at_a_terminal(older_server, {"item (string": b"tea\n", "count (integer": b"\x04"}, *ORDER)

    assert (done.code, "only while this command runs" in done.out) == (3, True), done.out


@pytest.mark.parametrize(
    ("typed", "code", "told"),
    [
        (b"y\n", 0, "wiped disk"),
        (b"perhaps\nno\n", 1, "refused local.wipe"),
        (b"\n", 3, "toolpost pending approve ask_"),
    ],
)
def test_a_call_that_needs_a_yes_is_decided_at_the_terminal(home: Path, typed: bytes, code: int, told: str) -> None:
    done = at_a_terminal(home, {"decide later: ": typed}, *WIPE)

    assert 'arguments: {"name": "disk"}' in done.out.partition("decide later: ")[0]
    assert (done.code, told in done.out) == (code, True), done.out
    assert (home / "wiped.txt").exists() == (code == 0)


def test_whoever_may_not_approve_is_not_asked(home: Path) -> None:
    (home / "toolpost.yaml").write_text(f"{CONFIG}approvals: {{four_eyes: true}}\n")

    done = at_a_terminal(home, {}, *WIPE)

    assert (done.code, "decide later" in done.out) == (3, False), done.out


def test_an_answer_needs_a_value_or_a_terminal_to_ask_at(child: Run, home: Path) -> None:
    asked = child(*ASK, "--json").json["pending"]["id"]

    refused = child("pending", "answer", asked)
    left = at_a_terminal(home, {LATER: b"\n"}, "pending", "answer", asked)
    given = at_a_terminal(home, {LATER: b"red\n"}, "pending", "answer", asked)

    assert (refused.code, "give the answer; for no value, write null" in refused.err) == (2, True)
    assert (left.code, "is still open" in left.out) == (1, True)
    assert (given.code, "painted red" in given.out) == (0, True)


def test_without_a_terminal_no_one_is_asked(child: Run) -> None:
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
    assert parse_answer(written, form) == value


@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ("42", {"type": "string"}, "42"),
        ("42", {"type": "integer"}, 42),
        ("Yes", {"type": "boolean"}, True),
        ("Red", {"enum": ["red", "green"]}, "red"),
        ("Rot", {"enum": ["red", "green"], "enumNames": ["rot", "grün"]}, "red"),
        ("two", {"oneOf": [{"const": 1, "title": "one"}, {"const": 2, "title": "Two"}]}, 2),
        ("a, b", {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("odd", {"type": "integer"}, "odd"),
    ],
)
def test_what_is_written_for_a_field_is_read_as_its_schema_wants_it(
    written: str, field: dict[str, object], value: object
) -> None:
    assert parse_field(written, field) == value


def test_what_was_typed_before_a_question_is_no_answer_to_it() -> None:
    outer, inner = pty.openpty()
    try:
        os.write(outer, b"y\n")  # as if a model had written `Run it?` itself
        typed_ahead, _, _ = select.select([inner], [], [], 10)
        discard_typed_ahead(inner)
        left, _, _ = select.select([inner], [], [], 0)
        os.write(outer, b"n\n")
        answer = os.read(inner, 10)
    finally:
        os.close(outer)
        os.close(inner)

    assert (typed_ahead, left, answer) == ([inner], [], b"n\n")


def test_a_line_that_was_pasted_with_the_command_is_for_the_shell(home: Path) -> None:
    done = at_a_terminal(home, {"": b"echo $?\n"}, *WIPE)

    assert done.code == 3
    assert "Run it?" not in done.out
    assert "paused: Allow local.wipe?" in done.out
    assert "toolpost pending approve ask_" in done.out
    assert not (home / "wiped.txt").exists()


def test_a_pasted_line_is_not_read() -> None:
    outer, inner = pty.openpty()
    try:
        before = has_typed_ahead(inner)
        os.write(outer, b"echo $?\n")
        select.select([inner], [], [], 10)
        after, line = has_typed_ahead(inner), os.read(inner, 100)
    finally:
        os.close(outer)
        os.close(inner)

    assert (before, after, line) == (False, True, b"echo $?\n")


def test_the_first_approval_of_the_readme_is_what_a_terminal_shows(home: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("At a terminal, the command prompts you:\n\n```sh\n")[2].partition("```")[0]
    command, *lines = shown.splitlines()
    code = next(block for block in readme.split("```python\n") if "def delete(" in block).partition("```")[0]
    (home / "tools.py").write_text(code)
    (home / "toolpost.yaml").write_text("sources:\n  - {name: notes, transport: python, connection: ./tools.py}\n")

    done = at_a_terminal(home, {"decide later: ": b"\n"}, *shlex.split(command)[2:])

    assert done.code == 3
    assert "\n".join(lines) in done.out.replace("\r\n", "\n")


def test_the_unknown_end_of_a_call_is_asked_for_at_the_terminal(home: Path, toolpost: Run) -> None:
    asked = interrupted(home, toolpost)
    typed = {"Did it happen?": b"maybe\n", "to run it again, Enter to decide later: ": b"y\n"}
    done = at_a_terminal(home, typed, "pending", "answer", asked)

    assert done.code == 0
    assert "Did it happen? y for yes, n for no, r to run it again" in done.out
