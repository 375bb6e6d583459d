"""Many calls on one connection: whose answer is whose, and what a broken connection does to them."""

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import Held, said, serving, shared, soon, tool, toolbox
from toolpost import Completed, Failed
from toolpost.contracts.calls import Credential
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolConnectionError, ToolTimeoutError
from toolpost.sources.base import Services
from toolpost.sources.websocket.correlation import Correlation
from toolpost.sources.websocket.session import WebSocketSession
from toolpost.sources.websocket.source import WebSocketSource
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.websockets import connect_websocket


async def test_calls_share_one_connection_and_get_their_own_answers_in_any_order() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url)) as box:
        calls = [asyncio.create_task(box.call("api.ask", {"n": number})) for number in range(50)]
        asked = [await held.next() for _ in calls]
        for connection, message in reversed(asked):
            await connection.send(json.dumps({"id": message["id"], "double": 2 * message["n"]}))
        outcomes = await asyncio.gather(*calls)
    assert [outcome.content for outcome in outcomes] == [{"double": 2 * number} for number in range(50)]
    assert len(held.connections) == 1
    assert len({message["id"] for _, message in asked}) == 50


@pytest.mark.parametrize(
    ("options", "message", "answer"),
    [
        ({}, {"q": 5, "id": 1}, {"id": 1, "a": 1}),
        ({}, {"q": 5, "id": 1}, {"id": "1", "a": 1}),
        ({"id_type": "text"}, {"q": 5, "id": "1"}, {"id": "1", "a": 1}),
        ({"id_field": "meta.call.id"}, {"q": 5, "meta": {"v": 2, "call": {"id": 1}}}, {"meta": {"call": {"id": 1}}}),
        ({"id_field": "ref", "reply_id_field": "to.ref"}, {"q": 5, "ref": 1}, {"to": {"ref": 1}, "a": 1}),
    ],
    ids=["number", "number as text", "text", "deep", "elsewhere"],
)
async def test_the_id_is_where_the_server_wants_it(
    options: dict[str, Any], message: dict[str, Any], answer: dict[str, Any]
) -> None:
    held = Held()
    template = {"q": "{n}", "meta": {"v": 2}} if "meta" in message else {"q": "{n}"}
    async with serving(held) as url, toolbox(shared(url, {"ask": tool(message=template)}, **options)) as box:
        call = asyncio.create_task(box.call("api.ask", {"n": 5}))
        connection, asked = await held.next()
        await connection.send(json.dumps(answer))
        outcome = await call
    assert asked == message
    assert isinstance(outcome, Completed)
    assert "id" not in json.dumps(outcome.content)


@pytest.mark.parametrize(
    ("template", "arguments"), [(None, {"x": 7, "deep": {"a": 1}}), ("{deep}", {"deep": {"a": 1}})], ids=["all", "one"]
)
async def test_an_id_inside_arguments_leaves_those_of_the_caller_alone(
    template: Any, arguments: dict[str, Any]
) -> None:
    async with serving(said) as url:
        own = WebSocketSource(shared(url, {"ask": tool(message=template)}), Services())
        (ask,) = await own.discover()
        before = json.dumps(arguments)
        result = await ask.execute(arguments, ToolContext())
        await own.close()
    assert json.dumps(arguments) == before
    assert result.result["got"].get("deep", {"a": 1}) == {"a": 1}


async def test_an_answer_that_comes_twice_does_not_reach_the_next_call() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url)) as box:
        first = asyncio.create_task(box.call("api.ask", {}))
        connection, one = await held.next()
        for _ in range(2):
            await connection.send(json.dumps({"id": one["id"], "n": 1}))
        assert (await first).content == {"n": 1}
        second = asyncio.create_task(box.call("api.ask", {}))
        _, two = await held.next()
        await connection.send(json.dumps({"id": one["id"], "n": 1}))
        await connection.send(json.dumps({"id": two["id"], "n": 2}))
        assert (await second).content == {"n": 2}


