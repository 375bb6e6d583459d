"""Server objects of this process: a call keeps every promise that a call over a wire does, in both eras."""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as types
import pytest
from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends, Shared
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult
from mcp import MCPError
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import until
from tests.telemetry import Spans, spans
from toolpost import Completed, EventCode, ExternalToolConfig, Failed, Paused, Toolbox
from toolpost.errors import ToolClientError, ToolTimeoutError
from toolpost.testing import ScriptedModel

__all__ = ["spans"]  # a fixture
ME = "local:ann"
HANDSHAKE, STATELESS = "legacy", "2026-07-28"
ERAS = pytest.mark.parametrize("protocol", [HANDSHAKE, STATELESS])


# The SDK warns of what the older protocol alone has.
OLDER = pytest.mark.filterwarnings("ignore:.*deprecated as of 2026-07-28")


def toolbox(server: Any, protocol: str, *, chat_model: Any = None, **options: Any) -> Any:
    chosen: Any = {"protocol": protocol, **options}
    source = ExternalToolConfig(name="srv", transport="mcp", connection="memory:here", options=chosen)
    settings = PatientSettings(data_dir=None, policy="exploratory", builtins="none", sources=[source])
    return Toolbox(settings=settings, servers={"srv": server}, chat_model=chat_model)


def lowlevel(answer: Any, **options: Any) -> Server[Any]:
    """A server of the SDK with one tool `go`, whose handler is given."""

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="go", input_schema={"type": "object"})])

    return Server("low", on_list_tools=list_tools, on_call_tool=answer, **options)


