"""Command lines as sources, through the front door."""

import sys
from pathlib import Path

import pytest

from tests.sources.commands.programs import box_of, say, schema, script, source
from toolpost import Paused
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolValidationError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs of these tests are for POSIX")


@pytest.mark.programs
@pytest.mark.req("FUT-16")
async def test_only_what_is_written_down_runs(tmp_path: Path) -> None:
    tools = {"hello": {"args": ["hello", "{name}"]}, "hidden": {"args": ["hidden"]}}
    async with box_of(source(say(tmp_path), tools, tool_exclude=["hidden"])) as box:
        names = [spec.name for spec in box.registry.specs() if spec.source == "cmd"]
        said = await box.call("cmd.hello", {"name": "Ann; id"})
        other = await box.call("cmd.hello", {"name": "Ann", "more": "x"})
    assert names == ["cmd.hello"]
    assert said.content["words"] == ["hello", "Ann; id"]
    assert other.error.error_code == "validation_failed"


@pytest.mark.programs
@pytest.mark.req("UTCP-03", "MISC-04")
async def test_a_connection_alone_is_one_tool_that_takes_the_words_behind_it(tmp_path: Path) -> None:
    async with box_of(source(f"{say(tmp_path)} --fixed", {})) as box:
        (spec,) = [spec for spec in box.registry.specs() if spec.source == "cmd"]
        said = await box.call("cmd.call", {"args": ["--loud", "two words; id"]})
        bare = await box.call("cmd.call", {})
        refused = await box.call("cmd.call", {"args": "--loud"})
    assert (spec.name, spec.safety.destructive, spec.replay) == ("cmd.call", None, "unsafe")
    assert said.content["words"] == ["--fixed", "--loud", "two words; id"]
    assert bare.content["words"] == ["--fixed"]
    assert refused.error.error_code == "validation_failed"


@pytest.mark.req("FUT-16")
async def test_a_connection_alone_runs_nothing_before_a_person_agreed(tmp_path: Path) -> None:
    program = script(tmp_path, f"touch {tmp_path}/ran")
    async with box_of(source(program, {}), policy="standard") as box:
        outcome = await box.call("cmd.call", {"args": ["x"]})
    assert (outcome.status, box.problems) == ("paused", [])
    assert not (tmp_path / "ran").exists()


@pytest.mark.programs
@pytest.mark.req("MISC-04")
async def test_the_connection_is_a_program_with_fixed_words(tmp_path: Path) -> None:
    connection = f"{say(tmp_path)} --name 'two words' ${{HOME}}"
    async with box_of(source(connection, {"run": {"args": ["end"]}})) as box:
        outcome = await box.call("cmd.run", {})
    assert outcome.content["words"][:2] == ["--name", "two words"]
    assert outcome.content["words"][-1] == "end"


@pytest.mark.programs
async def test_a_tool_without_a_schema_has_one_from_its_placeholders(tmp_path: Path) -> None:
    tool = {"args": ["{a}", "--b={b}", "{loud?--loud}"], "stdin": "{text}"}
    async with box_of(source(say(tmp_path), {"run": tool})) as box:
        [spec] = [spec for spec in box.registry.specs() if spec.name == "cmd.run"]
        outcome = await box.call("cmd.run", {"a": "1", "b": "2", "text": "in", "loud": True})
        missing = await box.call("cmd.run", {"a": "1", "b": "2"})
    assert spec.input_schema["required"] == ["a", "b", "text"]
    assert spec.input_schema["properties"]["loud"] == {"type": "boolean"}
    assert (outcome.content["words"], outcome.content["stdin"]) == (["1", "--b=2", "--loud"], "in")
    assert missing.error.error_code == "validation_failed"


async def test_a_missing_argument_is_refused_before_anything_runs(tmp_path: Path) -> None:
    tool = {"args": ["{name}"], "input_schema": schema("name", name="string")}
    async with box_of(source(script(tmp_path, f"touch {tmp_path}/ran"), {"run": tool})) as box:
        outcome = await box.call("cmd.run", {})
        with pytest.raises(ToolValidationError, match="name: required"):
            await box.registry.get("cmd.run").execute({}, ToolContext())
    assert outcome.error.error_code == "validation_failed"
    assert not (tmp_path / "ran").exists()


async def test_an_argument_that_would_go_nowhere_is_refused(tmp_path: Path) -> None:
    tool = {"args": ["{name}"], "input_schema": schema("name", name="string")}
    async with box_of(source(say(tmp_path), {"run": tool})) as box:
        outcome = await box.call("cmd.run", {"name": "Ann", "nmae": "Bob"})
    assert outcome.error.error_code == "validation_failed"
    assert "nmae" in str(outcome.error)


@pytest.mark.programs
async def test_stdin_is_a_template_and_closed_without_one(tmp_path: Path) -> None:
    given = schema("who", who="string", data="object", more="string")
    tools = {"write": {"stdin": "{{}} {who}: {data}{more}", "input_schema": given}, "none": {}}
    async with box_of(source(say(tmp_path), tools)) as box:
        wrote = await box.call("cmd.write", {"who": "Ann\0", "data": {"n": 1}})
        none = await box.call("cmd.none", {})
    assert wrote.content["stdin"] == '{} Ann\0: {"n":1}'
    assert none.content["stdin"] == ""


@pytest.mark.programs
async def test_a_command_sees_few_variables_and_those_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOST_SECRET", "WANTED"):
        monkeypatch.setenv(name, f"our {name}")
    monkeypatch.setenv("LANG", "C.UTF-8")
    given = source(
        say(tmp_path), {"run": {}}, options={"pass_env": ["WANTED", "NOT_SET"]}, env={"TOKEN": "t"}, cwd=str(tmp_path)
    )
    async with box_of(given) as box:
        said = (await box.call("cmd.run", {})).content
    assert {"WANTED": "our WANTED", "TOKEN": "t", "LANG": "C.UTF-8"}.items() <= said["env"].items()
    assert "PATH" in said["env"]
    assert {"HOST_SECRET", "NOT_SET"}.isdisjoint(said["env"])
    assert said["cwd"] == str(tmp_path.resolve())


@pytest.mark.programs
async def test_a_command_is_external_unless_someone_says_otherwise(tmp_path: Path) -> None:
    tools = {"act": {}, "look": {"side_effects": "read"}}
    async with box_of(source(say(tmp_path), tools), policy="standard") as box:
        acted, looked = await box.call("cmd.act", {}), await box.call("cmd.look", {})
    assert isinstance(acted, Paused)
    assert looked.status == "completed"
