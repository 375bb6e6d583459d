"""Commands that a UTCP manual describes: its schemas, its words, and no shell."""

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.sources.commands import programs
from tests.sources.commands.manuals import command, manual, published, request, source, written
from tests.sources.commands.programs import box_of, say, schema
from toolpost import Completed, ExternalToolConfig, Toolbox
from toolpost.configuration.settings import file_schema
from toolpost.policy.secret_shapes import MASK

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of these tests are for POSIX")

PLACE = "UTCP_ARG_x_UTCP_END"
NAMED = schema("x", x="string")


async def words_of(folder: Path, text: str, arguments: dict[str, Any], **options: Any) -> Any:
    """The words that a program is given by a command of a manual."""
    path = written(folder, command("t", f"{say(folder)} {text}", template=options.pop("template", None)))
    async with box_of(source(path, **options)) as box:
        outcome = await box.call("cmd.t", arguments)
    assert outcome.status == "completed", (outcome.error, box.problems)
    return outcome.content["words"]


async def loaded(given: Any) -> tuple[str, set[str], str]:
    """Why a source failed, its tools, and the problems."""
    async with box_of(given) as box:
        names = {spec.name for spec in box.registry.specs() if spec.source == "cmd"}
        return str(box.report[0].error), names, "\n".join(box.problems)


@pytest.mark.programs
async def test_every_command_of_a_manual_is_a_tool_with_its_schemas(tmp_path: Path) -> None:
    outputs = {"type": "object", "properties": {"words": {"type": "array"}}}
    told: dict[str, Any] = {"inputs": NAMED, "outputs": outputs, "tags": ["greeting"]}
    path = written(tmp_path, command("greet", f"{say(tmp_path)} hello {PLACE}", **told), command("list", "ls"))
    async with box_of(source(path)) as box:
        spec = box.registry.find("cmd.greet").spec
        outcome = await box.call("cmd.greet", {"x": "Ida; rm -rf $HOME `id`"})
        names = {spec.name for spec in box.registry.specs() if spec.source == "cmd"}

    assert names == {"cmd.greet", "cmd.list"}
    assert (spec.description, spec.output_schema, spec.side_effects) == ("The tool greet.", outputs, "external")
    assert spec.input_schema == {**NAMED, "additionalProperties": False}
    assert {"cli", "greeting"} <= {*spec.tags}
    assert outcome.content["words"] == ["hello", "Ida; rm -rf $HOME `id`"]


@pytest.mark.programs
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'"hello {PLACE}!"', ["hello v!"]),
        (f"'hello {PLACE}'", ["hello v"]),
        (f"--name={PLACE} a\tb", ["--name=v", "a", "b"]),
        (r"a\ b \' \\ '' " + PLACE, ["a b", "'", "\\", "", "v"]),
        (r'"a\"b\\c\d \$x"', ['a"b\\c\\d $x']),
        ("'$x `y`' {} a{b}c '{x}' \"{x?--y}\"", ["$x `y`", "{}", "a{b}c", "{x}", "{x?--y}"]),
        ("'*' a'b'\"c\"d 5$ \"5$\"", ["*", "abcd", "5$", "5$"]),
        ("a~b a#b", ["a~b", "a#b"]),
        ("a\\\nb \\\n c", ["ab", "c"]),
        (f"-- {PLACE}", ["--", "v"]),
    ],
)
async def test_a_command_becomes_the_words_that_a_shell_would_make_of_it(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    assert await words_of(tmp_path, text, {"x": "v"} if PLACE in text else {}) == words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ls | wc", "its command has '|', which only a shell interprets; put it in quotes if it is text"),
        ("ls; ls", "has ';'"),
        ("ls && ls", "has '&'"),
        ("ls > file", "has '>'"),
        ("ls *", "has '*'"),
        ("ls a?", "has '?'"),
        ("ls [ab]", "has '['"),
        ("ls {a,b}", "has '{'"),
        ("ls {1..3}", "has '{'"),
        ("ls {a,'b c'}", "has '{'"),
        ("ls ~/x", "has '~'"),
        ("ls a=~", "has '~'"),
        ("ls # all", "has '#'"),
        ("ls $(id)", "has '$'"),
        ("ls `id`", "has '`'"),
        ('ls "$(id)"', "has '$'"),
        ("ls $1", "has '$'"),
        ("ls $'x'", "has '$'"),
        ("ls\nls", r"has '\n'"),
        ("ls 'x", "has a quote ' that is never closed"),
        ("A=b ls", "its command begins by setting a variable, which only a shell does; use env_vars"),
        ("''", "its command is empty"),
        (f"{PLACE} x", "an argument as its program"),
        ("ls UTCP_ARG_1_UTCP_END", "its command has a place for '1'"),
        (f"bash -c '{PLACE}'", "has 'bash -c', which would execute an argument as code"),
        (f"ls '{PLACE}", "and it is not clear how bash interprets it"),
        ("no-such-command", "Command 'no-such-command' was not found"),
        ("cd /tmp", "Command 'cd' was not found"),
    ],
)
async def test_what_only_a_shell_could_run_is_left_out_and_the_others_live(
    tmp_path: Path, text: str, told: str
) -> None:
    error, names, problems = await loaded(source(written(tmp_path, command("bad", text), command("good", "ls"))))

    assert (error, names) == ("None", {"cmd.good"})
    assert "bad' is skipped: " in problems
    assert told in problems


