"""What a command's end means to whoever called it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sources.commands.programs import box_of, schema, script, source
from toolpost.contracts.errors import ToolClientError, ToolServerError
from toolpost.errors import ToolOutputError

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the programs of these tests are for POSIX"),
    pytest.mark.programs,
]


@pytest.mark.parametrize(
    ("output", "written", "content"),
    [
        ("auto", '{"a": [1]}\n', {"a": [1]}),
        ("auto", " [1, 2]", [1, 2]),
        ("auto", "12\n", "12"),
        ("auto", "[no json\n", "[no json"),
        ("auto", "[NaN]\n", "[NaN]"),
        ("auto", "[" * 3000, "[" * 3000),
        ("auto", "", ""),
        ("json", "12", 12),
        ("lines", "a\r\n\nb c\n", ["a", "", "b c"]),
        ("lines", "", []),
        ("text", "two\nlines\n", "two\nlines"),
        ("text", "[1]", "[1]"),
    ],
)
async def test_output_is_read_as_it_was_declared(tmp_path: Path, output: str, written: str, content: Any) -> None:
    (tmp_path / "out").write_bytes(written.encode())
    async with box_of(source("cat", {"run": {"args": ["out"], "output": output}}, cwd=str(tmp_path))) as box:
        outcome = await box.call("cmd.run", {})
    assert outcome.content == content


@pytest.mark.parametrize("output", ["bytes", "auto"])
async def test_bytes_become_an_artifact(tmp_path: Path, output: str) -> None:
    (tmp_path / "out").write_bytes(b"\xff\x00\xfe")
    async with box_of(source("cat", {"run": {"args": ["out"], "output": output}}, cwd=str(tmp_path))) as box:
        outcome = await box.call("cmd.run", {})
        data = await box.store.artifacts.read(outcome.artifacts[0], tenant="local")
    assert data == b"\xff\x00\xfe"


@pytest.mark.parametrize(
    ("written", "says"), [("{", "did not write JSON"), ("", "wrote nothing"), ("[NaN]", "NaN is not a JSON value")]
)
async def test_what_is_not_the_json_it_should_be_is_a_failure(tmp_path: Path, written: str, says: str) -> None:
    (tmp_path / "out").write_text(written)
    async with box_of(source("cat", {"run": {"args": ["out"], "output": "json"}}, cwd=str(tmp_path))) as box:
        outcome = await box.call("cmd.run", {})
    assert isinstance(outcome.error, ToolOutputError)
    assert says in str(outcome.error)


async def test_json_that_is_none_is_shown_as_it_begins_without_secrets(tmp_path: Path) -> None:
    program, tool = script(tmp_path, "echo Sign in first, not with $TOKEN"), {"output": "json"}
    async with box_of(source(program, {"run": tool}, env={"TOKEN": "t0ken-value"})) as box:
        outcome = await box.call("cmd.run", {})
    assert str(outcome.error).endswith(r"It begins: 'Sign in first, not with [redacted]\n'")


async def test_where_there_is_no_json_at_all_stderr_may_say_why(tmp_path: Path) -> None:
    async with box_of(source(script(tmp_path, "echo sign in first >&2"), {"run": {"output": "json"}})) as box:
        outcome = await box.call("cmd.run", {})
    assert str(outcome.error).endswith("wrote nothing to stdout, where JSON was expected; it said: sign in first")


@pytest.mark.parametrize("outputs", ["report", "strict"])
async def test_an_output_schema_is_held_against_the_output(tmp_path: Path, outputs: str) -> None:
    tool = {"output": "json", "output_schema": schema("n", n="integer")}
    config = source(script(tmp_path, """echo '{"n": "one"}'"""), {"run": tool}, outputs=outputs)
    async with box_of(config) as box:
        outcome = await box.call("cmd.run", {})
    if outputs == "strict":
        assert outcome.error.error_code == "output_invalid"
    else:
        assert len(outcome.meta["output_issues"]) == 1


# ---------------------------------------------------------------- what fails


async def test_an_exit_code_that_is_no_success_is_a_failure_with_its_stderr(tmp_path: Path) -> None:
    async with box_of(source(script(tmp_path, "echo out; echo no such thing >&2; exit 3"), {"run": {}})) as box:
        outcome = await box.call("cmd.run", {})
    assert isinstance(outcome.error, ToolClientError)
    assert outcome.error.error_code == "command_failed"
    assert str(outcome.error).endswith("script.sh' failed with exit code 3: no such thing")
    assert not outcome.error.is_retryable


async def test_a_failure_says_what_stdout_said_where_stderr_is_silent(tmp_path: Path) -> None:
    tools = {"talks": {"args": ["talks"]}, "silent": {"args": ["silent"]}}
    async with box_of(source(script(tmp_path, '[ "$1" = silent ] || echo out; exit 1'), tools)) as box:
        talks, silent = await box.call("cmd.talks", {}), await box.call("cmd.silent", {})
    assert str(talks.error).endswith("exit code 1: out")
    assert str(silent.error).endswith("exit code 1, and said nothing")


async def test_other_codes_can_be_a_success(tmp_path: Path) -> None:
    tool = {"args": ["-c", "x", "empty"], "success_codes": [0, 1], "output": "json"}
    (tmp_path / "empty").touch()
    async with box_of(source("grep", {"count": tool}, cwd=str(tmp_path))) as box:
        outcome = await box.call("cmd.count", {})
    assert (outcome.content, outcome.meta["exit_code"]) == (0, 1)


async def test_a_command_that_a_signal_ended_names_it(tmp_path: Path) -> None:
    async with box_of(source(script(tmp_path, "kill -TERM $$"), {"run": {}})) as box:
        outcome = await box.call("cmd.run", {})
    assert isinstance(outcome.error, ToolServerError)
    assert "was ended by SIGTERM" in str(outcome.error)


async def test_no_secret_is_reported_by_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", "t0ken-passed-on")
    passed, given = {"pass_env": ["OUR_TOKEN"]}, {"API_KEY": "k3y-given"}
    async with box_of(source(script(tmp_path, "env >&2; exit 1"), {"run": {}}, options=passed, env=given)) as box:
        outcome = await box.call("cmd.run", {})
    assert "OUR_TOKEN=[redacted]" in str(outcome.error)
    assert "API_KEY=[redacted]" in str(outcome.error)


async def test_a_secret_inside_of_what_is_passed_on_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_DATABASE", "server=db;password=pa55-inside;user=x")
    passed = {"pass_env": ["OUR_DATABASE"]}
    async with box_of(source(script(tmp_path, "echo $OUR_DATABASE >&2; exit 1"), {"run": {}}, options=passed)) as box:
        outcome = await box.call("cmd.run", {})
    assert str(outcome.error).endswith("server=db;password=[redacted];user=x")


async def test_of_a_long_complaint_the_end_is_reported(tmp_path: Path) -> None:
    async with box_of(source(script(tmp_path, "seq 100000 >&2; echo the end >&2; exit 1"), {"run": {}})) as box:
        outcome = await box.call("cmd.run", {})
    assert str(outcome.error).endswith("100000\nthe end")
    assert len(str(outcome.error)) < 2500
