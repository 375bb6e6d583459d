"""What cannot be loaded is named, with what to do; the rest lives."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sources.commands.programs import box_of, say, schema, source

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of these tests are for POSIX")


async def loaded(given: Any) -> tuple[str | None, list[str], list[str]]:
    """Why a source failed, its tools, and the problems."""
    async with box_of(given) as box:
        names = [spec.name for spec in box.registry.specs() if spec.source == "cmd"]
        return box.report[0].error, names, list(box.problems)


@pytest.mark.parametrize(
    ("connection", "options", "says"),
    [
        ("no-such-command run", {}, "Command 'no-such-command' was not found; install it, or check that PATH contains"),
        ("./missing", {}, "Command './missing' was not found; install it, or check its path"),
        ("/etc/passwd", {}, "'/etc/passwd' is not an executable file; check its mode"),
        ("echo", {"cwd": "/no/such/folder"}, "cannot run in '/no/such/folder': no such folder, or no permission"),
        (
            "echo 'open",
            {},
            "source 'cmd': its connection is not a command line (No closing quotation); check the quotes",
        ),
        ("''", {}, "No command is given"),
        (
            "echo",
            {"auth_type": "bearer", "auth_config": {"token": "s3cret"}},
            "a command does not support auth_type 'bearer'; pass the secret in a variable",
        ),
    ],
)
async def test_a_source_that_cannot_be_says_why(connection: str, options: dict[str, Any], says: str) -> None:
    error, names, _ = await loaded(source(connection, {"run": {}}, **options))

    assert says in str(error)
    assert "s3cret" not in str(error)
    assert names == []


@pytest.mark.programs
async def test_a_source_whose_program_is_missing_leaves_others_alone(tmp_path: Path) -> None:
    missing = source("no-such-command", {"run": {}}).model_copy(update={"name": "missing"})
    async with box_of(missing, source(say(tmp_path), {"run": {}})) as box:
        outcome = await box.call("cmd.run", {})
        states = {state.name: state.ok for state in box.report}
    assert outcome.status == "completed"
    assert states == {"missing": False, "cmd": True}


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (
            {"args": ["{x}", "{y}"], "input_schema": schema(x="string")},
            "{y} names no argument of its input_schema; there are: x",
        ),
        ({"stdin": "{y}", "input_schema": schema()}, "{y} names no argument of its input_schema; there are: none"),
        ({"args": ["{y?-y}"], "input_schema": schema()}, "{y} names no argument"),
        (
            {"args": ["{x}"], "input_schema": schema(x="boolean")},
            "argument 'x' is a boolean and cannot be a word of its own; write {x?--x}",
        ),
        ({"args": ["{x}"], "input_schema": schema(x={"type": ["boolean", "null"]})}, "argument 'x' is a boolean"),
        (
            {"args": ["{x?--x}"], "input_schema": schema(x="string")},
            "{x?--x} is an optional word, but argument 'x' is not a boolean",
        ),
        ({"args": ["{file"]}, "the word '{file' has a brace without its other half; an argument is written {name}"),
        ({"args": ["--to=file}"]}, "the word '--to=file}' has a brace"),
        ({"args": ["{x}}"]}, "the word '{x}}' has a brace"),
        ({"args": ["{x?--x"]}, "the word '{x?--x' has a brace"),
        ({"stdin": "{file"}, "the word '{file' has a brace"),
        ({"args": ["-v{x?5}"]}, "the word '-v{x?5}' has an invalid question mark: {name?--word} is a"),
        ({"args": ["{x?--to={y}}"]}, "the word '{x?--to={y}}' has an invalid question mark"),
        ({"stdin": "{x?yes}!"}, "the word '{x?yes}!' has an invalid question mark"),
    ],
)
async def test_a_tool_that_cannot_be_is_left_out_and_the_others_live(tool: dict[str, Any], says: str) -> None:
    error, names, problems = await loaded(source("echo", {"bad": tool, "good": {}}))

    assert (error, names) == (None, ["cmd.good"])
    assert len(problems) == 1
    assert problems[0].startswith("source 'cmd': tool 'bad' is skipped: ")
    assert says in problems[0]


async def test_an_argument_that_goes_nowhere_is_reported() -> None:
    tool = {"args": ["{x}"], "input_schema": schema(x="string", lost="string")}

    _, names, problems = await loaded(source("echo", {"run": tool}))

    assert names == ["cmd.run"]
    assert problems == ["source 'cmd': tool 'run' does nothing with 'lost'"]


@pytest.mark.programs
async def test_a_schema_may_be_composed_or_open() -> None:
    composed = {"allOf": [schema("x", x="string")], "anyOf": [schema(y="string")]}
    tool = {"args": ["{x}", "{y}"], "input_schema": composed}
    tools = {"composed": tool, "open": {"args": ["a"], "input_schema": {"additionalProperties": True}}}
    async with box_of(source("echo", tools)) as box:
        outcome = await box.call("cmd.composed", {"x": "1", "y": "2"})
        wide = await box.call("cmd.open", {"anything": 1})
        problems = list(box.problems)
    assert (outcome.content, wide.content, problems) == ("1 2", "a", [])


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"properties": ["a"]}, "`properties`"),
        ({"properties": None}, "`properties`"),
        ({"properties": {"a": {}}, "allOf": {"x": 1}}, "`allOf`"),
        ({"properties": {"a": {}}, "required": None}, "`required`"),
        ({"properties": {"a": {}}, "required": "a"}, "`required`"),
    ],
    ids=["list", "null", "no list", "required null", "required text"],
)
async def test_a_schema_of_an_odd_shape_leaves_its_tool_out_and_no_other(odd: dict[str, Any], says: str) -> None:
    tools = {"good": {"args": ["x"]}, "odd": {"args": ["{a}"], "input_schema": odd}}
    error, names, problems = await loaded(source("echo", tools))

    assert (error, names) == (None, ["cmd.good"])
    assert says in problems[0]


async def test_a_part_of_a_schema_that_is_true_says_nothing() -> None:
    tools = {"run": {"args": ["{a}"], "input_schema": {"properties": {"a": {}}, "allOf": [True]}}}

    assert await loaded(source("echo", tools)) == (None, ["cmd.run"], [])


async def test_an_end_of_options_in_the_connection_may_be_for_another_program() -> None:
    async with box_of(source("env -- grep", {"find": {"args": ["{p}", "/etc/passwd"]}})) as box:
        outcome = await box.call("cmd.find", {"p": "-f/etc/hostname"})

    assert "p: begins with '-'" in str(outcome.error)
