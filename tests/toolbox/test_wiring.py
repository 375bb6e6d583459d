"""Which built-in tools a Toolbox offers, and what files they reach: in code as little as was asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolpost import Completed, ConfigError, Failed, Settings, Toolbox, ToolContext, tool
from toolpost.builtin.specs import COLLECTIONS


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def offered(box: Toolbox) -> set[str]:
    async with box:
        return {definition.name for definition in box.registry.to_llm_tools()}


async def test_a_program_offers_a_model_exactly_its_own_tools() -> None:
    assert await offered(Toolbox(tools=[add], settings=Settings(data_dir=None))) == {"add"}


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        (["file_tools"], {*COLLECTIONS["file_tools"]}),
        (["current_time", "artifact_tools"], {"current_time", "artifact_read", "artifact_search"}),
        ("data_tools", {*COLLECTIONS["data_tools"]}),
        (["main_agent_tools"], {*COLLECTIONS["main_agent_tools"]} - {"spawn_task", "reply"}),
        ("none", set[str]()),
    ],
)
async def test_built_in_tools_come_in_by_name_or_collection(asked: Sequence[str] | str, there: set[str]) -> None:
    assert await offered(Toolbox(builtins=asked, settings=Settings(data_dir=None, builtins="all"))) == there


async def test_settings_and_the_parameter_ask_for_the_same() -> None:
    by_settings = await offered(Toolbox(settings=Settings(data_dir=None, builtins="all")))

    assert by_settings == await offered(Toolbox(builtins="all", settings=Settings(data_dir=None)))
    assert len(by_settings) == 32


@pytest.mark.parametrize(("text", "count"), [("", 32), ("builtins: none\n", 0), ("builtins: [system_tools]\n", 4)])
async def test_a_file_has_all_unless_it_says_otherwise(tmp_path: Path, text: str, count: int) -> None:
    file = tmp_path / "toolpost.yaml"
    file.write_text(f"data_dir: null\n{text}")

    assert len(await offered(Toolbox.open(file))) == count
    assert await offered(Toolbox.open(file, builtins=["sleep"])) == {"sleep"}


async def test_a_collection_that_there_is_not_is_reported_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'file_tools'"):
        await offered(Toolbox(builtins=["files_tools"], settings=Settings(data_dir=None)))


@pytest.mark.parametrize("context", [None, ToolContext(), ToolContext(llm_context={"a": 1})])
async def test_file_tools_of_a_program_reach_the_folder_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: ToolContext | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside.txt").write_text("x")
    async with Toolbox(builtins=["file_tools"], settings=Settings(data_dir=None)) as box:
        monkeypatch.chdir("/")
        inside = await box.call("write_file", {"path": f"{tmp_path}/data/a", "content": "x"}, context=context)
        outside = await box.call("read_file", {"path": f"{tmp_path}/outside.txt"}, context=context)

    assert isinstance(inside, Completed)
    assert isinstance(outside, Failed)
    assert "not in allowed paths" in str(outside.error)


@pytest.mark.parametrize("within", ["settings", "context"])
async def test_only_a_program_that_says_so_reaches_every_folder(tmp_path: Path, within: str) -> None:
    (tmp_path / "a.txt").write_text("hello")
    free: dict[str, Any] = {"allowed_paths": None}
    settings = Settings.model_validate({"data_dir": None, "tools": free if within == "settings" else {}})
    context = ToolContext(**free) if within == "context" else None
    async with Toolbox(builtins=["read_file"], settings=settings) as box:
        outcome = await box.call("read_file", {"path": f"{tmp_path}/a.txt"}, context=context)

    assert isinstance(outcome, Completed)
