"""ToolNode: one source, a registry shared with others, errors raised."""

import asyncio
import json
import logging
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel

from tests import warm
from tests.sources.mcp.programs import SERVERS, mirror
from tests.toolbox.test_node_mcp_manager import ABACUS
from tests.wire.site import Received, Site, reply
from toolpost import (
    Completed,
    EventCode,
    ExternalToolConfig,
    MCPClient,
    RetryPolicy,
    Settings,
    Toolbox,
    ToolContext,
    ToolNode,
    ToolRegistry,
    tool,
)
from toolpost.errors import (
    MCPClientError,
    MCPConnectionError,
    MCPToolExecutionError,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolNodeError,
    ToolRateLimitError,
    ToolTimeoutError,
    ToolValidationError,
)

SLOW = "import time; time.sleep(60)"
LIMITED = """
from toolpost.errors import ToolRateLimitError
from toolpost import tool
@tool(side_effects="write")
async def limited():
    error = ToolRateLimitError("slow down")
    error.retry_after_s = 7
    raise error
"""
DOCUMENTS: dict[str, Any] = {
    "http": {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": "URL"}],
        "paths": {"/get": {"get": {"operationId": "get", "responses": {"200": {"description": "ok"}}}}},
    },
    "utcp": {
        "utcp_version": "1.0.1",
        "manual_version": "1.0.0",
        "tools": [
            {
                "name": "get",
                "description": "",
                "inputs": {"type": "object"},
                "tool_call_template": {"call_template_type": "http", "url": "URL/get", "http_method": "GET"},
            }
        ],
    },
}


def server() -> FastMCP[Any]:
    """A server in this process."""
    made: FastMCP[Any] = FastMCP("math")
    received: list[dict[str, Any]] = []

    @made.tool
    def add(a: int, b: int = 5) -> int:
        """Add two numbers."""
        received.append({"a": a, "b": b})
        return a + b

    @made.tool
    def mul(a: int, b: int) -> int:
        return a * b

    @made.tool(annotations={"readOnlyHint": True})
    def nothing() -> str:
        return "nothing"

    @made.tool
    def fail() -> None:
        raise ValueError("it broke")

    return made


def node(registry: ToolRegistry | None = None, **options: Any) -> ToolNode:
    config = ExternalToolConfig(name="math", transport="mcp", connection="memory:server", **options)
    return ToolNode(config=config, registry=registry or ToolRegistry(), server=server())


def command(code: str, **options: Any) -> ToolNode:
    connection = shlex.join([sys.executable, "-c", code])
    config = ExternalToolConfig(name="srv", transport="mcp", connection=connection, **options)
    return ToolNode(config=config, registry=ToolRegistry())


@pytest.mark.req("NODE-01", "NODE-02")
async def test_a_node_has_a_configuration_a_shared_registry_and_hides_the_rest() -> None:
    made = node(auth_type="bearer", auth_config={"token": "s3cret"})
    required = {field.name for field in fields(ToolNode) if field.init and field.default is field.default_factory}
    assert (required, made.auth_manager) == ({"config", "registry"}, None)
    async with made:
        shown = repr(made)
    assert "'math'" in shown
    assert "s3cret" not in shown
    assert re.findall(r"\b_\w+", shown) == []


@pytest.mark.req("NODE-08", "CONC-03", "TEST-01")
async def test_a_call_by_either_name_waits_its_turn() -> None:
    gauge: FastMCP[Any] = FastMCP("gauge")
    running = most = 0

    @gauge.tool
    async def measure() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return most

    config = ExternalToolConfig(name="g", transport="mcp", connection="memory:x", max_concurrency=2)
    async with ToolNode(config=config, registry=ToolRegistry(), server=gauge) as made:
        [shared] = made.registry.list()
        by_name = [made.call(name, {}) for name in ("measure", "g.measure") * 4]
        await asyncio.gather(*by_name, *(shared.execute({}, ToolContext()) for _ in range(4)))
    assert most == 2


