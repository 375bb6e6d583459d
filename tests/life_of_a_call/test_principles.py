"""What holds for every tool, wherever it comes from and whoever calls it."""

import asyncio
import json
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import SERVERS
from tests.sources.openapi.test_source import little_shop
from tests.sources.webhook.boxes import said
from tests.wire.site import Site
from toolpost import EventBus, ExternalToolConfig, ReactPlanner, Tool, Toolbox, ToolContext, tool
from toolpost.testing import ScriptedModel, tool_calls

ANN = "acme:ann"


def abacus(**options: Any) -> ExternalToolConfig:
    """An MCP server in a process of its own."""
    connection = shlex.join(warm.command(SERVERS / "abacus.py"))
    return ExternalToolConfig(name="abacus", transport="mcp", connection=connection, **options)


def open_box(*tools: Tool, sinks: Any = (), **settings: Any) -> Any:
    """A Toolbox in memory; outcomes are a union, and a test knows which it expects."""
    return Toolbox(tools=tools, settings=PatientSettings.model_validate({"data_dir": None, **settings}), sinks=sinks)


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.req("GEN-16")
async def test_what_an_agent_wants_done_is_done_by_a_tool_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("secret plans")
    wishes = tool_calls(
        ("read_file", {"path": "note.txt"}), ("http_get", {"url": "http://127.0.0.1:9/"}), ("add", {"a": 1})
    )
    model = ScriptedModel(wishes, "done")
    async with open_box(add, builtins="none") as box:
        await ReactPlanner(catalog=box, llm=model).run("look", tool_context={"user_id": ANN})
    assert model.tools[0] == ["add"]
    assert ["not found" in result for result in model.results] == [True, True, False]
    assert "secret plans" not in json.dumps(model.requests)


@pytest.mark.req("GEN-19")
async def test_a_tool_that_blocks_its_thread_holds_up_no_one_and_its_end_is_reported() -> None:
    gate, begun, heard, loop = threading.Event(), asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    bus = EventBus()
    bus.subscribe(None, lambda event: heard.set() if event.code.name == "TOOL_CALL_COMPLETED" else None)

    @tool(side_effects="read")
    def wait() -> str:
        loop.call_soon_threadsafe(begun.set)
        gate.wait(60)
        return "waited"

    async with open_box(add, wait, sinks=[bus]) as box:
        slow = asyncio.create_task(box.call("wait"))
        await begun.wait()
        quick = await box.call("add", {"a": 1, "b": 2})
        assert not slow.done()
        heard.clear()
        gate.set()
        assert (await slow).content == "waited"
        await asyncio.wait_for(heard.wait(), 30)
    assert quick.content == 3


@pytest.mark.programs
@pytest.mark.req("GEN-23")
async def test_an_executor_validates_bounds_and_tells_of_tools_of_every_kind() -> None:
    @tool(side_effects="pure")
    async def forever() -> None:
        await asyncio.Event().wait()

    bus, context = EventBus(keep_history=True), ToolContext("task-1")
    async with open_box(add, forever, policy="exploratory", builtins=["base64_encode"], sources=[abacus()]) as box:
        executor = box.executor(bus)
        custom = await executor.execute("add", {"a": 1, "b": 2}, context)
        server = await executor.execute("abacus.add", {"a": 1, "b": 2}, context)
        builtin = await executor.execute("base64_encode", {"text": "hi"}, context)
        wrong = await executor.execute("abacus.add", {"a": "one"}, context)
        late = await executor.execute("forever", {}, context, timeout_s=0.05)
        broken = await executor.execute("abacus.divide", {"a": 1, "b": 0}, context)
        executor.emit_completion("add", custom, context)
    assert [custom.result, server.result, builtin.result] == [3, {"result": 3}, {"encoded": "aGk="}]
    codes = [(result.error_info or {})["error_code"] for result in (wrong, late, broken)]
    assert codes == ["validation_failed", "timeout", "tool_reported_error"]
    assert bus.history[-1].payload["result"] == 3


@pytest.mark.programs
@pytest.mark.req("GEN-25")
async def test_functions_apis_mcp_servers_and_workflows_are_one_catalog_called_alike() -> None:
    async with Site(said(200, {"sum": 3})) as hook:
        with little_shop() as shop:
            sources = [
                abacus(),
                ExternalToolConfig(name="shop", transport="http", connection=f"{shop}/openapi.json"),
                ExternalToolConfig(
                    name="flow",
                    transport="webhook",
                    connection=hook.url,
                    options={"kind": "plain", "tools": {"sum": {"url": "sum"}}},
                ),
            ]
            async with open_box(add, policy="exploratory", sources=sources) as box:
                wanted = [("add", {"a": 1, "b": 2}), ("abacus.add", {"a": 1, "b": 2}), ("flow.sum", {"a": 1})]
                outcomes = [await box.call(name, arguments) for name, arguments in wanted]
                item = await box.call("shop.get_item", {"item_id": 1})
                events = [[e.code.value for e in await box.events(run_id=done.run_id)] for done in (*outcomes, item)]
    assert [outcome.content for outcome in outcomes] == [3, {"result": 3}, {"sum": 3}]
    assert item.content["name"] == "pen"
    assert events == [[400, 405, 410]] * 4


@pytest.mark.req("GEN-26")
async def test_a_model_only_says_what_it_wants_and_only_reads_what_came_of_it() -> None:
    ran: list[str] = []

    @tool(side_effects="write")
    async def send(to: str) -> str:
        ran.append(to)
        return "sent"

    model = ScriptedModel(tool_calls(("send", {"to": "bob"})), "I sent it.")
    async with open_box(send, policy=[{"tools": ["send"], "action": "deny"}]) as box:
        await ReactPlanner(catalog=box, llm=model).run("Send it", tool_context={"user_id": ANN})
    assert ran == []
    assert "Permission denied" in model.results[0]
    assert json.loads(json.dumps(model.requests)) == model.requests


@pytest.mark.programs
@pytest.mark.req("NRT-01")
async def test_a_call_becomes_a_request_to_an_mcp_server_and_its_answer_the_result() -> None:
    async with open_box(policy="exploratory", sources=[abacus()]) as box:
        done = await box.call("abacus.add", {"a": 2, "b": 3}, user=ANN)
        failed = await box.call("abacus.divide", {"a": 1, "b": 0}, user=ANN)
        executed = await box.executor(EventBus()).execute("abacus.add", {"a": 2, "b": 3}, ToolContext("t"))
    assert (done.status, done.content, done.tool_name) == ("completed", {"result": 5}, "abacus.add")
    assert (failed.error.error_code, "division" in str(failed.error)) == ("tool_reported_error", True)
    assert (executed.success, executed.result) == (True, {"result": 5})
