"""What a call inside a workflow asks is asked as if that call had been made alone."""

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from fastmcp import Context, FastMCP

from tests.patient_settings import PatientSettings
from toolpost import Completed, ExternalToolConfig, Failed, Paused, Settings, Tool, Toolbox, ToolContext, tool
from toolpost.contracts.questions import CallPreview
from toolpost.sources import Workflow, WorkflowFunction

ANN, BOB = "acme:ann", "acme:bob"
LINK = "https://login.example/start?ticket=for-ann-alone"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FLOW = """
name: flow
side_effects: write
steps:
  go: {tool: TOOL, arguments: {table: t}}
outputs: ${{ steps.go }}
"""
VALUES = {"srv.old": {"value": "Bo"}, "srv.new": {"name": "Bo"}, "colour": "red", "mail": None}
server: FastMCP[Any] = FastMCP("srv")


@server.tool(annotations={"destructiveHint": False})
async def old(table: str, ctx: Context) -> str:
    given: Any = await ctx.elicit("Who is there?", str)
    return f"hello {given.data}"


@server.tool(annotations={"destructiveHint": False})
async def new(table: str, ctx: Context) -> Any:
    given: Any = ctx.input_responses
    if given is None:
        form = types.ElicitRequestFormParams(message="Who is there?", requested_schema=FORM)
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=form)}, request_state="s")
    return f"hello {given['who'].content['name']}"


@tool(side_effects="write")
async def colour(table: str, ctx: ToolContext) -> str:
    """Paint a table."""
    return f"painted {await ctx.pause('colour', {'preview': 'it is grey'}, prompt='Which colour?')}"


@tool(side_effects="write")
async def mail(table: str, ctx: ToolContext) -> str:
    """Read the mail of whoever has signed in."""
    await ctx.pause("sign in", auth_request={"auth_url": LINK, "provider": "mail"}, prompt="Mail wants your consent.")
    return "no news"


async def show(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    return CallPreview(destructive=True, text=f"- {params['table']}")


@tool(side_effects="write", preview=show)
async def drop(table: str) -> str:
    """Drop a table."""
    return f"{table} is gone"


def toolbox(name: str, folder: Path | None) -> Any:
    protocol: Any = {"protocol": "legacy" if name == "srv.old" else "2026-07-28"}
    source = ExternalToolConfig(name="srv", transport="mcp", connection="memory:here", trust=True, options=protocol)
    flow = WorkflowFunction(Workflow.parse(FLOW.replace("TOOL", name)))
    settings = PatientSettings(data_dir=folder, builtins="none", sources=[source])
    return Toolbox(tools=[colour, mail, drop, flow], settings=settings, servers={"srv": server})


@pytest.mark.parametrize("name", [*VALUES, "drop"])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_question_inside_is_whole_wherever_it_is_asked_for(tmp_path: Path, name: str, durable: bool) -> None:
    async with toolbox(name, tmp_path if durable else None) as box:
        alone = await box.call(name, {"table": "t"}, user=ANN)
        inside = await box.call("flow", {}, user=ANN, idempotency_key="k")
        again = await box.call("flow", {}, user=ANN, idempotency_key="k")
        later = await box.pending.outcome(inside.pending_id, by=ANN, wait_s=0)
        cards = [box.pending.card(one) for one in await box.pending.list(by=ANN)]
        if name == "drop":
            done = await box.approve(inside.pending_id, by=ANN)
        else:
            done = await box.answer(inside.pending_id, VALUES[name], by=ANN)

    assert isinstance(inside, Paused)
    assert {one.tool_name for one in (inside, again, later)} == {"flow"}
    assert inside.question == again.question == later.question == alone.question
    ids = {"id", "call_id", "run_id", "created_at", "expires_at"}
    assert len({str({key: card[key] for key in card if key not in ids}) for card in cards}) == 1
    assert isinstance(done, Completed)


async def test_where_to_sign_in_is_reported_to_the_asker_alone_also_inside_a_workflow() -> None:
    async with toolbox("mail", None) as box:
        paused = await box.call("flow", {}, user=ANN)
        others = await box.pending.outcome(paused.pending_id, by=BOB, wait_s=0)

    assert paused.question.payload["auth_url"] == LINK
    assert (others.question.payload["provider"], "auth_url" in others.question.payload) == ("mail", False)


async def test_where_to_sign_in_is_reported_to_the_asker_also_after_an_approval() -> None:
    @tool(name="mail", side_effects="write", destructive=True)
    async def guarded(table: str, ctx: ToolContext) -> str:
        """Read the mail of whoever has signed in, with leave."""
        return await ctx.pause("sign in", auth_request={"auth_url": LINK, "provider": "mail"})

    flow = WorkflowFunction(Workflow.parse(FLOW.replace("TOOL", "mail")))
    box: Any = Toolbox(tools=[guarded, flow], settings=Settings(data_dir=None))
    async with box:
        paused = await box.call("flow", {}, user=ANN, idempotency_key="k")
        told_bob = await box.approve(paused.pending_id, by=BOB)
        told_ann = await box.pending.outcome(paused.pending_id, by=ANN, wait_s=0)
        again = await box.call("flow", {}, user=ANN, idempotency_key="k")

    assert [one.question.payload.get("auth_url") for one in (told_bob, told_ann, again)] == [None, LINK, LINK]


MANY = """
name: flow
inputs: {properties: {tables: {type: array}}}
steps:
  drop: {for_each: inputs.tables, tool: drop, arguments: {table: "${{ item }}"}}
  colour: {tool: colour, arguments: {table: t}}
"""


async def test_a_workflow_that_fails_names_all_questions_that_stay_open() -> None:
    tools: list[Tool] = [colour, drop, WorkflowFunction(Workflow.parse(MANY))]
    async with Toolbox(tools=tools, settings=Settings(data_dir=None)) as box:
        await box.call("flow", {"tables": ["a", "b", "c"]}, user=ANN)
        last, *others = await box.pending.list(by=ANN)
        failed = await box.deny(last.id, by=ANN)

    assert isinstance(failed, Failed)
    named = failed.error.message.partition("still open are its questions ")[2].split(", ")
    assert [last.tool_name, *(one.tool_name for one in others)] == ["drop", "drop", "drop", "colour"]
    assert set(named) == {one.id for one in others}
