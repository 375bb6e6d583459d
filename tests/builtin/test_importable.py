"""Built-in tools as objects that are imported."""

from pathlib import Path

import pytest

import toolpost.builtin
from toolpost import Completed, EventBus, Failed, Settings, Toolbox, ToolContext, ToolExecutor, ToolRegistry
from toolpost.builtin import (
    all_task_tools,
    allTaskTools,
    base64_encode,
    main_agent_tools,
    mainAgentTools,
    read_file,
    reflectionTools,
    reply,
    spawn_task,
)
from toolpost.builtin.specs import COLLECTIONS


async def test_a_tool_is_tried_without_anything_around_it(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("hello\n")

    done = await read_file.execute({"path": str(tmp_path / "test.txt")}, {"taskId": "test"})
    missing = await read_file.execute({"path": str(tmp_path / "nonexistent.txt")}, {"taskId": "test"})
    elsewhere = await read_file.execute({"path": "/etc/passwd"}, {"taskId": "test", "allowedPaths": [str(tmp_path)]})

    assert (read_file.name, done.success, done.result["content"]) == ("read_file", True, "hello\n")
    assert not missing.success
    assert "not found" in str(missing.error)
    assert not elsewhere.success
    assert "Permission denied" in str(elsewhere.error)


@pytest.mark.req("PCOL-02")
def test_a_main_agent_has_the_tools_that_read_and_its_own_two() -> None:
    names = ["current_time", "memory_list", "memory_read", "task_list", "task_replay", "session_archive_read"]

    assert [tool.name for tool in mainAgentTools] == [*names, "spawn_task", "reply"]


@pytest.mark.req("PCOL-01", "PCOL-03")
def test_collections_have_both_spellings() -> None:
    assert (all_task_tools, main_agent_tools) == (allTaskTools, mainAgentTools)
    assert {"spawn_task", "reply"}.isdisjoint(tool.name for tool in allTaskTools)
    assert [tool.name for tool in reflectionTools] == [*COLLECTIONS["reflection_tools"]]


async def test_tools_of_an_agent_say_what_they_would_do_and_do_nothing_without_one() -> None:
    said = await reply.execute({"text": "hi", "channel_id": "web"}, {"taskId": "t"})
    spawned = await spawn_task.execute({"description": "d", "input": "i"}, {"taskId": "t"})
    async with Toolbox(tools=[reply], settings=Settings(data_dir=None)) as box:
        called = await box.call("reply", {"text": "hi", "channelId": "web"})

    assert said.result == {"action": "reply", "text": "hi", "channel_id": "web", "reply_to": None}
    assert spawned.result["action"] == "spawn_task"
    assert isinstance(called, Failed)
    assert called.error.error_code == "no_agent"


async def test_a_registry_of_ones_own_takes_a_whole_collection() -> None:
    registry = ToolRegistry()
    registry.register_many(all_task_tools)

    result = await ToolExecutor(registry, EventBus()).execute("base64_encode", {"text": "ha"}, ToolContext("t"))
    refused = await ToolExecutor(registry, EventBus()).execute(
        "http_get", {"url": "http://localhost:9"}, ToolContext("t")
    )

    assert result.result == {"encoded": "aGE="}
    assert "not a public address" in str(refused.error)


async def test_a_toolbox_uses_its_own_tool_in_place_of_an_imported_one(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, builtins=["base64_encode"])
    async with Toolbox(tools=[base64_encode, toolpost.builtin.memory_write], settings=settings) as box:
        written = await box.call("memory_write", {"path": "facts/a.md", "content": "x"})

    assert isinstance(written, Completed)
    assert [path.read_text() for path in tmp_path.glob("user_memory/*/facts/a.md")] == ["x"]


def test_what_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(toolpost.builtin, "run_command")
