"""Commands: run to their end, or on in the background until they are stopped, with nothing left behind."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.builtin.caller import Caller
from toolpost.builtin.background_commands import BackgroundCommands
from toolpost.builtin.commands import command_tools
from toolpost.builtin.system import TaskEnvironment, system_tools
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory
from toolpost.processes.commands import CommandRunner

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a shell"),
    pytest.mark.programs,
]


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncGenerator[Caller]:
    environment, background = TaskEnvironment(), BackgroundCommands()
    async with CommandRunner() as commands:
        yield Caller([*command_tools(commands, background, environment), *system_tools(environment)], [tmp_path])
        await background.close()


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(20):
        while not path.exists() or not path.read_text().strip():
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def test_a_command_says_how_it_ended(caller: Caller, tmp_path: Path) -> None:
    found = await caller.do("run_command", command="pwd; echo oops >&2; exit 3")

    assert (found["status"], found["exit_code"]) == ("failed", 3)
    assert (found["stdout"], found["stderr"]) == (f"{tmp_path}\n", "oops\n")
    assert (found["command_id"], found["truncated"]) == (None, False)


async def test_words_are_run_without_a_shell(caller: Caller) -> None:
    found = await caller.do("run_command", command=["echo", "$HOME; ls"])

    assert (found["status"], found["stdout"]) == ("completed", "$HOME; ls\n")


@pytest.mark.req("FUT-13")
async def test_tools_that_execute_code_have_the_category_for_it(caller: Caller) -> None:
    found = await caller.do("run_command", command=[sys.executable, "-c", "print(sum(n * n for n in range(4)))"])

    assert (found["status"], found["stdout"]) == ("completed", "14\n")
    assert {spec.name for spec in caller.registry.specs() if spec.category is ToolCategory.CODE} == {
        *("run_command", "command_output", "command_stop"),
    }


async def test_a_command_sees_what_the_task_has_set_and_no_secret_of_the_process(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "nobody-may-see-this")
    await caller.do("set_env", key="CITY", value="Bern")

    found = await caller.do("run_command", command="env", env={"TEA": "green"})

    assert "CITY=Bern\n" in found["stdout"]
    assert "TEA=green\n" in found["stdout"]
    assert "GITHUB_TOKEN" not in found["stdout"]


@pytest.mark.parametrize("cwd", ["/", "/etc", ".."])
async def test_a_folder_that_is_not_allowed_is_refused(caller: Caller, cwd: str) -> None:
    error = await caller.refused("run_command", command="pwd", cwd=cwd)

    assert error["message"].startswith("Permission denied: ")
    assert "not in allowed paths" in error["message"]


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(caller: Caller, tmp_path: Path) -> None:
    error = await caller.refused("run_command", command="setsid sleep 600 & echo $! > pid; sleep 600", timeoutS=1)

    assert error["error_code"] == "timeout"
    assert not alive(await pid_in(tmp_path / "pid"))


async def test_much_output_is_cut_in_its_middle(caller: Caller) -> None:
    found = await caller.do("run_command", command="echo first; seq 100000; echo last")

    assert found["truncated"] is True
    assert found["stdout"].startswith("first\n1\n")
    assert found["stdout"].endswith("100000\nlast\n")
    assert "characters left out" in found["stdout"]
    assert len(found["stdout"]) < 70_000


async def test_a_program_that_is_missing_is_reported(caller: Caller) -> None:
    error = await caller.refused("run_command", command=["no-such-program-here"])

    assert "was not found" in error["message"]


async def test_a_command_continues_in_the_background(caller: Caller, tmp_path: Path) -> None:
    command = "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 4"
    begun = await caller.do("run_command", command=command, runInBackground=True)
    assert (begun["status"], begun["exit_code"]) == ("running", None)
    (tmp_path / "go").touch()

    found = await caller.do("command_output", commandId=begun["command_id"], waitS=20)

    assert (found["status"], found["exit_code"], found["output"]) == ("failed", 4, "one\ntwo\n")


async def test_what_a_command_wrote_so_far_can_be_read_while_it_runs(caller: Caller) -> None:
    begun = await caller.do("run_command", command="echo one; sleep 600", run_in_background=True)
    async with asyncio.timeout(20):
        while not (found := await caller.do("command_output", command_id=begun["command_id"]))["output"]:
            await asyncio.sleep(0.01)

    assert (found["status"], found["output"]) == ("running", "one\n")


async def test_stopping_ends_the_command_and_all_it_started(caller: Caller, tmp_path: Path) -> None:
    command = "setsid sleep 600 & echo $! > pid; sleep 600"
    begun = await caller.do("run_command", command=command, run_in_background=True)
    pid = await pid_in(tmp_path / "pid")
    assert alive(pid)

    stopped = await caller.do("command_stop", command_id=begun["command_id"])
    later = await caller.do("command_output", command_id=begun["command_id"])

    assert not alive(pid)
    assert (stopped["status"], later["status"]) == ("stopped", "stopped")


async def test_stopping_what_has_ended_changes_nothing(caller: Caller) -> None:
    begun = await caller.do("run_command", command="exit 0", run_in_background=True)
    await caller.do("command_output", command_id=begun["command_id"], wait_s=20)

    stopped = await caller.do("command_stop", command_id=begun["command_id"])

    assert (stopped["status"], stopped["exit_code"]) == ("completed", 0)


async def test_a_background_command_belongs_to_who_started_it(caller: Caller) -> None:
    caller.context = ToolContext(user_id="acme:ann", tenant_id="acme")
    begun = await caller.do("run_command", command="sleep 600", run_in_background=True)
    caller.context = ToolContext(user_id="acme:bob", tenant_id="acme")

    for name in ("command_output", "command_stop"):
        error = await caller.refused(name, command_id=begun["command_id"])
        assert error["error_code"] == "command_not_found"


async def test_there_are_not_too_many_at_a_time(caller: Caller) -> None:
    for _ in range(20):
        await caller.do("run_command", command=["sleep", "600"], run_in_background=True)

    error = await caller.refused("run_command", command=["sleep", "600"], run_in_background=True)

    assert error["error_code"] == "too_many_commands"


async def test_closing_ends_what_runs_in_the_background(tmp_path: Path) -> None:
    background = BackgroundCommands()
    async with CommandRunner() as commands:
        caller = Caller(command_tools(commands, background), [tmp_path])
        await caller.do("run_command", command="echo $$ > pid; sleep 600", run_in_background=True)
        pid = await pid_in(tmp_path / "pid")
        await background.close()
        assert not alive(pid)


def test_running_a_command_asks_a_person() -> None:
    specs = {made.spec.name: made.spec for made in command_tools(CommandRunner(), BackgroundCommands())}

    assert specs["run_command"].safety.destructive is True
    assert specs["command_output"].safety.destructive is False


async def test_nothing_that_a_command_in_the_background_writes_at_once_is_lost(caller: Caller) -> None:
    command = "echo first >&2; seq 1 5000; printf 'name? '; sleep 600"
    begun = await caller.do("run_command", command=command, run_in_background=True)
    async with asyncio.timeout(20):
        while not (found := await caller.do("command_output", command_id=begun["command_id"]))["output"].endswith("? "):
            await asyncio.sleep(0.01)

    assert found["output"].splitlines() == ["first", *map(str, range(1, 5001)), "name? "]
    assert not found["truncated"]


async def test_of_a_flood_in_the_background_the_end_is_kept(caller: Caller) -> None:
    begun = await caller.do("run_command", command=["seq", "1", "1000000"], run_in_background=True)

    found = await caller.do("command_output", command_id=begun["command_id"], wait_s=60)

    assert (found["status"], found["truncated"]) == ("completed", True)
    assert len(found["output"]) <= 64 * 1024
    assert found["output"].splitlines() == [*map(str, range(1_000_001 - found["output"].count("\n"), 1_000_001))]


async def test_a_command_in_the_background_that_takes_too_long_is_ended(caller: Caller, tmp_path: Path) -> None:
    command = "sleep 600 & echo $! > pid; sleep 600"
    begun = await caller.do("run_command", command=command, run_in_background=True, timeout_s=1)

    found = await caller.do("command_output", command_id=begun["command_id"], wait_s=60)

    assert (found["status"], found["exit_code"]) == ("failed", None)
    assert "did not end within 1 s" in found["error"]
    assert not alive(await pid_in(tmp_path / "pid"))