async def test_an_answer_that_comes_too_late_is_dropped_and_the_connection_continues() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url)) as box:
        late = await box.call("api.ask", {"n": 1}, timeout_s=0.1)
        connection, one = await held.next()
        following = asyncio.create_task(box.call("api.ask", {"n": 2}))
        _, two = await held.next()
        await connection.send("rubbish")
        for message in (one, two):
            await connection.send(json.dumps({"id": message["id"], "n": message["n"]}))
        assert (await following).content == {"n": 2}
    assert isinstance(late, Failed)
    assert late.error.error_code == "timeout"
    assert len(held.connections) == 1


async def test_a_broken_connection_fails_the_calls_under_way_and_the_next_call_connects_again() -> None:
    held = Held()
    tools = {"pay": tool(side_effects="external")}
    async with serving(held) as url, toolbox(shared(url, tools, tries=3)) as box:
        calls = [asyncio.create_task(box.call("api.pay", {"n": number})) for number in range(3)]
        asked = [await held.next() for _ in calls]
        asked[0][0].transport.abort()
        outcomes = await asyncio.gather(*calls)
        following = asyncio.create_task(box.call("api.pay", {"n": 9}))
        fresh, message = await held.next()
        await fresh.send(json.dumps({"id": message["id"], "paid": True}))
        assert (await following).content == {"paid": True}
    assert [message["n"], len(held.connections)] == [9, 2]
    assert len({id(outcome.error) for outcome in outcomes}) == 3
    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ToolConnectionError)
        assert outcome.error.sent


async def test_a_connection_that_breaks_under_many_reads_is_one_failure_and_all_are_asked_again() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url, tries=3)) as box:
        calls = [asyncio.create_task(box.call("api.ask", {"n": number})) for number in range(8)]
        asked = [await held.next() for _ in calls]
        asked[0][0].transport.abort()
        for _ in calls:
            connection, message = await held.next()
            await connection.send(json.dumps({"id": message["id"], "n": message["n"]}))
        outcomes = await asyncio.gather(*calls)
    assert [outcome.content for outcome in outcomes] == [{"n": number} for number in range(8)]
    assert len(held.connections) == 2


async def test_a_connection_that_was_closed_between_calls_costs_no_call() -> None:
    held = Held()
    tools = {"pay": tool(side_effects="external")}
    async with serving(held) as url, toolbox(shared(url, tools, tries=3)) as box:
        for number in range(3):
            call = asyncio.create_task(box.call("api.pay", {"n": number}))
            connection, message = await held.next()
            await connection.send(json.dumps({"id": message["id"]}))
            assert isinstance(await call, Completed)
            await connection.close(1001, "restart")
    assert len(held.connections) == 3


async def test_a_message_above_the_limit_fails_the_one_call_that_waits_for_good() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url, max_message_bytes=1024)) as box:
        call = asyncio.create_task(box.call("api.ask", {}))
        connection, message = await held.next()
        await connection.send(json.dumps({"id": message["id"], "x": "x" * 5_000_000}))
        outcome = await call
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "response_too_large"


async def test_a_message_above_the_limit_may_be_anybodys_so_that_others_may_try_again() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url, max_message_bytes=1024)) as box:
        calls = [asyncio.create_task(box.call("api.ask", {"n": number})) for number in range(2)]
        connection, message = await held.next()
        await held.next()
        await connection.send(json.dumps({"id": message["id"], "x": "x" * 5000}))
        outcomes = await asyncio.gather(*calls)
    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ToolConnectionError)
        assert outcome.error.sent
        assert outcome.error.is_retryable
        assert "larger than 1,024 bytes" in str(outcome.error)


async def test_a_message_above_the_limit_may_be_for_a_call_that_gave_up_before() -> None:
    held = Held()
    async with serving(held) as url, toolbox(shared(url, max_message_bytes=1024)) as box:
        gone = asyncio.create_task(box.call("api.ask", {}))
        connection, message = await held.next()
        gone.cancel()
        await asyncio.wait([gone])
        call = asyncio.create_task(box.call("api.ask", {}))
        await held.next()
        await connection.send(json.dumps({"id": message["id"], "x": "x" * 5000}))
        outcome = await call
    assert isinstance(outcome, Failed)
    assert outcome.error.is_retryable
    assert "Its call is unknown" in str(outcome.error)


