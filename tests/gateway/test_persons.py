"""A person and an agent are different callers: what an agent holds answers no question, on any path."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, InputRequiredResult

from conformance.fixture import Fixture, serving_fixture
from conformance.fixture import serving as serving_mcp
from tests.cli.program import child_environment
from tests.gateway.mcp.test_tasks import Caller as TaskClient
from tests.gateway.running import furnish, serving
from tests.gateway.serving import Served, served
from tests.patient_settings import PatientSettings
from toolpost import Paused, Settings, Toolbox, ToolContext, tool
from toolpost.contracts.principal import Principal
from toolpost.errors import ToolPermissionError
from toolpost.gateway.caller_keys import new_caller_key
from toolpost.gateway.mcp.server import McpServer

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # of what is old

Era = Literal["legacy", "auto"]
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
BOSS = "acme:boss"


@tool(side_effects="pure")
async def book(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    return f"a table for {await ctx.pause('guests', prompt='How many guests?')}"


@tool(side_effects="pure")
async def sign(ctx: ToolContext) -> str:
    """Sign, once a person has confirmed it."""
    return f"signed by {await ctx.pause('signature', prompt='Who signs?', person=True)}"


async def accept(context: Any, params: Any) -> ElicitResult:
    """Fill in whatever is asked, as an agent would."""
    return ElicitResult(action="accept", content={"value": "an agent", "username": "agent", "email": "a@example.org"})


@asynccontextmanager
async def client_of(gate: Served, headers: Mapping[str, str], era: Era) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=dict(headers), trust_env=False, timeout=60) as http,
        Client(
            streamable_http_client(f"{gate.url}/mcp", http_client=http), mode=era, elicitation_callback=accept
        ) as one,
    ):
        yield one


async def interactive_key(gate: Served, user: str) -> dict[str, str]:
    key, text = new_caller_key(user, Principal.parse(user), ["call"], by=BOSS, interactive=True)
    await gate.box.store.caller_keys.add(key)
    return {"Authorization": f"Bearer {text}"}


async def answered_by_a_person(box: Toolbox, value: Any) -> Any:
    """Answer what waits, as soon as something does; return the question."""
    async with asyncio.timeout(60):
        while not (found := await box.pending.list(by=BOSS)):
            await asyncio.sleep(0.01)
    await box.answer(found[0].id, value, by=BOSS)
    return found[0].question


@ERAS
async def test_what_a_tool_asks_is_put_to_the_client_of_an_interactive_key_and_else_to_a_person(
    tmp_path: Path, era: Era
) -> None:
    async with served(tmp_path / "data", [book]) as gate:
        async with client_of(gate, await interactive_key(gate, "acme:ann"), era) as client:
            filled_in = await client.call_tool("book", {})
        async with client_of(gate, gate.http.headers, era) as client:
            by_operator = await client.call_tool("book", {})
        async with client_of(gate, await gate.key("acme:bot", "call"), era) as client:
            calling = asyncio.create_task(client.call_tool("book", {}))
            question = await answered_by_a_person(gate.box, "two")
            decided = await calling

    assert filled_in.structured_content == by_operator.structured_content == {"result": "a table for an agent"}
    assert question.person
    assert decided.structured_content == {"result": "a table for two"}


async def test_what_an_agents_call_asks_after_an_answer_is_for_the_same_people(tmp_path: Path) -> None:
    @tool(side_effects="pure")
    async def travel(ctx: ToolContext) -> str:
        """Ask twice."""
        place = await ctx.pause("place", prompt="Where to?", key="place")
        return f"{place} on {await ctx.pause('day', prompt='When?', key='day')}"

    async with (
        served(tmp_path / "data", [travel], approvals={"answerers": [BOSS]}) as gate,
        client_of(gate, await gate.key("acme:bot", "call"), "legacy") as client,
    ):
        calling = asyncio.create_task(client.call_tool("travel", {}))
        await answered_by_a_person(gate.box, "Rome")
        async with asyncio.timeout(60):
            while not (found := await gate.box.pending.list(by=BOSS)):
                await asyncio.sleep(0.01)
        with pytest.raises(ToolPermissionError):
            await gate.box.answer(found[0].id, "Monday", by="acme:eve")
        await gate.box.answer(found[0].id, "Sunday", by=BOSS)
        result = await calling

    assert (found[0].question.person, found[0].question.answerers) == (True, (BOSS,))
    assert result.structured_content == {"result": "Rome on Sunday"}


@ERAS
@pytest.mark.parametrize("demanded_by", ["tool", "rule"])
async def test_a_tool_or_a_rule_can_demand_a_person_always(tmp_path: Path, era: Era, demanded_by: str) -> None:
    policy = [{"action": "allow", "tools": ["book"], "approvals": {"person": True}}]
    name, said = ("sign", "signed by eva") if demanded_by == "tool" else ("book", "a table for eva")
    async with (
        served(tmp_path / "data", [book, sign], policy=policy) as gate,
        client_of(gate, await interactive_key(gate, "acme:ann"), era) as client,
    ):
        calling = asyncio.create_task(client.call_tool(name, {}))
        await answered_by_a_person(gate.box, "eva")
        decided = await calling

    assert decided.structured_content == {"result": said}


async def test_approvals_of_a_rule_hold_for_what_a_person_is_demanded_for() -> None:
    settings = Settings.model_validate({"data_dir": None, "approvals": {"four_eyes": True}})
    async with Toolbox(tools=[book, sign], settings=settings) as box:
        asked, signing = await box.call("book", user=BOSS), await box.call("sign", user=BOSS)
        assert isinstance(asked, Paused)
        assert isinstance(signing, Paused)
        booked = await box.answer(asked.pending_id, 2, by=BOSS)
        with pytest.raises(ToolPermissionError, match="four_eyes"):
            await box.answer(signing.pending_id, "me", by=BOSS)
        signed = await box.answer(signing.pending_id, "eva", by="acme:eva")

    assert (booked.status, signed.status) == ("completed", "completed")


@ERAS
@pytest.mark.parametrize("behind", ["legacy", "auto"])
async def test_an_agents_client_does_not_confirm_what_a_server_asks_a_person(era: Era, behind: str) -> None:
    async with serving_fixture(None) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "options": {"protocol": behind}}
        settings = {"data_dir": None, "policy": "exploratory", "sources": [{**source, "required": True}]}
        async with Toolbox(settings=PatientSettings.model_validate(settings)) as box:
            server = McpServer(box, principal=lambda _ctx: "acme:bot")
            async with server.publishing(), Client(server.server, mode=era, elicitation_callback=accept) as client:
                calling = asyncio.create_task(client.call_tool("fixture__test_elicitation", {"message": "Drop it?"}))
                await answered_by_a_person(box, {"username": "eva", "email": "eva@example.org"})
                result = await calling

    assert "eva@example.org" in str(result.content)
    assert "a@example.org" not in str(result.content).replace("eva@example.org", "")


async def test_responses_that_an_agent_sends_with_its_call_do_not_reach_the_server(tmp_path: Path) -> None:
    form = ElicitResult(action="accept", content={"name": "agent"})
    async with serving_fixture(None) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "required": True}
        settings = {"data_dir": None, "policy": "exploratory", "sources": [source]}
        async with Toolbox(settings=PatientSettings.model_validate(settings)) as box:
            server = McpServer(box, principal=lambda _ctx: "acme:bot")
            async with server.publishing(), Client(server.server, elicitation_callback=accept) as client:
                responses: dict[str, Any] = {"user_name": form, "form": form}
                name = "fixture__test_input_required_result_elicitation"
                calling = asyncio.create_task(client.session.call_tool(name, {}, input_responses=responses))
                question = await answered_by_a_person(box, {"name": "eva"})
                await asyncio.wait([calling])

    assert question.person


async def test_a_call_that_brings_its_responses_does_not_wait_for_an_earlier_one(tmp_path: Path) -> None:
    form, name = (
        ElicitResult(action="accept", content={"name": "ann"}),
        "fixture__test_input_required_result_elicitation",
    )
    async with serving_fixture(None) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "required": True}
        settings = {"data_dir": None, "policy": "exploratory", "sources": [source]}
        async with Toolbox(settings=PatientSettings.model_validate(settings)) as box:
            server = McpServer(box, principal=lambda _ctx: "acme:ann", interactive=lambda _ctx: True)
            async with server.publishing(), Client(server.server, elicitation_callback=accept) as client:
                call = client.session.call_tool
                asked = await call(name, {}, allow_input_required=True)
                given: dict[str, Any] = {"user_name": form, "unknown": form}
                result = await call(name, {}, input_responses=given, allow_input_required=True)

    assert isinstance(asked, InputRequiredResult)
    assert "Hello, ann!" in str(result)


@pytest.mark.waits
async def test_an_agents_client_does_not_answer_what_the_task_of_an_interactive_one_asks() -> None:
    async with serving_fixture(fixture := Fixture()) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "required": True}
        settings = {"data_dir": None, "policy": "exploratory", "sources": [source]}
        async with Toolbox(settings=PatientSettings.model_validate(settings)) as box:
            server = McpServer(
                box,
                principal=lambda _ctx: "acme:ann",
                interactive=lambda ctx: str(ctx.request and ctx.request.headers["x-user"]) == "person",
            )
            async with server.publishing(), serving_mcp(server.server) as address:
                person, agent = TaskClient(address, "person", fixture), TaskClient(address, "agent", fixture)
                task_id = (await person.call("multi_input"))["taskId"]
                await person.until(task_id, "input_required")
                form = {"action": "accept", "content": {"name": "x"}}
                both = {"first": form, "second": form}
                await agent.ask("tasks/update", taskId=task_id, inputResponses=both)
                left = (await agent.until(task_id, "input_required", "completed"))["inputRequests"]
                await person.ask("tasks/update", taskId=task_id, inputResponses=both)
                done = await person.until(task_id, "completed", "failed")
                await person.close()
                await agent.close()

    assert set(left) == {"first", "second"}
    assert done["status"] == "completed"


async def test_a_key_or_token_of_the_user_whom_a_call_was_made_for_does_not_answer_it(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [book]) as gate:
        agent = await gate.key("acme:ann", "call")
        called = (await gate.http.post("/api/v1/calls", json={"tool": "book"}, headers=agent)).json()
        path, body = f"/api/v1/pending/{called['pending']['id']}/answer", {"decision": "answer", "value": 2}
        own = await gate.http.post(path, json=body, headers=await gate.key("acme:Ann", "answer"))
        other = await gate.http.post(path, json=body, headers=await gate.key("acme:eva", "answer"))
        withdrawn = (await gate.http.post("/api/v1/calls", json={"tool": "book"}, headers=agent)).json()
        denied = await gate.http.post(
            f"/api/v1/pending/{withdrawn['pending']['id']}/answer",
            json={"decision": "deny"},
            headers=await gate.key("acme:ann", "answer"),
        )

    assert (own.status_code, own.json()["code"]) == (403, "own_call")
    assert other.json()["content"] == "a table for 2"
    assert denied.json()["error"]["error_code"] == "approval_denied"


@pytest.mark.programs
@pytest.mark.parametrize("options", [(), ("--unattended",)])
async def test_serve_asks_its_client_unless_it_is_unattended(tmp_path: Path, options: tuple[str, ...]) -> None:
    program, *arguments = [*serving(furnish(tmp_path / "home")), *options]
    server = StdioServerParameters(command=program, args=arguments, env=child_environment())
    async with Client(stdio_client(server), elicitation_callback=accept) as client:
        asked = await client.session.call_tool("local__book", {}, allow_input_required=True)

    assert isinstance(asked, InputRequiredResult)
    params: Any = next(iter((asked.input_requests or {}).values())).params
    assert (params.message == "How many guests?") is not bool(options)
    assert ("toolpost pending answer" in params.message) is bool(options)
