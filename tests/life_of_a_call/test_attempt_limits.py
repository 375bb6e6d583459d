"""`timeout_s` of a source bounds one attempt, `deadline_s` the call, on every way to a tool."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport

from tests.gateway.serving import served
from tests.life_of_a_call.conftest import MakeBox
from tests.wire.site import Received, Site, reply
from toolpost import EventCode, ExternalToolConfig, MCPManager, RetryPolicy, ToolNode, ToolRegistry
from toolpost.errors import ToolTimeoutError

ANN = "acme:ann"
server: FastMCP[Any] = FastMCP("hesitant")
begun: list[str] = []


@server.tool(annotations={"readOnlyHint": True})
async def hesitate() -> str:
    """Answer the second time."""
    begun.append("hesitate")
    if len(begun) == 1:
        await asyncio.Event().wait()
    return "at last"


@server.tool(annotations={"readOnlyHint": True})
async def hang() -> str:
    """Answer never."""
    begun.append("hang")
    await asyncio.Event().wait()
    return "never"


@server.tool(annotations={"readOnlyHint": False, "destructiveHint": False})
async def pay() -> str:
    """Answer never, and have an effect perhaps."""
    begun.append("pay")
    await asyncio.Event().wait()
    return "never"


def hesitant(**options: Any) -> dict[str, Any]:
    begun.clear()
    connection = f"memory:{__name__}:server"
    return {"name": "hesitant", "transport": "mcp", "connection": connection, "trust": True, **options}


Calling = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def through_a_toolbox(folder: Path, source: dict[str, Any]) -> AsyncIterator[Calling]:
    async with served(folder, sources=[source]) as gate:
        yield lambda: _content(gate.box.call("hesitant.hesitate"))


async def _content(calling: Awaitable[Any]) -> Any:
    return (await calling).content["result"]


@asynccontextmanager
async def through_a_node(folder: Path, source: dict[str, Any]) -> AsyncIterator[Calling]:
    async with ToolNode(config=ExternalToolConfig(**source), registry=ToolRegistry()) as node:

        async def call() -> Any:
            return (await node.call("hesitate", {}))["result"]

        yield call


@asynccontextmanager
async def through_a_manager(folder: Path, source: dict[str, Any]) -> AsyncIterator[Calling]:
    async with MCPManager() as manager:
        await manager.connect_all([ExternalToolConfig(**source)])

        async def call() -> Any:
            return (await manager.call_tool("hesitant", "hesitate")).result["result"]

        yield call


@asynccontextmanager
async def over_rest(folder: Path, source: dict[str, Any]) -> AsyncIterator[Calling]:
    async with served(folder, sources=[source]) as gate:

        async def call() -> Any:
            replied = await gate.http.post("/api/v1/calls", json={"tool": "hesitant.hesitate", "arguments": {}})
            return replied.json()["content"]["result"]

        yield call


@asynccontextmanager
async def over_mcp(folder: Path, source: dict[str, Any]) -> AsyncIterator[Calling]:
    async with served(folder, sources=[source]) as gate:
        transport = StreamableHttpTransport(f"{gate.url}/mcp", headers=await gate.key(ANN, "call"))
        async with Client(transport) as client:

            async def call() -> Any:
                return (await client.call_tool("hesitant__hesitate", {})).structured_content["result"]

            yield call


@pytest.mark.req("RES-02", "RES-03")
@pytest.mark.waits
@pytest.mark.parametrize("way", [through_a_toolbox, through_a_node, through_a_manager, over_rest, over_mcp])
async def test_an_attempt_that_takes_too_long_is_followed_by_another(tmp_path: Path, way: Any) -> None:
    async with way(tmp_path / "data", hesitant(timeout_s=1, deadline_s=60)) as call:
        assert await call() == "at last"
    assert len(begun) == 2


@pytest.mark.req("RES-02", "RES-03")
@pytest.mark.waits
async def test_a_request_over_http_that_takes_too_long_is_followed_by_another(
    make_box: MakeBox, tmp_path: Path
) -> None:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        if len(site.requests) > 1:
            writer.write(reply(body=b'"at last"', content_type="application/json"))

    async with Site(answer) as site:
        operation = {"operationId": "look", "responses": {"200": {"description": "done"}}}
        document = {
            "openapi": "3.1.0",
            "info": {"title": "slow", "version": "1"},
            "servers": [{"url": site.url}],
            "paths": {"/look": {"get": operation}},
        }
        (tmp_path / "slow.json").write_text(json.dumps(document))
        source = {"name": "slow", "transport": "http", "connection": str(tmp_path / "slow.json")}
        async with make_box(sources=[{**source, "timeout_s": 1, "deadline_s": 60}]) as box:
            outcome = await box.call("slow.look")
    assert outcome.content == "at last"
    assert len(site.requests) == 2


@pytest.mark.req("RES-03")
async def test_the_last_attempt_ends_the_call_and_events_say_so(make_box: MakeBox) -> None:
    source = hesitant(overrides={"hang": {"timeout_s": 0.05}}, deadline_s=600, retry_policy={"max_attempts": 2})
    async with make_box(sources=[source]) as box:
        outcome = await box.call("hesitant.hang", user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert begun == ["hang", "hang"]
    assert isinstance(outcome.error, ToolTimeoutError)
    assert (outcome.error.bound, outcome.error.timeout_ms) == ("attempt", 50)
    assert "the limit of one attempt (timeout_s)" in str(outcome.error)
    assert [(e.code, e.payload["bound"]) for e in told if "bound" in e.payload] == [
        (EventCode.CALL_RETRIED, "attempt"),
        (EventCode.TOOL_CALL_FAILED, "attempt"),
    ]


@pytest.mark.req("RES-02")
async def test_a_call_with_effects_is_not_tried_again_after_a_timeout(make_box: MakeBox) -> None:
    source = hesitant(overrides={"pay": {"timeout_s": 0.5}}, deadline_s=600)
    async with make_box(sources=[source]) as box:
        outcome = await box.call("hesitant.pay")
    assert begun == ["pay"]
    assert "it may have taken effect" in str(outcome.error)


async def test_the_timeout_of_a_call_bounds_all_attempts_and_the_event_says_so(make_box: MakeBox) -> None:
    async with make_box(sources=[hesitant()]) as box:
        await box.wait_for_sources()
        outcome = await box.call("hesitant.hang", user=ANN, timeout_s=0.05)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert str(outcome.error) == "Tool execution timed out after 50ms"
    assert told[-1].payload["bound"] == "call"
    assert begun in ([], ["hang"])  # on a busy machine the time may be over before the server is called


@pytest.mark.parametrize(
    ("timeout_s", "attempts", "deadline_s", "seconds"),
    [(30, 3, None, 90), (120, 3, None, 300), (300, 1, None, 300), (30, 3, 40, 40), (1, 1, None, 1)],
)
def test_the_deadline_of_a_call_is_the_time_of_all_attempts(
    timeout_s: float, attempts: int, deadline_s: float | None, seconds: float
) -> None:
    config = ExternalToolConfig(
        name="x",
        transport="mcp",
        connection="x",
        timeout_s=timeout_s,
        deadline_s=deadline_s,
        retry_policy=RetryPolicy(max_attempts=attempts),
    )
    assert config.deadline_for(config.timeout_s) == seconds
    assert config.deadline_for(600) == (deadline_s or 600)


@pytest.mark.waits
@pytest.mark.parametrize("transport", ["http", "webhook", "utcp"])
async def test_an_override_gives_one_tool_more_time_than_its_source(
    make_box: MakeBox, tmp_path: Path, transport: str
) -> None:
    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.3)  # longer than the timeout of the source
        writer.write(reply(body=b'"at last"', content_type="application/json"))

    async with Site(answer) as site:
        look = {"operationId": "look", "responses": {"200": {"description": "done"}}}
        template = {"call_template_type": "http", "url": f"{site.url}/look", "http_method": "GET"}
        documents: dict[str, Any] = {
            "http": {
                "openapi": "3.1.0",
                "info": {"title": "slow", "version": "1"},
                "servers": [{"url": site.url}],
                "paths": {"/look": {"get": look}},
            },
            "utcp": {
                "utcp_version": "1.0.1",
                "manual_version": "1.0.0",
                "tools": [{"name": "look", "description": "", "tool_call_template": template}],
            },
        }
        (tmp_path / "slow.json").write_text(json.dumps(documents.get(transport, {})))
        source: dict[str, Any] = {"name": "slow", "transport": transport, "connection": str(tmp_path / "slow.json")}
        if transport == "webhook":
            source |= {"connection": site.url, "options": {"tools": {"look": {"url": f"{site.url}/look"}}}}
        more = {"timeout_s": 1, "overrides": {"look": {"timeout_s": 60}}, "retry_policy": {"max_attempts": 1}}
        async with make_box(sources=[{**source, **more}], policy="exploratory") as box:
            outcome = await box.call("slow.look")
    assert outcome.status == "completed", outcome.error
    assert outcome.content == "at last"