TAKES_ID = {"properties": {"id": {"type": "integer"}}}


@pytest.mark.parametrize(
    "fields",
    [{"message": {"op": "delete", "id": "{id}"}, "input_schema": TAKES_ID}, {"input_schema": TAKES_ID}],
    ids=["message", "argument"],
)
async def test_a_tool_with_something_of_its_own_where_the_id_goes_is_left_out(fields: dict[str, Any]) -> None:
    own = WebSocketSource(shared("ws://127.0.0.1:9", {"delete": tool(**fields)}), Services())
    assert await own.discover() == []
    assert "'delete' is skipped: its " in own.problems[0]
    assert "the place of the call's id" in own.problems[0]


async def test_an_argument_where_the_id_goes_is_refused() -> None:
    async with serving(said) as url, toolbox(shared(url)) as box:
        refused = await box.call("api.ask", {"id": 4711})
        assert isinstance(await box.call("api.ask", {"number": 4711}), Completed)
    assert isinstance(refused, Failed)
    assert refused.error.error_code == "validation_failed"


async def test_an_error_in_an_answer_fails_only_its_own_call() -> None:
    async def odd(connection: ServerConnection) -> None:
        async for text in connection:
            message = json.loads(text)
            wrong = {"error": {"code": 1, "message": "odd"}} if message["n"] % 2 else {"result": message["n"]}
            await connection.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], **wrong}))

    async with serving(odd) as url, toolbox(shared(url)) as box:
        outcomes = await asyncio.gather(*(box.call("api.ask", {"n": number}) for number in range(6)))
    assert [getattr(outcome, "content", "failed") for outcome in outcomes] == [0, "failed", 2, "failed", 4, "failed"]


async def test_each_credential_has_a_connection_of_its_own() -> None:
    seen: list[str] = []

    async def note(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(connection.request.headers["Authorization"])
        await said(connection)

    async with serving(note) as url:
        own = WebSocketSource(shared(url), Services())
        (ask,) = await own.discover()
        people = [Credential(name, {"Authorization": name}) for name in ("ada", "bob", "ada")]
        people += [Credential(headers={"Authorization": "eve"}), Credential(headers={"Authorization": "mal"})]
        for credential in people:
            await own.run(ask.plan, {}, credential, timeout_s=5, context=ToolContext)
        await own.close()
    assert seen == ["ada", "bob", "eve", "mal"]


async def test_a_new_token_gets_a_new_connection_and_the_old_one_goes_when_its_calls_are_done() -> None:
    held = Held()
    async with serving(held) as url:
        own = WebSocketSource(shared(url), Services())
        (ask,) = await own.discover()

        def call(token: str) -> asyncio.Task[Any]:
            person = Credential("ada", {"Authorization": token})
            return asyncio.create_task(own.run(ask.plan, {}, person, timeout_s=5, context=ToolContext))

        before = call("old")
        old, first = await held.next()
        after = call("new")
        new, second = await held.next()
        for connection, message in ((new, second), (old, first)):
            await connection.send(json.dumps({"id": message["id"], "from": id(connection)}))
        assert [(await one).content for one in (before, after)] == [{"from": id(old)}, {"from": id(new)}]
        async with asyncio.timeout(5):
            await old.wait_closed()
        assert new.close_code is None
        await own.close()
    presented = [one.request.headers["Authorization"] for one in (old, new) if one.request is not None]
    assert presented == ["old", "new"]


async def test_calls_that_arrive_while_it_connects_share_the_connection_or_its_failure() -> None:
    held = Held()
    async with serving(held) as url:
        pass
    async with toolbox(shared(url)) as box:
        outcomes = await asyncio.gather(*(box.call("api.ask", {}) for _ in range(5)))
    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, ToolConnectionError)
        assert not outcome.error.sent
    assert len({id(outcome.error) for outcome in outcomes}) == 5


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "given up"])
async def test_many_credentials_do_not_hold_connections_without_end(answered: bool) -> None:
    held = Held()
    async with serving(held) as url:
        own = WebSocketSource(shared(url), Services())
        (ask,) = await own.discover()
        for number in range(70):
            person = Credential(f"user-{number}")
            call = asyncio.create_task(own.run(ask.plan, {}, person, timeout_s=60, context=ToolContext))
            connection, message = await held.next()
            if answered:
                await connection.send(json.dumps({"id": message["id"]}))
            else:
                call.cancel()
            await asyncio.wait([call])
        gone = [connection for connection in held.connections if connection.close_code is not None]
        await own.close()
    assert 70 - len(gone) <= 65