async def test_several_steps_are_for_a_shell(tmp_path: Path) -> None:
    error, _, _ = await loaded(source(written(tmp_path, command("bad", "ls", "ls"))))

    assert error == (
        "no tool can be used: tool 'cmd.bad' is skipped: it has 2 steps, which only a shell runs; "
        "write its args into options.tools, or connect the manual with transport: utcp"
    )


@pytest.mark.programs
async def test_an_argument_is_refused_that_would_be_an_option_and_one_that_is_absent_is_left_out(
    tmp_path: Path,
) -> None:
    inputs = schema("x", x="string", most="integer", loud="boolean")
    text = f"{say(tmp_path)} {PLACE} --most UTCP_ARG_most_UTCP_END UTCP_ARG_loud_UTCP_END"
    async with box_of(source(written(tmp_path, command("t", text, inputs=inputs)))) as box:
        few = await box.call("cmd.t", {"x": "a"})
        all_of_them = await box.call("cmd.t", {"x": "a", "most": -1, "loud": True})
        option = await box.call("cmd.t", {"x": "--help"})
        missing = await box.call("cmd.t", {})

    assert few.content["words"] == ["a"]
    assert all_of_them.content["words"] == ["a", "--most", "-1", "true"]
    assert "x: begins with '-' and would be parsed as an option" in str(option.error)
    assert 'missing required "x"' in str(missing.error)


@pytest.mark.programs
async def test_a_command_of_the_operator_has_its_schema_from_the_manual(tmp_path: Path) -> None:
    path = written(tmp_path, request("find", inputs=NAMED), command("other", "ls"))
    given = source(path, {"find": {"args": ["find", "--", "{x}"], "side_effects": "read"}}, connection=say(tmp_path))
    async with box_of(given) as box:
        spec = box.registry.find("cmd.find").spec
        outcome = await box.call("cmd.find", {"x": "-y"})
        names = {spec.name for spec in box.registry.specs() if spec.source == "cmd"}
        problems = list(box.problems)

    assert (names, problems) == ({"cmd.find", "cmd.other"}, [])
    assert spec.input_schema["properties"] == NAMED["properties"]
    assert (spec.description, spec.side_effects) == ("The tool find.", "read")
    assert outcome.content["words"] == ["find", "--", "-y"]


@pytest.mark.programs
async def test_what_an_operator_says_of_a_tool_comes_before_what_its_manual_says(tmp_path: Path) -> None:
    tools = {"t": {"description": "Mine.", "output": "lines", "stdin": "{x}"}}
    async with box_of(source(written(tmp_path, command("t", "cat", inputs=NAMED)), tools)) as box:
        spec = box.registry.find("cmd.t").spec
        outcome = await box.call("cmd.t", {"x": "1\n2"})

    assert spec.description == "Mine."
    assert outcome.content == ["1", "2"]


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ({"fnid": {"args": ["{x}"]}}, "'fnid' is skipped: the manual has no such tool; did you mean 'find'?"),
        ({"zzz": {"args": ["{x}"]}}, "'zzz' is skipped: the manual has no such tool; there are: find, list."),
        ({"find": {"side_effects": "read"}}, "'cmd.find' is skipped: its manual calls it by http, not by a command"),
        ({"find": {"args": ["{y}"]}}, "'find' is skipped: {y} names no argument of its input_schema; there are: x"),
    ],
    ids=["misspelled", "unknown", "no command", "other arguments"],
)
async def test_a_tool_that_does_not_fit_its_manual_is_left_out(
    tmp_path: Path, tools: dict[str, Any], told: str
) -> None:
    path = written(tmp_path, request("find", inputs=NAMED), command("list", "ls"))

    error, names, problems = await loaded(source(path, tools, connection="echo"))

    assert (error, names) == ("None", {"cmd.list"})
    assert told in problems


