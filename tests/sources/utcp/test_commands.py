"""Scripts of cli templates: values never become code, and a command that fails is a failure."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.sources.utcp.serving import cli, in_file, manual, names, source, tool, toolbox
from toolpost import Completed
from toolpost.contracts.events import EventCode
from toolpost.errors import ToolClientError, ToolConnectionError, ToolTimeoutError, ToolValidationError

pytestmark = pytest.mark.programs

NAUGHTY = ["$(touch x)", "`id`", '"; exit 3; "', "'; exit 3; '", "a  b\nc", "$HOME", "-rf *", "\\", "ü", ""]


async def called(template: dict[str, Any], arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    async with toolbox(source(manual(tool("t", template)), **options)) as box:
        assert box.problems == []
        return await box.call("m.t", arguments or {})


@pytest.mark.parametrize("value", NAUGHTY, ids=range(len(NAUGHTY)))
@pytest.mark.parametrize(
    "place",
    [
        "printf '%s>' \\<UTCP_ARG_a_UTCP_END",
        "printf '%s>' \"<UTCP_ARG_a_UTCP_END\"",
        "printf '%s>' '<UTCP_ARG_a_UTCP_END'",
    ],
    ids=["bare", "double", "single"],
)
async def test_a_value_is_one_word_and_never_code(place: str, value: str) -> None:
    outcome = await called(cli(place), {"a": value})

    assert outcome.content == f"<{value}>"


async def test_values_stand_beside_text_and_escapes() -> None:
    command = """printf '%s|' a\\'UTCP_ARG_x_UTCP_END "b\\"UTCP_ARG_x_UTCP_END" 'c\\UTCP_ARG_n_UTCP_END'"""

    outcome = await called(cli(command.replace("c\\UTCP", "c\\ UTCP")), {"x": "'\"", "n": True})

    assert outcome.content == "a''\"|b\"'\"|c\\ true|"


async def test_json_is_data_and_all_else_is_text() -> None:
    json = await called(cli("""echo '{"a": [1]}'"""))
    text = await called(cli("echo 12"))

    assert (json.content, text.content) == ({"a": [1]}, "12")


async def test_a_command_that_fails_is_a_failure_with_what_it_said() -> None:
    outcome = await called(cli("echo out; echo sorry >&2; exit 3"))

    assert isinstance(outcome.error, ToolClientError)
    assert "exit code 3: sorry" in str(outcome.error)


async def test_what_is_said_on_the_side_does_not_spoil_the_result() -> None:
    outcome = await called(cli("""echo warning >&2; echo '{"ok": true}'"""))

    assert outcome.content == {"ok": True}


async def test_a_step_reads_what_the_step_before_wrote_and_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    steps = ["cd UTCP_ARG_dir_UTCP_END && pwd", 'echo "was in: $CMD_0_OUTPUT"; basename "$PWD"']

    outcome = await called(cli(*steps), {"dir": str(tmp_path / "here")})

    assert outcome.content == f"was in: {tmp_path / 'here'}\nhere"


async def test_the_steps_that_count_are_reported_in_order() -> None:
    steps: list[dict[str, Any]] = [
        {"command": "echo one", "append_to_final_output": True},
        {"command": "echo two"},
        {"command": "echo three", "append_to_final_output": True},
        {"command": "echo four", "append_to_final_output": False},
    ]

    outcome = await called(cli(*steps))

    assert outcome.content == "one\nthree"


async def test_no_step_runs_after_one_that_failed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    outcome = await called(cli("echo no luck; exit 4", "touch UTCP_ARG_mark_UTCP_END"), {"mark": str(mark)})

    assert "exit code 4: no luck" in str(outcome.error)
    assert not mark.exists()


@pytest.mark.parametrize("arguments", [{}, {"a": None}])
async def test_a_missing_argument_is_refused_before_anything_runs(tmp_path: Path, arguments: dict[str, Any]) -> None:
    mark = tmp_path / "mark"

    outcome = await called(cli(f"touch {mark}; echo UTCP_ARG_a_UTCP_END"), arguments)

    assert isinstance(outcome.error, ToolValidationError)
    assert "a: its command needs it" in str(outcome.error)
    assert not mark.exists()


