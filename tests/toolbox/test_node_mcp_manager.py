"""MCPManager: several servers, each on its own."""

import logging
import shlex
import time
from typing import Any

import pytest

from tests import warm
from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import SERVERS, mirror
from toolpost import (
    ConfigError,
    ExternalToolConfig,
    MCPManager,
    Settings,
    Tool,
    Toolbox,
    ToolCategory,
    ToolContext,
    ToolNode,
    ToolResult,
)
from toolpost.catalog.registry import ToolRegistry
from toolpost.configuration.settings import McpServerSettings
from toolpost.errors import ToolNodeError

pytestmark = pytest.mark.programs

ABACUS = SERVERS / "abacus.py"


def abacus(name: str = "abacus", **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name=name, transport="mcp", connection=shlex.join(warm.command(ABACUS)), **options)


def broken(**options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name="broken", transport="mcp", connection="no-such-program-anywhere", **options)


def assert_timed(result: ToolResult) -> None:
    """The times are those of the clock on the wall, in milliseconds."""
    assert result.started_at > time.time() * 1000 - 600_000
    assert result.completed_at is not None
    assert result.duration_ms == result.completed_at - result.started_at >= 0


async def test_a_manager_that_is_left_disconnects_its_servers() -> None:
    async with MCPManager() as manager:
        await manager.connect_all([abacus()])
        result = await manager.call_tool("abacus", "add", {"a": 1, "b": 2})
    assert result.result == {"result": 3}
    with pytest.raises(ToolNodeError, match="connect_all"):
        manager.list_tools("abacus")
    late = await manager.call_tool("abacus", "add", {"a": 1, "b": 2})
    assert (late.success, late.error) == (False, "no MCP server is connected; call connect_all first")


@pytest.mark.req("PMCP-01", "PMCP-03", "PMCP-10")
async def test_a_server_that_fails_is_reported_and_the_others_work(caplog: pytest.LogCaptureFixture) -> None:
    manager = MCPManager()
    with caplog.at_level(logging.WARNING):
        report = await manager.connect_all([abacus(), broken(), abacus("off", enabled=False)])
    assert report.connected == ["abacus"]
    assert list(report.failed) == ["broken"]
    assert "no-such-program-anywhere" in report.failed["broken"]
    assert "broken" in caplog.text
    assert [tool.spec.name for tool in manager.list_tools("abacus")][:2] == ["abacus.add", "abacus.divide"]
    assert (await manager.call_tool("abacus", "add", {"a": 1, "b": 2})).result == {"result": 3}
    await manager.disconnect_all()
    await manager.disconnect_all()
    with pytest.raises(ToolNodeError, match="connect_all"):
        manager.list_tools("abacus")


@pytest.mark.req("PMCP-08", "PMCP-10", "DEF-07")
async def test_a_tool_that_fails_is_a_result_that_says_so() -> None:
    manager = MCPManager()
    await manager.connect_all([abacus()])
    result = await manager.call_tool("abacus", "divide", {"a": 1, "b": 0})
    unknown = await manager.call_tool("abacus", "subtract", {})
    await manager.disconnect_all()
    assert not result.success
    assert "division" in str(result.error)
    assert not unknown.success
    for failed in (result, unknown):
        assert_timed(failed)


async def test_a_required_server_stops_everything() -> None:
    manager = MCPManager()
    with pytest.raises(ConfigError, match="required source 'broken'"):
        await manager.connect_all([abacus(), broken(required=True)])
    assert manager.registry.list() == []