async def test_a_tool_with_a_schema_of_its_own_need_not_be_in_the_manual(tmp_path: Path) -> None:
    tools = {"own": {"args": ["{y}"], "input_schema": schema("y", y="string")}}
    given = source(written(tmp_path, command("list", "ls")), tools, connection="echo")

    assert await loaded(given) == ("None", {"cmd.own", "cmd.list"}, "")


async def test_words_of_the_operator_need_a_program(tmp_path: Path) -> None:
    given = source(written(tmp_path, command("list", "ls")), {"list": {"args": ["-l"]}})

    error, _, _ = await loaded(given)

    assert "tool 'list' is skipped: its args need a program before them; write it as the connection" in error


@pytest.mark.programs
@pytest.mark.parametrize(
    ("document", "told"),
    [
        (None, "options.manual: the file"),
        ("Just words.", "is not a UTCP manual: it contains text"),
        ('{"tools": ', "cannot be read: it is not JSON"),
        ('{"mcpServers": {}}', "it looks like a list of MCP servers"),
        ('{"openapi": "3.1.0", "paths": {}}', "describes no commands; connect it with transport: utcp"),
        (json.dumps(manual()), "has no tools; check whether it is the right one"),
        (json.dumps(manual({"name": "x"})), "no tool can be used: tool 'x' is skipped: it has no tool_call_template"),
    ],
    ids=["missing", "text", "broken", "other format", "api", "empty", "no template"],
)
async def test_an_invalid_manual_is_reported_and_affects_no_other_source(
    tmp_path: Path, document: str | None, told: str
) -> None:
    path = tmp_path / "manual"
    if document is not None:
        path.write_text(document)
    other = programs.source("echo", {"hi": {"args": ["hi"]}}).model_copy(update={"name": "other"})
    async with box_of(source(str(path)), other) as box:
        failed, fine = box.report
        outcome = await box.call("other.hi", {})

    assert told in str(failed.error)
    assert (failed.ok, fine.ok, outcome.content) == (False, True, "hi")


async def test_a_file_in_the_place_of_a_manual_is_never_run(tmp_path: Path) -> None:
    program = tmp_path / "run"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)

    error, _, _ = await loaded(source(str(program)))

    assert "is not a UTCP manual" in error
    assert not (tmp_path / "ran").exists()


async def test_a_remote_manual_never_brings_commands_by_itself() -> None:
    async with published(command("t", "echo hi")) as site:
        error, names, _ = await loaded(source(site.url))

    assert names == set()
    assert "it is called by cli, and the manual may only use http; write options: " in error
    assert "{allowed_communication_protocols: [http, cli]} to allow it" in error


@pytest.mark.programs
async def test_a_remote_manual_brings_commands_when_the_operator_lets_it() -> None:
    allowed = {"allowed_communication_protocols": ["cli"]}
    async with published(command("t", "echo hi")) as site, box_of(source(site.url, options=allowed)) as box:
        outcome = await box.call("cmd.t", {})

    assert outcome.content == "hi"


@pytest.mark.programs
async def test_a_remote_manual_may_describe_what_the_operator_wrote() -> None:
    tools = {"t": {"args": ["mine", "{x}"]}}
    async with (
        published(command("t", "echo theirs", inputs=NAMED)) as site,
        box_of(source(site.url, tools, connection="echo")) as box,
    ):
        outcome = await box.call("cmd.t", {"x": "1"})
        refused = await box.call("cmd.t", {"x": 1})

    assert outcome.content == "mine 1"
    assert refused.status == "failed"


@pytest.mark.programs
async def test_variables_are_filled_in_where_they_stand(tmp_path: Path) -> None:
    template = {"env_vars": {"WORD": "${GREETING}, you"}}
    options = {"options": {"variables": {"GREETING": "hello", "NAME": "Ida * x"}}, "env": {"OTHER": "o"}}

    words = await words_of(tmp_path, '$WORD "$NAME" ${OTHER}', {}, template=template, **options)

    assert words == ["hello, you", "Ida * x", "o"]


