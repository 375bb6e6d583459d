"""Calls that wait for a person, as clients see them: newer ones that retry, older ones that ask, and all others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    InputResponses,
)

from toolpost import Paused, Settings, Toolbox, ToolContext, tool
from toolpost.configuration.settings import ServerSettings, ViewSettings
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.views import View
from toolpost.sources import Workflow, WorkflowFunction

ME, COLLEAGUE = "acme:ann", "acme:bob"
SIGN_IN = "https://login.example/start?ticket=for-ann-alone"
ran: list[Any] = []


@tool(side_effects="write", destructive=True)
async def send(letter: dict[str, Any], copies: list[int]) -> str:
    """Send a letter."""
    ran.append((letter, copies))
    return "sent"


@tool(side_effects="write", destructive=True)
async def order(ctx: ToolContext, amount: int) -> str:
    """Order, once a person agrees, with a note and a date."""
    note = await ctx.pause("note", prompt="Which note?")
    date = await ctx.pause("date", prompt="Which date?")
    ran.append((amount, note, date))
    return f"{amount} ordered"


@tool(side_effects="pure")
async def read_mail(ctx: ToolContext) -> str:
    """Read the mail of whoever has signed in."""
    await ctx.pause(
        "sign in", auth_request={"auth_url": SIGN_IN, "provider": "mail"}, prompt="Mail wants your consent."
    )
    return "no news"


@asynccontextmanager
async def gateway(folder: Path | None = None, *, user: str = ME) -> AsyncIterator[tuple[Toolbox, McpServer]]:
    ran.clear()
    flow = WorkflowFunction(Workflow.parse("{name: flow, side_effects: write, steps: {mail: {tool: read_mail}}}"))
    async with Toolbox(tools=[send, order, read_mail, flow], settings=Settings(data_dir=folder)) as box:
        yield box, McpServer(box, principal=lambda _ctx: user, interactive=lambda _ctx: True)


async def waiting_in(box: Toolbox, *, by: str = COLLEAGUE) -> str:
    """The id of the call that waits, as soon as one does."""
    async with asyncio.timeout(30):
        while not (found := await box.pending.list(by=by)):
            await asyncio.sleep(0.01)
    return found[0].id


async def retry(
    client: Client,
    name: str,
    arguments: dict[str, Any],
    state: str | None = None,
    responses: InputResponses | None = None,
) -> Any:
    return await client.session.call_tool(
        name, arguments, request_state=state, input_responses=responses, allow_input_required=True
    )


async def forms_only(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="cancel")


@pytest.mark.parametrize("durable", [True, False])
async def test_a_retry_has_the_arguments_of_its_call_however_they_are_nested(tmp_path: Path, durable: bool) -> None:
    arguments = {"letter": {"to": ["bob"], "text": {"lines": ["hello", None, 1.5]}}, "copies": [1, 2]}
    async with gateway(tmp_path if durable else None) as (box, gate), Client(gate.server) as client:
        asked = await retry(client, "send", arguments)
        await box.approve(await waiting_in(box), by=COLLEAGUE)
        result = await retry(client, "send", arguments, asked.request_state)

    assert result.structured_content == {"result": "sent"}
    assert len(ran) == 1


async def answer(client: Client, arguments: dict[str, Any], asked: Any, value: str) -> Any:
    """Retry with a form for the one question that was asked."""
    [question] = asked.input_requests
    form = ElicitResult(action="accept", content={"value": value})
    return await retry(client, "order", arguments, asked.request_state, {question: form})


async def test_a_retry_continues_after_a_person_changed_the_arguments_and_the_tool_asked_again() -> None:
    given = {"amount": 100}
    async with gateway() as (box, gate), Client(gate.server, elicitation_callback=forms_only) as client:
        asked = await retry(client, "order", given)
        changes = [{"op": "replace", "path": "/amount", "value": 3}]
        await box.approve(await waiting_in(box), by=COLLEAGUE, changes=changes)
        note = await retry(client, "order", given, asked.request_state)
        date = await answer(client, given, note, "urgent")
        late = await answer(client, given, note, "a late answer is for its own question alone")
        result = await answer(client, given, late, "monday")

    assert (date.request_state, result.structured_content) == (late.request_state, {"result": "3 ordered"})
    assert ran == [(3, "urgent", "monday")]  # as box.answer(..., "urgent") gives them


async def test_an_older_clients_user_is_asked_for_everything_that_a_tool_wants_to_know() -> None:
    heard: list[str] = []

    async def fill_in(context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="accept", content={"value": str(len(heard))})

    async with gateway() as (box, gate), Client(gate.server, mode="legacy", elicitation_callback=fill_in) as client:
        call = asyncio.create_task(client.call_tool("order", {"amount": 1}))
        await box.approve(await waiting_in(box), by=COLLEAGUE)
        result = await call

    assert result.structured_content == {"result": "1 ordered"}
    asked = [message.splitlines()[0] for message in heard]  # of the approval too, unless it came faster
    assert asked[-2:] == ["Which note?", "Which date?"]


async def test_an_older_client_need_not_answer_what_is_decided_elsewhere() -> None:
    shown = asyncio.Event()

    async def stare(context: Any, params: ElicitRequestParams) -> ElicitResult:
        shown.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with gateway() as (box, gate), Client(gate.server, mode="legacy", elicitation_callback=stare) as client:
        call = asyncio.create_task(client.call_tool("send", {"letter": {}, "copies": []}))
        await shown.wait()
        await box.approve(await waiting_in(box), by=COLLEAGUE)
        result = await call

    assert result.structured_content == {"result": "sent"}


async def test_an_older_client_that_refuses_to_ask_learns_what_waits() -> None:
    async def refuse(context: Any, params: ElicitRequestParams) -> ErrorData:
        return ErrorData(code=-32600, message="not now")

    async with gateway() as (_, gate), Client(gate.server, mode="legacy", elicitation_callback=refuse) as client:
        result = await client.call_tool("send", {"letter": {}, "copies": []})

    assert "toolpost pending approve ask_" in str(result.content)
    assert not ran


@pytest.mark.parametrize("called", ["read_mail", "flow"])
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_consent_is_a_page_that_the_clients_user_is_sent_to(era: Literal["legacy", "auto"], called: str) -> None:
    async with gateway() as (box, gate):

        async def sign_in(context: Any, params: ElicitRequestParams) -> ElicitResult:
            assert isinstance(params, ElicitRequestURLParams)
            assert params.url == SIGN_IN
            await box.answer(await waiting_in(box, by=ME), by=ME)
            return ElicitResult(action="accept")

        async with Client(gate.server, mode=era, elicitation_callback=sign_in) as client:
            result = await client.call_tool(called, {})

    assert "no news" in str(result.content)


@pytest.mark.parametrize("called", ["read_mail", "flow"])
async def test_no_model_reads_the_link_by_which_a_person_signs_in(called: str) -> None:
    async with gateway() as (_, gate), Client(gate.server, mode="legacy") as client:
        told = await client.call_tool(called, {})

    assert "toolpost accounts connect mail" in str(told.content)
    assert (told.meta or {})["toolpost/card"]["kind"] == "consent"
    assert SIGN_IN not in str(told)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_call_that_waits_for_several_people_names_all_that_they_are_asked(
    era: Literal["legacy", "auto"],
) -> None:
    heard: list[str] = []

    @tool(side_effects="write")
    async def send_all(ctx: ToolContext) -> str:
        """Send two letters."""
        letters = [await ctx.call("send", {"letter": {"to": name}, "copies": []}) for name in ("eve", "bob")]
        if waiting := [one for one in letters if isinstance(one, Paused)]:
            ctx.wait_for(*waiting)
        return "all sent"

    async def hear(context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="accept")

    async with Toolbox(tools=[send, send_all], settings=Settings(data_dir=None)) as box:
        outer = View(box, "outer", ViewSettings(tools=["send_all"]))  # a client need not see what is called inside
        gate = McpServer(box, principal=lambda _ctx: ME, interactive=lambda _ctx: True, view=outer)
        async with Client(gate.server, mode="legacy") as plain:
            told = await plain.call_tool("send_all", {})
            listed = await plain.call_tool("pending_status", {})
            asked = await box.pending.list(by=COLLEAGUE)
            status = [await plain.call_tool("pending_status", {"pending_id": one.id}) for one in asked]
        async with Client(gate.server, mode=era, elicitation_callback=hear) as client:
            call = asyncio.create_task(client.call_tool("send_all", {}))
            while not heard:
                await asyncio.sleep(0)
            for action in await box.pending.list(by=COLLEAGUE):
                await box.approve(action.id, by=COLLEAGUE)
            result = await call

    assert all(f"toolpost pending approve {one.id}" in str(told.content) for one in asked)
    assert all(one.id in str(listed.content) for one in asked)
    assert all(f"toolpost pending approve {one.id}" in str(again.content) for one in asked for again in status)
    named = [((one.meta or {})["toolpost/pending_id"], (one.meta or {})["toolpost/others"]) for one in (told, *status)]
    assert [first for first, _ in named[1:]] == [one.id for one in asked]  # the one that is asked for comes first
    assert all({first, others[0]["id"]} == {one.id for one in asked} for first, others in named)
    assert heard[0].count("toolpost pending approve ask_") == 2
    assert result.structured_content == {"result": "all sent"}


async def test_a_caller_lists_its_own_calls_that_wait_and_no_others(tmp_path: Path) -> None:
    async with gateway(tmp_path, user=COLLEAGUE) as (_, gate), Client(gate.server, mode="legacy") as client:
        theirs = (await client.call_tool("send", {"letter": {}, "copies": []})).meta or {}
    async with gateway(tmp_path) as (_, gate), Client(gate.server) as client:
        none = await client.call_tool("pending_status", {})
        state = (await retry(client, "order", {"amount": 7})).request_state.partition("&")[0]
        own = await client.call_tool("pending_status", {})
        foreign = await client.call_tool("pending_wait", {"pending_id": theirs["toolpost/pending_id"]})
        wrong = await client.call_tool("pending_wait", {"pending_id": 7})

    assert (foreign.is_error, wrong.is_error) == (True, True)
    assert "none of your calls is pending as" in str(foreign.content)
    assert "needs pending_id, a string" in str(wrong.content)
    assert "none of your calls is pending" in str(none.content)
    assert f'{state} order {{"amount": 7}}: open' in own.content[0].model_dump()["text"]


def quick(seconds: float = 0.01) -> Settings:
    return Settings(data_dir=None, server=ServerSettings(pending_wait_s=seconds))


async def accept(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={})


@pytest.mark.parametrize("asks", [True, False])
async def test_a_newer_client_learns_that_its_call_waits_before_it_gives_up(asks: bool) -> None:
    ran.clear()
    given: dict[str, Any] = {"letter": {"to": "bob"}, "copies": [1]}
    async with Toolbox(tools=[send], settings=quick()) as box:
        gate = McpServer(box, principal=lambda _ctx: ME, interactive=lambda _ctx: True)
        async with Client(gate.server, elicitation_callback=accept if asks else None) as client:
            told = await client.call_tool("send", given)
            [waiting] = await box.pending.list(by=COLLEAGUE)
            await box.approve(waiting.id, by=COLLEAGUE)
            result = await client.call_tool("pending_wait", {"pending_id": waiting.id})

    assert (told.meta or {})["toolpost/pending_id"] == waiting.id
    assert f"call pending_wait with pending_id: {waiting.id}" in str(told.content)
    assert (result.structured_content, len(ran)) == ({"result": "sent"}, 1)


async def test_the_eighth_retry_of_a_call_that_waits_gets_its_pending_action() -> None:
    given: dict[str, Any] = {"letter": {}, "copies": []}
    async with Toolbox(tools=[send], settings=quick()) as box:
        gate = McpServer(box, principal=lambda _ctx: ME, interactive=lambda _ctx: True)
        async with Client(gate.server) as client:
            answers = [await retry(client, "send", given)]
            for _ in range(8):
                answers.append(await retry(client, "send", given, answers[-1].request_state))

    assert [isinstance(one, InputRequiredResult) for one in answers] == [True] * 8 + [False]


async def test_rounds_are_counted_over_processes_on_one_store(tmp_path: Path) -> None:
    given: dict[str, Any] = {"letter": {}, "copies": []}
    settings = Settings(data_dir=tmp_path, server=ServerSettings(pending_wait_s=0.01))
    async with Toolbox(tools=[send], settings=settings) as one, Toolbox(tools=[send], settings=settings) as two:
        gates = [McpServer(box, principal=lambda _ctx: ME) for box in (one, two)]
        async with Client(gates[0].server) as first, Client(gates[1].server) as second:
            answers = [await retry(first, "send", given)]
            for client in (second, first) * 4:
                answers.append(await retry(client, "send", given, answers[-1].request_state))

    assert [isinstance(one, InputRequiredResult) for one in answers] == [True] * 8 + [False]


@pytest.mark.parametrize("change", ["&7&", "&-1&", "&x&", "&"])
async def test_a_client_cannot_change_the_round_of_its_state(change: str) -> None:
    given: dict[str, Any] = {"letter": {}, "copies": []}
    async with Toolbox(tools=[send], settings=quick()) as box:
        gate = McpServer(box, principal=lambda _ctx: ME, interactive=lambda _ctx: True)
        async with Client(gate.server) as client:
            state = (await retry(client, "send", given)).request_state
            with pytest.raises(MCPError, match="requestState"):
                await retry(client, "send", given, state.replace("&1&", change))