@pytest.mark.req("STATE-09")
async def test_functions_mcp_servers_and_manuals_share_a_registry(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    async def native() -> str:
        return "native"

    registry = ToolRegistry()
    registry.register(native)
    async with Site(reply(200, b'"hi"', content_type="application/json")) as site:
        (tmp_path / "manual.json").write_text(json.dumps(DOCUMENTS["utcp"]).replace("URL", site.url))
        config = ExternalToolConfig(name="api", transport="utcp", connection=str(tmp_path / "manual.json"))
        async with node(registry), ToolNode(config=config, registry=registry):
            found = [registry.find(name).tool for name in ("native", "math.nothing", "api.get")]
            results = [(await one.execute({}, ToolContext())).result for one in found]
    assert results == ["native", {"result": "nothing"}, "hi"]
    assert registry.list() == [native]


@pytest.mark.req("NODE-08", "TEST-02")
async def test_a_call_that_may_be_repeated_is_tried_again(tmp_path: Path) -> None:
    answers = [reply(503), reply(200, b'"hi"', content_type="application/json")]

    async def answer(_received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))
        await writer.drain()

    async with Site(answer) as site:
        (tmp_path / "api.json").write_text(json.dumps(DOCUMENTS["http"]).replace("URL", site.url))
        config = ExternalToolConfig(name="one", transport="http", connection=str(tmp_path / "api.json"))
        async with ToolNode(config=config, registry=ToolRegistry()) as made:
            assert await made.call("get", {}) == "hi"