async def test_a_command_sees_what_its_manual_lets_it_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHERS_SECRET", "s")
    monkeypatch.setenv("WANTED", "w")
    told = 'echo "${OTHERS_SECRET-none} ${WANTED-none} ${GIVEN-none} ${PATH:+path}"'

    tools = [tool("usual", cli(told, env_vars={"GIVEN": "g"})), tool("exact", cli(told, inherit_env_vars=["WANTED"]))]
    async with toolbox(source(in_file(tmp_path, manual(*tools)))) as box:
        usual = await box.call("m.usual", {})
        exact = await box.call("m.exact", {})

    assert usual.content == "none none g path"
    assert exact.content.startswith("none w none")


async def test_a_variable_of_the_operator_reaches_the_script_as_a_value() -> None:
    outcome = await called(cli('printf %s "$TOKEN $5 $CMD_9_OUTPUT$ref"'), options={"variables": {"TOKEN": "$(id)'\""}})

    assert outcome.content == "$(id)'\""


async def test_a_command_runs_where_its_manual_says(tmp_path: Path) -> None:
    outcome = await called(cli("pwd", working_dir=str(tmp_path)))

    assert outcome.content == str(tmp_path)


async def test_a_folder_that_is_not_there_is_reported() -> None:
    outcome = await called(cli("pwd", working_dir="/no/such/folder"))

    assert isinstance(outcome.error, ToolConnectionError)
    assert "/no/such/folder" in str(outcome.error)


async def test_a_command_that_is_not_there_is_reported() -> None:
    outcome = await called(cli("no-such-command-at-all"))

    assert "no-such-command-at-all: command not found" in str(outcome.error)


async def test_a_command_that_never_ends_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    outcome = await called(cli(f"sleep 600 & echo $! > {file}; wait"), timeout_s=5.0)

    assert isinstance(outcome.error, ToolTimeoutError)
    assert not _runs(int(file.read_text()))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_command_that_floods_is_ended() -> None:
    outcome = await called(cli("yes"))

    assert outcome.error.error_code == "output_too_large"


async def test_a_command_of_very_many_lines_does_not_drown_what_is_told_of_others() -> None:
    async with toolbox(source(manual(tool("t", cli("seq 100000; seq 100000 >&2"))))) as box:
        outcome = await box.call("m.t", {})
        told = [event for event in await box.events() if event.code is EventCode.SUBAGENT_ACTION]

    assert outcome.status == "completed"
    assert 0 < len(told) < 1000


async def test_what_a_command_does_is_unknown_so_a_person_is_asked() -> None:
    async with toolbox(source(manual(tool("t", cli("echo hi")))), policy="standard") as box:
        outcome = await box.call("m.t", {})
        spec = box.registry.find("m.t").spec

    assert outcome.status == "paused"
    assert (spec.side_effects, spec.safety.network) == ("external", False)


@pytest.mark.req("MISC-04", "UTCP-03", "GEN-06")
async def test_a_command_is_a_tool_with_an_argument_for_each_place() -> None:
    command = "printf '%s-%s' UTCP_ARG_a_UTCP_END UTCP_ARG_b_UTCP_END"
    async with toolbox(source(command, utcp_mode="base_url")) as box:
        outcome = await box.call("m.call", {"a": "x", "b": 2})
        refused = await box.call("m.call", {"a": "x"})

    assert isinstance(outcome, Completed)
    assert outcome.content == "x-2"
    assert refused.error.error_code == "validation_failed"


async def test_a_command_may_write_the_manual(tmp_path: Path) -> None:
    (tmp_path / "program.sh").write_text(
        """cat <<'END'\n{"utcp_version": "1.0.1", "tools": [{"name": "hi", "tool_call_template":
        {"call_template_type": "cli", "commands": [{"command": "echo hi"}]}}]}\nEND\n"""
    )
    async with toolbox(source(f"bash {tmp_path}/program.sh", utcp_mode="manual_url")) as box:
        outcome = await box.call("m.hi", {})

    assert outcome.content == "hi"


async def test_a_command_that_fails_to_write_a_manual_is_reported() -> None:
    async with toolbox(source("echo broken >&2; exit 2", utcp_mode="manual_url")) as box:
        [state] = box.report

    assert not state.ok
    assert "exit code 2: broken" in str(state.error)


PLACE = "UTCP_ARG_p_UTCP_END"