@pytest.mark.waits
async def test_a_call_that_gives_up_does_not_disturb_others_whose_messages_wait_for_their_turn() -> None:
    awake = asyncio.Event()

    async def sleepy(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await soon(awake)
        connection.transport.resume_reading()
        await said(connection)

    tools = {"hasty": tool(timeout_s=2), "patient": tool(side_effects="external")}
    async with serving(sleepy, max_size=None) as url:
        own = WebSocketSource(shared(url, tools), Services())
        hasty, patient = await own.discover()
        big = {"x": "y" * 8_000_000}
        first = asyncio.create_task(hasty.execute(big, ToolContext()))
        unsent = asyncio.create_task(hasty.execute({"n": 1}, ToolContext()))
        others = [asyncio.create_task(patient.execute({"n": number}, ToolContext())) for number in (2, 3)]
        with pytest.raises(ToolTimeoutError):
            await first
        with pytest.raises(ToolConnectionError, match="did not read the message in time") as given_up:
            await unsent
        awake.set()
        assert [(await one).result["got"] for one in others] == [{"n": 2}, {"n": 3}]
        await own.close()
    assert not given_up.value.sent


async def test_closing_a_source_while_it_connects_reports_that_nothing_was_sent() -> None:
    reached = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        own = WebSocketSource(shared(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"), Services())
        (ask,) = await own.discover()
        call = asyncio.create_task(ask.execute({}, ToolContext()))
        async with asyncio.timeout(5):
            await reached.wait()
        await own.close()
        with pytest.raises(ToolConnectionError, match="is closed") as unsent:
            await call
    assert not unsent.value.sent


async def test_closing_a_source_fails_what_waits_and_says_goodbye() -> None:
    held = Held()
    async with serving(held) as url:
        own = WebSocketSource(shared(url), Services())
        (ask,) = await own.discover()
        call = asyncio.create_task(ask.execute({}, ToolContext()))
        connection, _ = await held.next()
        await own.close()
        with pytest.raises(ToolConnectionError, match="was closed"):
            await call
        with pytest.raises(ToolConnectionError, match="is closed") as unsent:
            await ask.execute({}, ToolContext())
        await connection.wait_closed()
    assert connection.close_code == 1000
    assert not unsent.value.sent


async def test_a_connection_that_is_let_go_as_soon_as_it_is_made_says_goodbye_too() -> None:
    held = Held()
    async with serving(held) as url:
        socket = await connect_websocket(url, policy=NetworkPolicy().for_source(url))
        await WebSocketSession("api", socket, Correlation(("id",), ("id",))).close()
        async with asyncio.timeout(20):
            await held.connections[0].wait_closed()
    assert held.connections[0].close_code == 1000


def test_a_source_may_be_closed_on_another_loop_than_the_one_it_was_used_on() -> None:
    async def used() -> WebSocketSource:
        async with serving(said) as url:
            own = WebSocketSource(shared(url), Services())
            (ask,) = await own.discover()
            await ask.execute({}, ToolContext())
        return own

    asyncio.run(asyncio.run(used()).close())
