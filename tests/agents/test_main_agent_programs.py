"""A main agent with a real MCP server, and one whose process is killed in the middle of a task."""

import asyncio
import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests import warm
from toolpost import EventBus, EventCode, MCPManager, Settings, Toolbox, ToolRegistry, tool
from toolpost.agents import Agent, MainAgent, Reply
from toolpost.testing import ScriptedModel, tool_calls

pytestmark = pytest.mark.programs

SERVER = """
from fastmcp import FastMCP

server = FastMCP("abacus")


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    return a + b


server.run(show_banner=False)
"""


@pytest.mark.slow
@pytest.mark.req("PMCP-09", "MISC-18")
async def test_servers_connect_before_and_disconnect_before_the_agent_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    for kind, name in ((MCPManager, "connect_all"), (MCPManager, "disconnect_all"), (Agent, "stop")):
        _note(monkeypatch, kind, name, order)
    (tmp_path / "abacus.py").write_text(SERVER)
    program, *words = warm.command(Path("abacus.py"))
    server = {"name": "abacus", "command": program, "args": words, "cwd": str(tmp_path), "trust": True}
    settings = {"data_dir": str(tmp_path / "data"), "lock": None, "tools": {"mcpServers": [server]}}
    said, bus = list[Reply](), EventBus(keep_history=True)
    calling = tool_calls(("abacus__add", {"a": 1, "b": 2}), ("spawn_task", {"description": "sum", "input": "1 + 2"}))
    model = ScriptedModel(calling, _answer, _answer, "")
    tasks = ScriptedModel(tool_calls(("abacus__add", {"a": 1, "b": 2})), "3")

    async with MainAgent(settings, model, task_llm=tasks, on_reply=said.append, bus=bus, reflect=False) as agent:
        registries: list[ToolRegistry] = [agent.registry, agent.agent.registry]
        has_both = [{"abacus.add", "current_time"} <= {spec.name for spec in one.specs()} for one in registries]
        await agent.send("web", "1 + 2?")
        await asyncio.wait_for(agent.idle(), 30)

    assert has_both == [True, True]
    assert order == ["connect_all", "disconnect_all", "stop"]
    assert "abacus__add" in model.tools[0]
    assert "\n3\n" in tasks.results[0]
    assert [reply.text for reply in said] == ["It is 3."]
    calls = [event for event in bus.history if event.code is EventCode.TOOL_CALL_COMPLETED]
    assert sum(event.call.tool_name == "abacus.add" for event in calls) == 2


def _answer(messages: list[dict[str, Any]]) -> Any:
    """Reply once the task has ended."""
    ended = any(str(message["content"]).endswith("completed] 3") for message in messages)
    replied = any("It is 3." in json.dumps(message.get("tool_calls")) for message in messages)
    return tool_calls(("reply", {"text": "It is 3.", "channelId": "web"})) if ended and not replied else ""


def _note(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, order: list[str]) -> None:
    real = getattr(kind, name)

    async def noted(self: Any, *args: Any) -> Any:
        order.append(name)
        return await real(self, *args)

    monkeypatch.setattr(kind, name, noted)


HOST = dedent(
    """
    import asyncio, sys
    from toolpost import Settings, Toolbox, tool
    from toolpost.agents import MainAgent
    from toolpost.testing import ScriptedModel, tool_calls


    @tool(side_effects="write")
    async def ship(what: str) -> str:
        with open(sys.argv[1] + "/ledger", "a") as ledger:
            print(what, file=ledger)
        if what == "owl":
            print("hanging", flush=True)
            await asyncio.Event().wait()
        return f"{what} shipped"


    async def main():
        spawn = ("spawn_task", {"description": "work", "input": "ship a cat and an owl"})
        reply = ("reply", {"text": "on it", "channel_id": "web"})
        model = ScriptedModel(tool_calls(spawn, reply), tool_calls(("sleep", {"duration": 60})))
        task = ScriptedModel(*(tool_calls(("ship", {"what": what})) for what in ("cat", "owl")))
        async with Toolbox(tools=[ship], settings=Settings(data_dir=sys.argv[1], builtins=["sleep"])) as box:
            own = ["main_agent_tools", "sleep"]
            async with MainAgent(box, model, task_llm=task, own_tools=own, user="acme:ann") as agent:
                await agent.send("web", "work")
                await asyncio.Event().wait()


    asyncio.run(main())
    """
)


@tool(side_effects="write")
async def ship(what: str) -> str:
    raise AssertionError(f"{what} is shipped again")


async def test_a_process_that_is_killed_leaves_a_session_and_a_task_that_continue(tmp_path: Path) -> None:
    sessions = tmp_path / "tenants" / "acme" / "sessions" / "ann" / "current.jsonl"
    (tmp_path / "host.py").write_text(HOST)
    with warm.Program(tmp_path / "host.py", str(tmp_path)) as host:
        assert await asyncio.to_thread(host.stdout.readline) == "hanging\n"
        async with asyncio.timeout(30):
            while '"name":"sleep"' not in sessions.read_text():
                await asyncio.sleep(0.01)
        host.kill()

    asked = tool_calls(("task_list", {}), ("reply", {"text": "I was away.", "channel_id": "web"}))
    model = ScriptedModel(*[lambda messages: asked if "happened?" in messages[-1]["content"] else ""] * 9)
    worker, said = ScriptedModel("Both are on their way."), list[Reply]()
    async with (
        Toolbox(tools=[ship], settings=Settings(data_dir=tmp_path, builtins=["sleep"])) as box,
        MainAgent(box, model, task_llm=worker, user="acme:ann", on_reply=said.append, reflect=False) as agent,
    ):
        (task,) = agent.tasks
        async with asyncio.timeout(30):
            while task.state != "suspended":
                await asyncio.sleep(0.01)
        (waiting,) = task.waiting
        await box.answer(waiting.pending_id, "owl shipped", by="acme:ben", decision="happened")
        await task.wait(timeout_s=30)
        await agent.send("web", "what happened?")
        await asyncio.wait_for(agent.idle(), 30)

    assert (task.result, worker.results) == ("Both are on their way.", ["cat shipped", "owl shipped"])
    assert (tmp_path / "ledger").read_text().split() == ["cat", "owl"]
    closed = [message for message in model.requests[0] if message["role"] == "tool"]
    assert json.loads(closed[-1]["content"]) == {"cancelled": True, "reason": "process restarted"}
    (listed,) = json.loads(next(text for text in model.results if "input_text" in text))
    assert (listed["input_text"], listed["status"]) == ("ship a cat and an owl", "completed")
    assert [reply.text for reply in said] == ["I was away."]