async def test_variables_that_no_one_set_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, command("a", "echo $NOPE $NOPE"), command("b", "ls", template={"env_vars": {"X": "${Y}"}}))

    error, _, _ = await loaded(source(path))

    assert (
        "'cmd.a' is skipped: its variables are not set: NOPE. Write them into options.variables of the source" in error
    )
    assert "'cmd.b' is skipped: its variables are not set: Y. Write them" in error
    assert "or set the environment variable cmd_NOPE" in error


@pytest.mark.programs
async def test_a_variable_is_not_reported_when_its_command_fails(tmp_path: Path) -> None:
    path = written(tmp_path, command("t", "ls /no/such/$KEY"))
    async with box_of(source(path, options={"variables": {"KEY": "s3cret-value"}})) as box:
        outcome = await box.call("cmd.t", {})

    assert "exit code 2" in str(outcome.error)
    assert "s3cret-value" not in str(outcome.error)


@pytest.mark.programs
async def test_a_secret_that_a_manual_hands_on_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", "t0ken-inherited")
    template = {"inherit_env_vars": ["OUR_TOKEN"], "env_vars": {"API_KEY": "k3y-written"}}
    program = programs.script(tmp_path, "echo $OUR_TOKEN $API_KEY >&2; exit 1")
    async with box_of(source(written(tmp_path, command("t", program, template=template)))) as box:
        outcome = await box.call("cmd.t", {})

    assert str(outcome.error).endswith("exit code 1: [redacted] [redacted]")


@pytest.mark.programs
async def test_a_secret_that_a_command_prints_is_neither_handed_on_nor_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", "t0ken-inherited")
    monkeypatch.setenv("OUR_API_KEY", "a line of the k3y\nthe other l1ne of it")
    path = written(tmp_path, command("t", "printenv OUR_TOKEN", template={"inherit_env_vars": ["OUR_TOKEN"]}))
    own = {"pass_env": ["OUR_API_KEY"], "tools": {"t": {}}}
    passed = ExternalToolConfig(name="own", transport="cli", connection="printenv OUR_API_KEY", options=own)
    async with box_of(source(path), passed) as box:
        results = [(await box.call(name, {})).content for name in ("cmd.t", "own.t")]
        told = str([event.payload for event in await box.events()])

    assert results == [MASK, MASK]
    assert [told.count(secret) for secret in ("t0ken-inherited", "k3y", "l1ne")] == [0, 0, 0]


@pytest.mark.programs
@pytest.mark.parametrize("place", ["manual", "template", "source"])
async def test_a_command_runs_beside_its_manual_unless_a_folder_is_written(tmp_path: Path, place: str) -> None:
    folders = {name: tmp_path / name for name in ("manual", "template", "source")}
    for folder in folders.values():
        folder.mkdir()
    template = {} if place == "manual" else {"working_dir": str(folders["template"])}
    options: dict[str, Any] = {"cwd": str(folders["source"])} if place == "source" else {}
    path = written(folders["manual"], command("t", say(tmp_path), template=template))
    async with box_of(source(path, **options)) as box:
        outcome = await box.call("cmd.t", {})

    assert outcome.content["cwd"] == str(folders[place])


@pytest.mark.programs
async def test_a_manual_is_found_beside_the_configuration_that_names_it(tmp_path: Path) -> None:
    written(tmp_path, command("t", "echo hi"))
    file = tmp_path / "toolpost.yaml"
    one = {"name": "cmd", "transport": "cli", "options": {"manual": "./tools.utcp.json"}}
    settings = {"data_dir": None, "policy": "exploratory", "sources": [one]}
    file.write_text(json.dumps(settings))
    jsonschema.validate(settings, file_schema())
    async with Toolbox.open(file) as box:
        outcome = await box.call("cmd.t", {})

    assert isinstance(outcome, Completed)
    assert outcome.content == "hi"


def test_editors_learn_that_a_source_without_a_manual_needs_a_connection() -> None:
    settings = {"sources": [{"name": "cmd", "transport": "cli", "options": {"pass_env": ["HOME"]}}]}

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(settings, file_schema())