def said(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


# ---------------------------------------------------------------- results and errors


@ERAS
async def test_structured_content_and_text_come_back(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def weigh(names: list[str]) -> dict[str, Any]:
        return {"weights": {name: len(name) for name in names}, "unknown": None}

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.weigh", {"names": ["ann", "bo"]})
    assert isinstance(outcome, Completed)
    assert outcome.content == {"weights": {"ann": 3, "bo": 2}, "unknown": None}


@ERAS
async def test_a_result_with_files_and_meta_is_read(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def draw() -> ToolResult:
        image = types.ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
        return ToolResult(content=[types.TextContent(type="text", text="a dot"), image], meta={"pen": "red"})

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.draw", {})
    text, image = outcome.content
    assert text["text"] == "a dot"
    assert (image["media_type"], image["size"]) == ("image/png", 5)


@ERAS
async def test_an_error_of_the_tool_is_reported_and_others_are_masked_where_the_server_says_so(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv", mask_error_details=True)

    @server.tool
    async def refuse() -> str:
        raise ToolError("the shop is closed")

    @server.tool
    async def break_down() -> str:
        raise RuntimeError("s3cret-canary")

    async with toolbox(server, protocol) as box:
        refused, broken = await box.call("srv.refuse", {}), await box.call("srv.break_down", {})
    assert isinstance(refused, Failed)
    assert isinstance(refused.error, ToolClientError)
    assert "the shop is closed" in str(refused.error)
    assert isinstance(broken, Failed)
    assert "break_down" in str(broken.error)
    assert "s3cret-canary" not in str(broken.error)


@ERAS
async def test_a_tool_that_has_gone_meanwhile_fails_the_call_alone(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def stay() -> str:
        return "here"

    @server.tool
    async def leave() -> str:
        return "here"

    async with toolbox(server, protocol) as box:
        server.local_provider.remove_tool("leave")
        gone, there = await box.call("srv.leave", {}), await box.call("srv.stay", {})
    assert isinstance(gone, Failed)
    assert "leave" in str(gone.error)
    assert isinstance(there, Completed)


@ERAS
async def test_arguments_that_a_tool_changes_stay_as_they_were_for_the_caller(protocol: str) -> None:
    async def grow(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        assert params.arguments is not None
        params.arguments["list"].append({"more": True})
        return said(str(len(params.arguments["list"])))

    given: dict[str, Any] = {"list": [{"more": False}]}
    async with toolbox(lowlevel(grow), protocol) as box:
        outcome = await box.call("srv.go", given)
    assert outcome.content == "2"
    assert given == {"list": [{"more": False}]}


# ---------------------------------------------------------------- what a call tells and is asked meanwhile


@ERAS
async def test_progress_is_reported_while_the_tool_runs(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def climb(ctx: Context) -> str:
        await ctx.report_progress(1, 4, "one flight up")
        await ctx.report_progress(4, 4, "there")
        return "on top"

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.climb", {})
        told = await box.store.events.read(run_id=outcome.run_id)
    steps = [event.payload for event in told if event.code is EventCode.SUBAGENT_ACTION]
    assert outcome.content == {"result": "on top"}
    assert [(step["text"], step["fraction"]) for step in steps] == [("one flight up", 0.25), ("there", 1.0)]


@OLDER
async def test_log_messages_of_the_older_protocol_are_reported() -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def mutter(ctx: Context) -> str:
        await ctx.warning("the kettle boils")
        return "done"

    async with toolbox(server, HANDSHAKE) as box:
        await box.call("srv.mutter", {})
        told = await box.store.events.read()
    logged = [event.payload for event in told if event.code is EventCode.SOURCE_LOGGED]
    assert ["the kettle boils" in str(one) for one in logged] == [True]


@ERAS
async def test_a_call_that_is_cancelled_is_cancelled_in_the_tool(protocol: str) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async with toolbox(server, protocol) as box:
        call = asyncio.create_task(box.call("srv.wait", {}, user=ME, run_id="run"))
        await begun.wait()
        await box.cancel("run", by=ME)
        outcome = await call
        await asyncio.wait_for(cancelled.wait(), 10)
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "cancelled"


@ERAS
async def test_a_call_that_takes_too_long_ends_in_the_tool_as_well(protocol: str) -> None:
    cancelled = asyncio.Event()
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def wait() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()
        return "never"

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.wait", {}, timeout_s=0.2)
        await asyncio.wait_for(cancelled.wait(), 10)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolTimeoutError)


@ERAS
async def test_a_call_that_runs_when_the_toolbox_closes_is_ended(protocol: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        return "never"

    async with toolbox(server, protocol) as box:
        call = asyncio.create_task(box.call("srv.wait", {}))
        await begun.wait()
    outcome = await call
    assert isinstance(outcome, Failed)
    assert ended.is_set()


async def test_a_person_is_asked_in_the_older_protocol_while_the_tool_waits() -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def greet(ctx: Context) -> str:
        given = await ctx.elicit("Who is there?", str)
        return f"hello {given.data}" if given.action == "accept" else given.action

    async with toolbox(server, HANDSHAKE) as box:
        asked = await box.call("srv.greet", {}, user=ME)
        done = await box.answer(asked.pending_id, {"value": "Bo"}, by=ME)
    assert isinstance(asked, Paused)
    assert asked.question.prompt == "srv asks: Who is there?"
    assert done.content == {"result": "hello Bo"}


async def test_a_person_is_asked_in_the_stateless_protocol_and_the_state_comes_back() -> None:
    server: FastMCP[Any] = FastMCP("srv")
    form = types.ElicitRequestFormParams(
        message="Who is there?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )

    @server.tool
    async def greet(ctx: Context) -> Any:
        if ctx.input_responses is None:
            asked: Any = {"who": types.ElicitRequest(params=form)}
            return types.InputRequiredResult(input_requests=asked, request_state="s3cret-state")
        return [ctx.request_state, ctx.input_responses["who"].content]  # type: ignore[union-attr]

    async with toolbox(server, STATELESS) as box:
        asked = await box.call("srv.greet", {}, user=ME)
        kept = await box.pending.get(asked.pending_id, by=ME)
        done = await box.answer(asked.pending_id, {"name": "Bo"}, by=ME)
    assert asked.question.prompt == "srv asks: Who is there?"
    assert "s3cret-state" not in str(kept.question.state)  # the server encrypts it
    assert done.content == ["s3cret-state", {"name": "Bo"}]


@OLDER
async def test_the_model_and_the_folders_of_the_toolbox_are_there_for_the_older_protocol() -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def consult(ctx: Context) -> list[Any]:
        question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How are you?"))
        session: Any = ctx.session
        reply = await session.create_message(messages=[question], max_tokens=10)
        given = await session.list_roots()
        return [reply.content.text, [root.name for root in given.roots]]

    model = ScriptedModel("fine, thanks")
    async with toolbox(server, HANDSHAKE, roots=["/srv/plans"], sampling=True, chat_model=model) as box:
        outcome = await box.call("srv.consult", {})
    assert outcome.content == ["fine, thanks", ["plans"]]


async def test_the_model_and_the_folders_of_the_toolbox_are_there_for_the_stateless_protocol() -> None:
    question = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How are you?"))],
        max_tokens=10,
    )
    asked: Any = {"words": types.CreateMessageRequest(params=question), "roots": types.ListRootsRequest()}

    async def consult(_ctx: Any, params: types.CallToolRequestParams) -> Any:
        given: Any = params.input_responses
        if given is None:
            return types.InputRequiredResult(input_requests=asked, request_state="asked")
        return said(f"{given['words'].content.text} {given['roots'].roots[0].name} {params.request_state}")

    model = ScriptedModel("fine, thanks")
    async with toolbox(lowlevel(consult), STATELESS, roots=["/srv/plans"], sampling=True, chat_model=model) as box:
        outcome = await box.call("srv.go", {})
    assert outcome.content == "fine, thanks plans asked"


async def test_news_of_tools_is_believed_at_once() -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def grow(ctx: Context) -> str:
        async def extra() -> str:
            return "new"

        server.add_tool(extra)
        await ctx.send_notification(types.ToolListChangedNotification())
        return "grown"

    # The stateless protocol tells it to subscribers alone, and FastMCP 4.1 has no subscriptions.
    async with toolbox(server, HANDSHAKE) as box:
        await box.call("srv.grow", {})
        await until(lambda: box.registry.has("srv.extra"))
        outcome = await box.call("srv.extra", {})
    assert isinstance(outcome, Completed)


# ---------------------------------------------------------------- what surrounds a tool in its server


@ERAS
async def test_middleware_of_the_server_sees_calls_and_changes_them(protocol: str) -> None:
    seen: list[Any] = []

    class Doubling(Middleware):
        async def on_message(self, context: Any, call_next: Any) -> Any:
            seen.append(context.method)
            return await call_next(context)

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            context.message.arguments["a"] *= 2
            result = await call_next(context)
            result.structured_content["by"] = context.message.name
            return result

    server: FastMCP[Any] = FastMCP("srv", middleware=[Doubling()])

    @server.tool
    async def add(a: int) -> dict[str, Any]:
        return {"sum": a + 1}

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.add", {"a": 20})
    assert outcome.content == {"sum": 41, "by": "add"}
    assert seen.count("tools/call") == 1


@ERAS
async def test_middleware_of_the_sdk_sees_wire_data_and_may_rewrite_the_request(protocol: str) -> None:
    seen: list[Any] = []

    async def other(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        seen.append(dict(ctx.params["arguments"]))
        ctx.params["arguments"]["a"] = 5
        result = await call_next(ctx)
        seen.append(result["content"][0]["text"])
        return result

    server = MCPServer("srv", log_level="ERROR", middleware=[other])

    @server.tool()
    async def add(a: int) -> str:
        return str(a + 1)

    async with toolbox(server, protocol) as box:
        outcome = await box.call("srv.add", {"a": 20})
    assert isinstance(outcome, Completed)
    assert seen == [{"a": 20}, "6"]


@ERAS
async def test_dependencies_context_and_what_is_shared_are_there(protocol: str) -> None:
    opened: list[str] = []

    async def connect() -> str:
        opened.append("connection")
        return f"connection {len(opened)}"

    def region() -> str:
        return f"north of {get_context().fastmcp.name}"

    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def look(
        ctx: Context,
        where: str = Depends(region),
        connection: str = Shared(connect),
    ) -> list[Any]:
        assert ctx.request_context is not None
        return [where, connection, ctx.request_context.protocol_version >= "2026"]

    async with toolbox(server, protocol) as box:
        first, second = await box.call("srv.look", {}), await box.call("srv.look", {})
    expected = ["north of srv", "connection 1", protocol == STATELESS]
    assert (first.content, second.content) == (expected, expected)


@ERAS
async def test_state_lasts_as_long_as_the_connection_of_its_era(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def count(ctx: Context) -> int:
        number = (await ctx.get_state("count") or 0) + 1
        await ctx.set_state("count", number)
        return number

    async with toolbox(server, protocol) as box:
        outcomes = [await box.call("srv.count", {}) for _ in range(2)]
    assert [one.content["result"] for one in outcomes] == ([1, 2] if protocol == HANDSHAKE else [1, 1])


@ERAS
async def test_cleanup_that_a_handler_asked_for_is_done(protocol: str) -> None:
    cleaned: list[str] = []

    async def clean() -> None:
        await asyncio.sleep(0)
        cleaned.append("cleaned")

    async def go(ctx: Any, _params: Any) -> types.CallToolResult:
        ctx.session._connection.exit_stack.push_async_callback(clean)  # noqa: SLF001 - as FastMCP does
        return said("done")

    async with toolbox(lowlevel(go), protocol) as box:
        await box.call("srv.go", {})
        during = list(cleaned)
    assert during == ([] if protocol == HANDSHAKE else ["cleaned"])
    assert cleaned == ["cleaned"]


CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


@ERAS
async def test_a_tool_runs_in_the_context_of_its_caller(protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def who() -> str:
        return CALLER.get()

    async with toolbox(server, protocol) as box:
        token = CALLER.set("ann")
        outcome = await box.call("srv.who", {})
        CALLER.reset(token)
    assert outcome.content == {"result": "ann"}


@ERAS
async def test_a_server_has_its_own_spans_where_the_program_traces(spans: Spans, protocol: str) -> None:
    server: FastMCP[Any] = FastMCP("srv")

    @server.tool
    async def add(a: int) -> int:
        with spans.provider.get_tracer("tool").start_as_current_span("inside"):
            return a + 1

    async with toolbox(server, protocol) as box:
        await box.call("srv.add", {"a": 1})
    call, served, inside = (spans.one(name) for name in ("execute_tool srv.add", "tools/call add", "inside"))
    assert (served.attributes or {})["gen_ai.tool.name"] == "add"
    contexts = [span.context for span in (call, served, inside)]
    assert len({context.trace_id for context in contexts if context is not None}) == 1


# ---------------------------------------------------------------- servers of the SDK


@ERAS
@pytest.mark.parametrize(
    "result",
    [said("done"), {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}],
    ids=["model", "mapping"],
)
async def test_a_handler_of_the_sdk_returns_a_model_or_data(protocol: str, result: Any) -> None:
    async def go(_ctx: Any, _params: Any) -> Any:
        return result

    async with toolbox(lowlevel(go), protocol) as box:
        outcome = await box.call("srv.go", {})
    assert outcome.content == "done"


async def test_a_call_that_a_server_makes_a_task_of_is_followed_to_its_end() -> None:
    task = {"taskId": "t1", "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": None}

    async def go(_ctx: Any, _params: Any) -> Any:
        return {"resultType": "task", "status": "working", "pollIntervalMs": 100, **task}

    async def get_task(_ctx: Any, _params: Any) -> Any:
        done = {"content": [{"type": "text", "text": "at last"}]}
        return {"status": "completed", "result": done, **task}

    server = lowlevel(go)
    server.add_request_handler("tasks/get", types.RequestParams, get_task)
    async with toolbox(server, STATELESS) as box:
        outcome = await box.call("srv.go", {})
    assert outcome.content == "at last"


async def fail(_ctx: Any, _params: Any) -> Any:
    raise RuntimeError("the handler broke")


async def refuse(_ctx: Any, _params: Any) -> Any:
    raise MCPError(code=-32000, message="not on Sundays")


async def refuse_with_data(_ctx: Any, _params: Any) -> Any:
    return types.ErrorData(code=-32000, message="not on Sundays")


async def say_nonsense(_ctx: Any, _params: Any) -> Any:
    return {"content": "no list"}


async def say_nothing_known(_ctx: Any, _params: Any) -> Any:
    return 42


@ERAS
@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (fail, {HANDSHAKE: "the handler broke", STATELESS: "Internal server error"}),
        (refuse, "not on Sundays"),
        (refuse_with_data, "not on Sundays"),
        (say_nonsense, "invalid result"),
        (say_nothing_known, {HANDSHAKE: "returned int", STATELESS: "Internal server error"}),
    ],
    ids=["raises", "error", "error data", "nonsense", "no result"],
)
async def test_a_handler_of_the_sdk_that_fails_fails_the_call(
    protocol: str, handler: Any, told: str | Mapping[str, str]
) -> None:
    async with toolbox(lowlevel(handler), protocol) as box:
        outcome = await box.call("srv.go", {})
    assert isinstance(outcome, Failed)
    assert (told if isinstance(told, str) else told[protocol]) in str(outcome.error)