@pytest.mark.req("PMCP-05", "PMCP-07", "PMCP-11")
async def test_tools_enter_the_registries_of_agents_and_run_like_any_other() -> None:
    manager, main, agent = MCPManager(), ToolRegistry(), ToolRegistry()
    await manager.connect_all([abacus()])
    count = manager.load_tools(main, agent)
    [add] = [tool for tool in main.list() if tool.spec.name == "abacus.add"]
    [definition] = [d for d in agent.to_llm_tools() if d.name == "abacus__add"]
    result = await add.execute({"a": 2, "b": 3}, ToolContext())
    await manager.disconnect_all()
    assert count == len(main.list()) == len(agent.list())
    assert definition.description == "[abacus] Add two numbers."
    assert definition.parameters["required"] == ["a", "b"]
    assert add.spec.category is ToolCategory.MCP
    assert result.success
    assert result.result == {"result": 5}
    assert_timed(result)


@pytest.mark.req("PMCP-06")
async def test_servers_of_a_configuration_file_say_whose_tools_they_are_in_a_toolbox_too() -> None:
    command, *args = warm.command(ABACUS)
    servers = {"mcpServers": [{"name": "sums", "command": command, "args": args}]}
    settings = Settings.model_validate({"data_dir": None, "builtins": "none", "tools": servers})
    async with Toolbox(settings=settings) as box:
        [shown] = box.registry.to_llm_tools(["sums.add"])
    manager = MCPManager()
    await manager.connect_all(settings.tools.mcp_servers)
    manager.load_tools(registry := ToolRegistry())
    await manager.disconnect_all()
    assert shown.description == "[sums] Add two numbers."
    assert registry.find("sums.add").spec.description == "[sums] Add two numbers."


@pytest.mark.req("PTYPE-03", "PMCP-08", "GEN-17")
async def test_a_tool_of_a_node_says_when_it_ran_and_for_how_long() -> None:
    async with ToolNode(config=abacus(), registry=ToolRegistry()) as node:
        [add] = [tool for tool in node.get_tools() if tool.spec.name == "abacus.add"]
        result = await add.execute({"a": 2, "b": 3}, ToolContext())
    assert isinstance(add, Tool)
    assert result.result == {"result": 5}
    assert_timed(result)


@pytest.mark.req("PMCP-04", "PMCP-10")
async def test_a_server_that_is_said_to_speak_sse_may_speak_streamable_http() -> None:
    with mirror() as url:
        manager = MCPManager()
        report = await manager.connect_all([McpServerSettings(name="web", transport="sse", url=url)])
        await manager.disconnect_all()
    assert report.connected == ["web"]


@pytest.mark.req("MISC-19")
async def test_the_short_form_of_configuration_files_carries_environment_and_folder(tmp_path: Any) -> None:
    command, *args = warm.command(ABACUS)
    settings = PatientSettings.model_validate(
        {
            "tools": {
                "mcpServers": [
                    {"name": "a", "command": command, "args": args, "env": {"X": "1"}, "cwd": str(tmp_path)},
                    {"name": "b", "command": "nothing", "enabled": False},
                ]
            }
        }
    )
    first, second = settings.all_sources()
    assert (first.env, first.cwd) == ({"X": "1"}, str(tmp_path))
    manager = MCPManager()
    report = await manager.connect_all([first, second])
    await manager.disconnect_all()
    assert (report.connected, report.failed) == (["a"], {})


@pytest.mark.req("PMCP-01")
async def test_a_manager_takes_plain_entries_as_a_configuration_file_has_them() -> None:
    command, *args = warm.command(ABACUS)
    entries = [
        {
            "name": "local",
            "transport": "stdio",
            "command": command,
            "args": args,
            "env": {},
            "cwd": ".",
            "enabled": True,
        },
        {"name": "off", "transport": "sse", "url": "http://localhost:3000/sse", "enabled": False},
    ]
    async with MCPManager() as manager:
        report = await manager.connect_all(entries)
        result = await manager.call_tool("local", "add", {"a": 1, "b": 2})
    assert report.connected == ["local"]
    assert result.result == {"result": 3}
    with pytest.raises(ConfigError, match="comand") as refused:
        await MCPManager().connect_all([{"name": "odd", "comand": "x", "env": {"TOKEN": "s3cret-of-it"}}])
    assert "s3cret-of-it" not in str(refused.value)