@pytest.mark.programs
@pytest.mark.req("NODE-04", "GEN-09")
@pytest.mark.parametrize("transport", ["mcp", "http", "utcp", "cli"])
async def test_the_transport_decides_who_is_spoken_to(transport: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as open_until_end:
        connection, call = shlex.join([sys.executable, "-c", "print('hi')"]), "call"
        if transport == "mcp":
            connection, call = shlex.join(warm.command(SERVERS / "abacus.py")), "add"
        elif transport in ("http", "utcp"):
            site = await open_until_end.enter_async_context(Site(reply(200, b'"hi"', content_type="application/json")))
            document = tmp_path / "document.json"
            document.write_text(json.dumps(DOCUMENTS[transport]).replace("URL", site.url))
            connection, call = str(document), "get"
        config = ExternalToolConfig(name="one", transport=transport, connection=connection)
        made = await open_until_end.enter_async_context(ToolNode(config=config, registry=ToolRegistry()))
        result = await made.call(call, {"a": 1, "b": 2} if transport == "mcp" else {})
    assert result == ({"result": 3} if transport == "mcp" else "hi")


@pytest.mark.req("NODE-03", "NODE-07", "CONV-11")
async def test_connecting_twice_is_connecting_once_and_fills_the_registry() -> None:
    registry = ToolRegistry()
    made = node(registry)
    await made.connect()
    await made.connect()
    assert [spec.name for spec in registry.specs()][:4] == ["math.add", "math.mul", "math.nothing", "math.fail"]
    assert [tool.spec for tool in made.get_tools()] == [tool.spec for tool in registry.list()]
    await made.close()


@pytest.mark.req("NODE-07")
def test_tools_of_a_node_that_is_not_connected_are_an_error() -> None:
    with pytest.raises(ToolNodeError, match="ToolNode 'math' not connected"):
        node().get_tools()


@pytest.mark.req("NODE-09")
async def test_each_tool_is_called_by_its_full_or_its_bare_name() -> None:
    async with node() as made:
        assert await made.call("math.add", {"a": 1, "b": 2}, ToolContext(user_id="ann")) == {"result": 3}
        assert await made.call("mul", {"a": 3, "b": 4}) == {"result": 12}


async def test_tools_that_are_run_by_themselves_run_themselves() -> None:
    async with node() as made:
        results = {t.spec.name: await t.execute({"a": 3, "b": 4}, ToolContext()) for t in made.get_tools()[:2]}
    assert {name: result.result for name, result in results.items()} == {
        "math.add": {"result": 7},
        "math.mul": {"result": 12},
    }


@pytest.mark.req("NODE-10")
async def test_closing_twice_is_fine_and_takes_the_tools_out_of_the_registry() -> None:
    registry = ToolRegistry()
    made = node(registry)
    await made.connect()
    await made.close()
    await made.close()
    assert registry.list() == []
    await made.connect()
    assert await made.call("mul", {"a": 2, "b": 2}) == {"result": 4}
    await made.close()


@pytest.mark.req("NODE-10")
@pytest.mark.parametrize(
    "use",
    [
        lambda made: made.call("mul", {"a": 2, "b": 2}),
        lambda made: made.list_resources(),
        lambda made: made.read_resource("file:///x"),
        lambda made: made.list_prompts(),
        lambda made: made.get_prompt("x"),
        lambda made: made.read_artifact("art_1"),
    ],
    ids=["call", "list resources", "read a resource", "list prompts", "get a prompt", "read an artifact"],
)
@pytest.mark.parametrize("was_connected", [True, False])
async def test_a_closed_node_says_so_and_does_not_connect_again_automatically(
    was_connected: bool, use: Callable[[ToolNode], Awaitable[object]]
) -> None:
    registry = ToolRegistry()
    made = node(registry)
    if was_connected:
        await made.connect()
    await made.close()
    with pytest.raises(
        ToolNodeError, match=r"^ToolNode 'math' not connected: it was closed; .*`await connect\(\)` again"
    ):
        await use(made)
    with pytest.raises(ToolNodeError, match="it was closed"):
        made.get_tools()
    assert registry.list() == []


async def test_a_tool_of_a_closed_node_fails() -> None:
    made = node()
    await made.connect()
    add = made.get_tools()[0]
    await made.close()
    with pytest.raises(ToolNodeError, match="ToolNode 'math' not connected: it was closed"):
        await add.execute({"a": 1, "b": 2}, ToolContext())


async def test_a_call_that_waits_while_the_node_is_closed_does_not_connect_it_again() -> None:
    made = node()
    connecting = asyncio.create_task(made.connect())
    await asyncio.sleep(0)  # it holds the lock now, for which the two others wait in their order
    closing = asyncio.create_task(made.close())
    await asyncio.sleep(0)
    calling = asyncio.create_task(made.call("mul", {"a": 2, "b": 2}))
    await asyncio.gather(connecting, closing)
    with pytest.raises(ToolNodeError, match="it was closed"):
        await calling


async def test_a_tool_says_where_it_comes_from_and_what_is_known_of_its_effects() -> None:
    registry = ToolRegistry()
    async with node(registry, trust=True):
        add, nothing = registry.find("math.add").spec, registry.find("math.nothing").spec
    assert add.description == "Add two numbers."
    assert add.side_effects == "external"
    assert add.tags == ("mcp", "math")
    assert add.extra["source"] == "mcp"
    assert add.extra["namespace"] == "math"
    assert (nothing.side_effects, nothing.description) == ("read", "")


@pytest.mark.req("CONV-03", "CONV-13")
async def test_a_name_that_is_taken_stops_the_node() -> None:
    registry = ToolRegistry()
    async with node(registry):
        before = registry.list()
        with pytest.raises(ToolNodeError, match=r"Tool name collision for 'math\.add'"):
            await node(registry).connect()
        assert registry.list() == before


class Sum(BaseModel):
    a: int
    b: int | None = None


@pytest.mark.req("DEF-05")
async def test_what_a_model_left_unset_is_not_sent() -> None:
    async with node() as made:
        assert await made.call("add", Sum(a=1)) == {"result": 6}


@pytest.mark.req("CONV-07")
async def test_a_tool_without_parameters_takes_an_empty_object_and_nothing_else() -> None:
    async with node() as made:
        assert await made.call("nothing", {}) == {"result": "nothing"}
        with pytest.raises(ToolValidationError):
            await made.call("nothing", {"data": None})


@pytest.mark.req("DEF-07", "KMCP-04", "RES-04")
async def test_what_a_tool_reports_as_an_error_is_raised() -> None:
    async with node() as made:
        with pytest.raises(ToolClientError, match="it broke"):
            await made.call("fail", {})


@pytest.mark.programs
@pytest.mark.req("KMCP-04", "RES-04")
async def test_a_connection_that_cannot_be_made_is_raised_with_what_the_server_wrote() -> None:
    made = command("import sys; sys.exit('no licence')")
    with pytest.raises(ToolConnectionError, match="no licence"):
        await made.connect()


@pytest.mark.req("RES-04")
async def test_what_a_client_raised_stands_behind_the_error() -> None:
    config = ExternalToolConfig(name="far", transport="mcp", connection="http://127.0.0.1:9/mcp")
    with pytest.raises(ToolConnectionError) as raised:
        await ToolNode(config=config, registry=ToolRegistry()).connect()
    behind: list[BaseException] = [raised.value]
    while behind[-1].__cause__ is not None:
        behind.append(behind[-1].__cause__)
    assert RuntimeError in map(type, behind)  # the client's own
    assert isinstance(behind[-1], ToolConnectionError)


@pytest.mark.req("RES-04")
async def test_an_error_of_the_tree_is_raised_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "limited.py").write_text(LIMITED)
    config = ExternalToolConfig(name="own", transport="python", connection=str(tmp_path / "limited.py"))
    async with ToolNode(config=config, registry=ToolRegistry()) as made:
        with pytest.raises(ToolRateLimitError, match="slow down") as raised:
            await made.call("limited", {})
    assert raised.value.retry_after_seconds == 7


