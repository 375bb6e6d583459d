"""The catalog as one MCP server: clients of both protocol eras list, call, wait for people, and hear of changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.subscriptions import listen
from mcp_types import ElicitRequestParams, ElicitResult, InputRequiredResult

from toolpost import Completed, Settings, Toolbox, ToolContext, tool
from toolpost.gateway.mcp.progress import ProgressRelay
from toolpost.gateway.mcp.server import McpServer

Era = Literal["legacy", "auto"]
ERAS: list[Era] = ["legacy", "auto"]
ME, BOSS = "acme:ann", "acme:bob"
dropped: list[str] = []


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> dict[str, str]:
    """Drop a table."""
    dropped.append(name)
    return {"gone": name}


@tool(side_effects="pure")
async def book(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    guests = await ctx.pause("guests", {"prompt": "How many guests?"})
    return f"a table for {guests}"


@tool(side_effects="pure")
async def count(ctx: ToolContext) -> str:
    """Count, and say how far it is."""
    for number in range(3):
        ctx.progress(f"at {number}", fraction=number / 3)
    return "done"


@tool(side_effects="pure")
async def guess(ctx: ToolContext) -> str:
    """Say how far it is, in numbers that are none."""
    fractions: list[Any] = [float("nan"), float("inf"), 10**400, "half", [1], True]
    for fraction in fractions:
        ctx.progress("somewhere", fraction=fraction)
    return "done"


@tool(side_effects="pure")
async def tail(lines: int) -> AsyncIterator[str]:
    """Follow a log."""
    for number in range(lines):
        yield f"line {number}"


@tool(side_effects="pure")
async def circle() -> str:
    """Fail with an error that is its own cause."""
    error = ValueError("round and round")
    raise error from error


@tool(side_effects="pure")
async def long_text() -> str:
    """Return more than fits into a message."""
    return "word " * 20_000


@asynccontextmanager
async def gateway(folder: Path | None = None, *, user: str = ME) -> AsyncIterator[tuple[Toolbox, McpServer]]:
    relay = ProgressRelay()
    settings = Settings(data_dir=folder)
    tools = [add, drop, book, count, guess, tail, circle, long_text]
    async with Toolbox(tools=tools, settings=settings, sinks=[relay]) as box:
        server = McpServer(box, principal=lambda _ctx: user, interactive=lambda _ctx: True, relay=relay)
        async with server.publishing():
            yield box, server


async def approve_when_asked(box: Toolbox) -> None:
    while not (waiting := await box.pending.list(by=BOSS)):
        await asyncio.sleep(0.01)
    await box.approve(waiting[0].id, by=BOSS)


async def state_of_pause(client: Client, arguments: dict[str, Any]) -> str | None:
    asked = await client.session.call_tool("drop", arguments, allow_input_required=True)
    assert isinstance(asked, InputRequiredResult)
    return asked.request_state


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_and_calls_every_tool(era: Era) -> None:
    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        result = await client.call_tool("add", {"a": 2, "b": 3})

    assert {"add", "drop", "book"} <= listed.keys()
    assert listed["add"].annotations is not None
    assert listed["add"].annotations.read_only_hint
    assert listed["drop"].annotations is not None
    assert listed["drop"].annotations.destructive_hint
    assert (result.is_error, result.structured_content) == (False, {"result": 5})


@pytest.mark.parametrize("era", ERAS)
async def test_wrong_arguments_are_an_error_that_names_them(era: Era) -> None:
    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        result = await client.call_tool("add", {"a": 2, "b": "three"})

    assert result.is_error
    assert "$.b" in str(result.content)


async def test_an_error_that_is_its_own_cause_is_reported_as_any_other() -> None:
    async with gateway() as (_, mcp), Client(mcp.server) as client:
        failed = await client.call_tool("circle", {})

    assert failed.is_error
    assert "round and round" in str(failed.content)


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_tool_is_refused_with_the_nearest_name(era: Era) -> None:
    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        with pytest.raises(MCPError, match=r"ad.*add"):
            await client.call_tool("ad", {})


async def test_an_approval_given_elsewhere_completes_the_call_of_a_newer_client() -> None:
    dropped.clear()
    async with gateway() as (box, gate), Client(gate.server) as client:
        person = asyncio.create_task(approve_when_asked(box))
        result = await client.call_tool("drop", {"name": "logs"})
        await person

    assert (result.structured_content, dropped) == ({"gone": "logs"}, ["logs"])


async def test_a_retry_after_a_restart_collects_what_was_decided_once(tmp_path: Path) -> None:
    dropped.clear()
    arguments = {"name": "logs"}
    async with gateway(tmp_path) as (box, gate), Client(gate.server) as client:
        state = await state_of_pause(client, arguments)
    async with gateway(tmp_path) as (box, _):
        await approve_when_asked(box)
    async with gateway(tmp_path) as (_, gate), Client(gate.server) as client:
        for _ in range(2):
            done = await client.session.call_tool("drop", arguments, request_state=state)
            assert done.structured_content == {"gone": "logs"}

    assert dropped == ["logs"]


@pytest.mark.parametrize(
    ("user", "state", "name"), [("acme:eve", None, "logs"), (ME, "ask_forged", "logs"), (ME, None, "users")]
)
async def test_a_state_that_is_forged_or_of_another_call_or_person_is_refused(
    tmp_path: Path, user: str, state: str | None, name: str
) -> None:
    async with gateway(tmp_path) as (_, gate), Client(gate.server) as client:
        own = await state_of_pause(client, {"name": "logs"})
    async with gateway(tmp_path, user=user) as (_, gate), Client(gate.server) as client:
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool("drop", {"name": name}, request_state=state or own)


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_that_the_clients_user_fills_in_answers_a_tool(era: Era) -> None:
    async def fill_in(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert params.message == "How many guests?"
        return ElicitResult(action="accept", content={"value": "eight"})

    async with gateway() as (_, gate), Client(gate.server, mode=era, elicitation_callback=fill_in) as client:
        result = await client.call_tool("book", {})

    assert result.structured_content == {"result": "a table for eight"}


@pytest.mark.parametrize("era", ERAS)
async def test_no_client_can_approve_its_own_call(era: Era) -> None:
    dropped.clear()

    async def accept(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": True})

    async with gateway() as (box, gate), Client(gate.server, mode=era, elicitation_callback=accept) as client:
        call = asyncio.create_task(client.call_tool("drop", {"name": "logs"}))
        while not (waiting := await box.pending.list(by=BOSS)):
            await asyncio.sleep(0.01)
        await box.deny(waiting[0].id, by=BOSS, reason="not today")
        result = await call

    assert (result.is_error, dropped) == (True, [])
    assert "not today" in str(result.content)


async def test_a_client_that_can_be_asked_nothing_learns_what_waits_and_collects_it_later() -> None:
    async with gateway() as (box, gate), Client(gate.server, mode="legacy") as client:
        told = await client.call_tool("drop", {"name": "logs"})
        pending_id = (told.meta or {})["toolpost/pending_id"]
        waiting = await client.call_tool("pending_status", {"pending_id": pending_id})
        person = asyncio.create_task(approve_when_asked(box))
        done = await client.call_tool("pending_wait", {"pending_id": pending_id, "timeout_s": 30})
        await person

    assert f"toolpost pending approve {pending_id}" in str(told.content)
    assert "waits for a person" in str(waiting.content)
    assert done.structured_content == {"gone": "logs"}


async def test_what_waits_is_listed_however_many_questions_of_others_came_since() -> None:
    async with gateway() as (box, gate), Client(gate.server, mode="legacy") as client:
        told = await client.call_tool("drop", {"name": "logs"})
        for number in range(101):
            await box.call("drop", {"name": f"{number}"}, user="acme:bob")
        listed = await client.call_tool("pending_status", {})

    assert (told.meta or {})["toolpost/pending_id"] in str(listed.content)
    assert str(listed.content).count("drop") == 1


@pytest.mark.parametrize("era", ERAS)
async def test_progress_reaches_the_request_that_asked_for_it(era: Era) -> None:
    heard: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        await client.call_tool("count", {}, progress_callback=report)

    assert heard == ["at 0", "at 1", "at 2"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_fraction_that_is_no_number_costs_no_result(era: Era) -> None:
    heard: list[tuple[float | None, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((total, message))

    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        result = await client.call_tool("guess", {}, progress_callback=report)

    assert result.structured_content == {"result": "done"}
    assert heard == [(None, "somewhere")] * 6


@pytest.mark.parametrize("era", ERAS)
async def test_values_of_a_stream_reach_the_request_and_the_last_is_the_result(era: Era) -> None:
    heard: list[str | None] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        result = await client.call_tool("tail", {"lines": 3}, progress_callback=report)

    assert heard == ["line 0", "line 1", "line 2"]
    assert "line 2" in str(result.content)


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_result_is_a_link_that_can_be_read(era: Era) -> None:
    async with gateway() as (_, gate), Client(gate.server, mode=era) as client:
        result = await client.call_tool("long_text", {})
        link = next(block for block in result.content if block.type == "resource_link")
        text = next(block.text for block in result.content if block.type == "text")
        whole = await client.read_resource(link.uri)

    assert "word " * 20_000 in str(whole.contents[0])
    assert f"100000 bytes in all, stored as {link.name}" in text  # all that some clients show their model


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_and_reads_the_artifacts_of_its_own_user_alone(era: Era) -> None:
    async with gateway() as (box, gate), Client(gate.server, mode=era) as client:
        made = await box.call("long_text", user=BOSS)
        assert isinstance(made, Completed)
        [theirs] = made.artifacts
        await client.call_tool("long_text", {})
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        own = await client.read_resource(listed[0])
        with pytest.raises(MCPError) as refused:
            await client.read_resource(f"artifact://{theirs}")
        with pytest.raises(MCPError) as missing:
            await client.read_resource("artifact://art_none")

    assert (len(listed), "word " in str(own.contents[0])) == (1, True)
    assert str(refused.value).replace(theirs, "art_none") == str(missing.value)


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_that_speaks_of_artifacts_of_its_own_is_handed_on_as_it_is(era: Era) -> None:
    file, gone = {"artifact_id": 77, "name": "build.zip"}, {"type": "image", "artifact_id": "art_none"}

    @tool(side_effects="pure")
    async def build() -> dict[str, Any]:
        """Build something."""
        return file

    @tool(side_effects="pure")
    async def draw() -> Any:
        """Draw something."""
        return [gone]

    async with gateway() as (box, gate), Client(gate.server, mode=era) as client:
        box.registry.register_many([build, draw])
        built, drawn = [await client.call_tool(name, {}) for name in ("build", "draw")]

    assert (built.is_error, built.structured_content) == (False, file)
    assert (drawn.is_error, json.loads(cast("Any", drawn.content[0]).text)) == (False, gone)


async def test_a_newer_client_hears_that_the_catalog_changed_and_lists_again() -> None:
    @tool(name="new_tool", side_effects="pure")
    async def new_tool() -> str:
        """A tool that came later."""
        return "hello"

    async with gateway() as (box, gate), Client(gate.server) as client:
        before = {one.name for one in (await client.list_tools()).tools}
        async with listen(client.session, tools_list_changed=True) as changes:
            box.registry.register(new_tool)
            async with asyncio.timeout(10):
                async for _change in changes:
                    break
        after = {one.name for one in (await client.list_tools(cache_mode="refresh")).tools}

    assert after - before == {"new_tool"}
