"""Spans of calls: one each, below the caller's, with the attributes of the conventions and nothing secret."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from opentelemetry import trace
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.gateway.serving import listening
from tests.patient_settings import PatientSettings
from tests.telemetry import Spans, id_of, parent_of, spans, trace_of
from toolpost import Completed, ReactPlanner, Settings, Toolbox, ToolContext, tool
from toolpost.testing import ScriptedModel, tool_calls

__all__ = ["spans"]  # a fixture
MEMORY = Settings(data_dir=None)


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
async def double(a: int, ctx: ToolContext) -> int:
    """Double a number."""
    added = await ctx.call("add", {"a": a, "b": a})
    assert isinstance(added, Completed)
    return int(added.content)


@tool(side_effects="pure")
async def sign_in(name: str, password: str) -> str:
    """Fail to sign in."""
    raise ValueError(f"{name} is not known with {password}")


async def test_a_call_is_a_span_below_the_callers_and_calls_inside_are_below_it(spans: Spans) -> None:
    async with Toolbox(tools=[add, double], settings=MEMORY) as box:
        with spans.provider.get_tracer("test").start_as_current_span("agent"):
            outcome = await box.call("double", {"a": 2}, user="acme:ann", run_id="run_1")
    agent, outer, inner = spans.one("agent"), spans.one("execute_tool double"), spans.one("execute_tool add")

    assert (parent_of(outer), parent_of(inner)) == (id_of(agent), id_of(outer))
    assert dict(outer.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "double",
        "gen_ai.tool.call.id": outcome.call_id,
        "gen_ai.tool.type": "function",
        "toolpost.run.id": "run_1",
        "toolpost.principal": "acme:ann",
        "toolpost.outcome": "completed",
    }


@pytest.mark.parametrize("shown", [False, True])
async def test_a_failure_is_an_error_and_arguments_are_reported_only_on_demand_and_redacted(
    spans: Spans, shown: bool
) -> None:
    settings = Settings.model_validate({"data_dir": None, "telemetry": {"arguments": shown}})
    async with Toolbox(tools=[sign_in], settings=settings) as box:
        await box.call("sign_in", {"name": "ann", "password": "hunter2hunter2"})
    span = spans.one("execute_tool sign_in")
    attributes = span.attributes or {}

    assert span.status.status_code is trace.StatusCode.ERROR
    assert attributes["error.type"] == "tool_raised"
    assert ("ann" in str(attributes.get("gen_ai.tool.call.arguments"))) is shown
    assert "hunter2" not in span.to_json()


async def test_without_a_tracer_provider_there_is_no_tracer() -> None:
    async with Toolbox(tools=[add], settings=MEMORY) as box:
        assert box.router.tracer is None


@pytest.fixture
async def shop() -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []

    async def order(request: Request) -> JSONResponse:
        seen.append(dict(request.headers))
        return JSONResponse({"ordered": True})

    async with listening(Starlette(routes=[Route("/order", endpoint=order, methods=["POST"])])) as url:
        yield url, seen


async def test_only_sources_that_may_know_it_get_the_trace(spans: Spans, shop: tuple[str, list[Any]]) -> None:
    url, seen = shop
    tools = {"order": {"url": "order", "side_effects": "pure"}}
    sources = [
        {"name": name, "transport": "webhook", "connection": url, "options": {"tools": tools}, "trace_context": knows}
        for name, knows in (("ours", True), ("theirs", False))
    ]
    settings = PatientSettings.model_validate({"data_dir": None, "policy": "exploratory", "sources": sources})
    async with Toolbox(settings=settings) as box:
        for name in ("ours.order", "theirs.order"):
            assert isinstance(await box.call(name, {}), Completed)
    call = spans.one("execute_tool ours.order")

    ours, theirs = (headers.get("traceparent") for headers in seen)
    assert ours.startswith(f"00-{trace_of(call)}-{id_of(call)}-")
    assert theirs is None


async def test_only_mcp_servers_that_may_know_it_get_the_trace_and_none_gets_baggage(spans: Spans) -> None:
    async def list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="meta", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, _params: Any) -> CallToolResult:
        named = {key: value for key, value in (ctx.meta or {}).items() if key in ("traceparent", "baggage")}
        return CallToolResult(content=[TextContent(type="text", text=json.dumps(named))])

    server = Server("meta", on_list_tools=list_tools, on_call_tool=call_tool)
    sources = [
        {"name": name, "transport": "mcp", "connection": "memory:here", "trace_context": name == "ours"}
        for name in ("ours", "theirs")
    ]
    settings = PatientSettings.model_validate({"data_dir": None, "policy": "exploratory", "sources": sources})
    token = attach(set_baggage("user", "ann"))
    try:
        async with Toolbox(settings=settings, servers={"ours": server, "theirs": server}) as box:
            outcomes = [await box.call(name, {}) for name in ("ours.meta", "theirs.meta")]
    finally:
        detach(token)
    ours, theirs = (json.loads(one.text) for one in outcomes if isinstance(one, Completed) and one.text)
    call = spans.one("execute_tool ours.meta")

    assert ours["traceparent"].startswith(f"00-{trace_of(call)}-{id_of(call)}-")
    assert "baggage" not in ours
    assert theirs == {}


async def test_asking_a_model_is_a_span_and_its_calls_are_of_the_same_trace(spans: Spans) -> None:
    model = ScriptedModel(tool_calls(("add", {"a": 1, "b": 2})), "it is 3")
    async with ReactPlanner(catalog=[add], llm=model, settings=MEMORY) as planner:
        with spans.provider.get_tracer("test").start_as_current_span("agent"):
            await planner.run("one and two?")
    traces = {trace_of(span) for span in [*spans.named("chat"), spans.one("execute_tool add")]}

    assert traces == {trace_of(spans.one("agent"))}
    assert (spans.named("chat")[0].attributes or {})["gen_ai.operation.name"] == "chat"