STREAMING = """
from toolpost import ToolContext, tool

@tool(side_effects="read")
async def count(to: int, ctx: ToolContext):
    ctx.progress("counting", fraction=0.5)
    for number in range(to):
        yield {"number": number}
"""


async def test_values_and_progress_of_its_tools_reach_the_call_in_a_toolbox_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "streaming.py").write_text(STREAMING)
    config = ExternalToolConfig(name="own", transport="python", connection=str(tmp_path / "streaming.py"))
    async with (
        ToolNode(config=config, registry=ToolRegistry()) as made,
        Toolbox(tools=made.get_tools(), settings=Settings(data_dir=None)) as box,
    ):
        outcome = await box.call("own.count", {"to": 3}, user="acme:ann")
        told = [event.payload for event in await box.events(user="acme:ann") if event.code is EventCode.SUBAGENT_ACTION]
    assert isinstance(outcome, Completed)
    assert outcome.content == {"number": 2}
    assert [facts.get("fraction", facts.get("value")) for facts in told] == [0.5, *({"number": n} for n in range(3))]


@pytest.mark.programs
async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    made = command(SLOW, connect_timeout_s=0.3)
    with pytest.raises(ToolConnectionError, match=r"no answer within 0\.3 s"):
        await made.connect()


@pytest.mark.req("AUTHS-05")
async def test_a_variable_that_is_not_set_stops_the_node_by_its_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    made = node(auth_type="bearer", auth_config={"token": "${NO_SUCH_TOKEN}"})
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ToolAuthError, match="Missing required environment variable 'NO_SUCH_TOKEN' for ToolNode 'math'"),
    ):
        await made.connect()
    assert "NO_SUCH_TOKEN" in caplog.text
    assert "math" in caplog.text


@pytest.mark.req("RES-03")
@pytest.mark.waits
async def test_each_call_is_bounded_by_the_timeout_of_the_source() -> None:
    slow: FastMCP[Any] = FastMCP("slow")

    @slow.tool
    async def wait() -> str:
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(30)
        return "late"

    config = ExternalToolConfig(
        name="slow", transport="mcp", connection="memory:x", timeout_s=1, retry_policy=RetryPolicy(max_attempts=1)
    )
    async with ToolNode(config=config, registry=ToolRegistry(), server=slow) as made:
        with pytest.raises(ToolTimeoutError):
            await made.call("wait", {})


async def test_native_tools_and_external_ones_share_the_registry() -> None:
    @tool(side_effects="pure")
    def native(a: int) -> int:
        return a

    registry = ToolRegistry()
    registry.register(native)
    async with node(registry):
        assert [spec.name for spec in registry.specs()][:2] == ["native", "math.add"]


@pytest.mark.programs
@pytest.mark.req("KMCP-01", "KMCP-03")
@pytest.mark.parametrize("where", ["remote", "local"])
async def test_a_server_is_connected_listed_and_called(where: str) -> None:
    with mirror() as url:
        async with MCPClient() as client:
            await client.connect(url if where == "remote" else shlex.join(warm.command(ABACUS)))
            names = [spec.name for spec in await client.list_tools()]
            called = "headers" if where == "remote" else "add"
            result = await client.call_tool(called, {} if where == "remote" else {"a": 1, "b": 2})
    assert f"server.{called}" in names
    assert result["host"] in url if where == "remote" else result == {"result": 3}


@pytest.mark.programs
@pytest.mark.req("KMCP-04", "ERR-18")
async def test_what_goes_wrong_is_raised_as_the_clients_own_errors() -> None:
    async with MCPClient(connect_timeout_s=60) as client:
        with pytest.raises(MCPClientError, match="connect"):
            await client.list_tools()
        with pytest.raises(MCPConnectionError, match="cannot connect") as unreachable:
            await client.connect("http://127.0.0.1:9/mcp")
        await client.connect(shlex.join(warm.command(ABACUS)))
        with pytest.raises(MCPToolExecutionError, match="division") as failed:
            await client.call_tool("divide", {"a": 1, "b": 0})
        with pytest.raises(MCPToolExecutionError, match="not found"):
            await client.call_tool("subtract")
    assert isinstance(unreachable.value, ToolConnectionError)
    assert isinstance(failed.value.__cause__, ToolClientError)
    assert isinstance(failed.value, MCPClientError)
