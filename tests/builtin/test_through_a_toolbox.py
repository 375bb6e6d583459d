"""Built-in tools through a Toolbox: under its policy, with its folders, told as its events."""

from pathlib import Path

import pytest

from toolpost import Toolbox
from toolpost.builtin.loader import file_tools
from toolpost.builtin.system import system_tools
from toolpost.configuration.settings import Settings
from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.outcomes import Completed, Failed, Paused


def box(folder: Path, policy: str = "exploratory") -> Toolbox:
    settings = Settings.model_validate(
        {"data_dir": None, "builtins": "none", "policy": policy, "tools": {"allowedPaths": [str(folder)]}}
    )
    return Toolbox(tools=[*file_tools(), *system_tools()], settings=settings)


@pytest.mark.req("PSEC-01")
async def test_only_the_configured_folders_are_open(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    async with box(tmp_path) as opened:
        inside = await opened.call("read_file", {"path": f"{tmp_path}/a.txt"})
        outside = await opened.call("read_file", {"path": "/etc/passwd"})

    assert isinstance(inside, Completed)
    assert inside.content["content"] == "hello"
    assert isinstance(outside, Failed)
    assert isinstance(outside.error, ToolPermissionError)
    assert outside.error.tool_name == "read_file"


async def test_deleting_and_moving_ask_a_person_and_writing_does_not(tmp_path: Path) -> None:
    path = f"{tmp_path}/a.txt"
    async with box(tmp_path, policy="standard") as opened:
        written = await opened.call("write_file", {"path": path, "content": "x"})
        deleted = await opened.call("delete_file", {"path": path})
        moved = await opened.call("move_file", {"from": path, "to": f"{path}2"})

    assert isinstance(written, Completed)
    assert isinstance(deleted, Paused)
    assert isinstance(moved, Paused)
    assert (tmp_path / "a.txt").read_text() == "x"


async def test_a_variable_of_a_task_applies_to_its_other_calls_and_is_not_reported(tmp_path: Path) -> None:
    async with box(tmp_path) as opened:
        await opened.call("set_env", {"key": "CITY", "value": "Bern-and-nowhere-else"}, run_id="t1")
        same = await opened.call("get_env", {"key": "CITY"}, run_id="t1")
        other = await opened.call("get_env", {"key": "CITY"}, run_id="t2")
        told = await opened.events(run_id="t1")

    assert isinstance(same, Completed)
    assert same.content["value"] == "Bern-and-nowhere-else"
    assert isinstance(other, Failed)
    set_events = [event for event in told if "set_env" in repr(event)]
    assert set_events
    assert "Bern-and-nowhere-else" not in repr(set_events)