@pytest.mark.parametrize(
    "command",
    [
        f'echo "found: $(grep "{PLACE}" file)"',
        f'echo "`printf %s "{PLACE}"`"',
        f"echo ${{x:-{PLACE}}}",
        f"# don't\nprintf %s {PLACE}",
        f"cat <<EOF\n{PLACE}\nEOF",
        f"echo $'it\\'s' {PLACE}",
        f'echo "\\{PLACE}"',
        f"echo 'open {PLACE}",
        "echo UTCP_ARG_my-arg_UTCP_END",
        f"echo $(({PLACE} + 1))",
        f"echo $[{PLACE} + 1]",
        f"(( {PLACE} > 3 ))",
        f"[[ {PLACE} -gt 3 ]]",
        f"a[{PLACE}]=1",
        f"let x={PLACE}",
        f"eval {PLACE}",
        f"bash -c 'echo {PLACE}'",
        f"/bin/sh -ec 'echo {PLACE}'",
        f"python3 -c 'print({PLACE})'",
        f"sed 's/a/{PLACE}/' file",
    ],
)
async def test_a_tool_whose_argument_could_become_code_is_left_out(command: str) -> None:
    async with toolbox(source(manual(tool("bad", cli(command)), tool("good", cli("echo"))))) as box:
        found, told = names(box), box.problems

    assert found == {"m.good"}
    assert len(told) == 1
    assert "tool 'm.bad' is skipped: its command has" in told[0]


async def test_nor_may_another_step_read_it_as_code() -> None:
    async with toolbox(
        source(manual(tool("bad", cli(f"n={PLACE}", "echo $((n * 2))")), tool("good", cli("echo"))))
    ) as box:
        assert names(box) == {"m.good"}


async def test_plain_substitutions_may_stand_beside_an_argument() -> None:
    command = f'# say it\nX=1; printf %s "$(echo a) ${{X}} {PLACE} $X" # done'

    outcome = await called(cli(command), {"p": "$(id)"})

    assert outcome.content == "a 1 $(id) 1"


@pytest.mark.parametrize("place", [PLACE, f'"{PLACE}"', f"'{PLACE}'"], ids=["bare", "double", "single"])
async def test_an_argument_that_looks_like_an_option_is_refused(place: str) -> None:
    refused = await called(cli(f"grep {place} /etc/hostname"), {"p": "-f/etc/hostname"})
    behind = await called(cli(f"printf %s x={place}"), {"p": "-x"})
    ended = await called(cli(f"printf -- {place}"), {"p": "-x"})
    number = await called(cli(f"printf %s; test 1 -gt {place} && echo yes"), {"p": -5})

    assert "p: begins with '-' and would be parsed as an option" in str(refused.error)
    assert [behind.content, ended.content, number.content] == ["x=-x", "-x", "yes"]


async def test_a_step_keeps_to_what_it_says_of_errors() -> None:
    outcome = await called(cli("set -e\nfalse\necho went on", "echo two"))

    assert "exit code 1" in str(outcome.error)


async def test_a_step_that_ends_the_script_early_is_a_failure_and_the_last_one_may_end_it() -> None:
    early = await called(cli("echo first; exit 0", "echo second"))
    last = await called(cli("echo first", 'echo "$CMD_0_OUTPUT, second"; exit 0'))

    assert "a step ended the script before its end" in str(early.error)
    assert last.content == "first, second"


async def test_a_step_may_wait_and_leave_something_running() -> None:
    outcome = await called(cli("sleep 600 >/dev/null & true & wait $!; echo a", "wait $!; echo $CMD_0_OUTPUT"))

    assert outcome.content == "a"


async def test_a_step_that_floods_is_ended_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    flood = await called(cli("yes", "echo x"), timeout_s=120.0)
    late = await called(cli("trap '' TERM; while :; do sleep 1; done", "echo x"), timeout_s=1.0)

    assert flood.error.error_code == "output_too_large"
    assert isinstance(late.error, ToolTimeoutError)
    assert list(tmp_path.glob("toolpost-steps-*")) == []


async def test_neither_progress_nor_errors_tell_a_secret() -> None:
    command = 'set -x; : "$WORD"; sleep 0.3; env | grep DB_WORD >&2; exit 1'
    options = {"options": {"variables": {"WORD": "Bearer s3cretword"}}, "env": {"DB_WORD": "s3cretenv"}}
    async with toolbox(source(manual(tool("t", cli(command))), **options)) as box:
        outcome = await box.call("m.t", {})
        told = repr(await box.events())

    assert "DB_WORD=[redacted]" in str(outcome.error)
    assert "s3cret" not in str(outcome.error) + told
