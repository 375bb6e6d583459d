"""Messages: what is sent for which arguments, and what an answer becomes."""

import json
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import said, serving, source, tool, toolbox
from toolpost import Completed, Failed
from toolpost.contracts.context import ToolContext
from toolpost.sources.base import Services
from toolpost.sources.websocket.source import WebSocketSource

ARGUMENTS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}, "more": {"type": "object"}},
}


async def sent_for(template: Any, arguments: dict[str, Any]) -> Any:
    """What a server receives."""
    tools = {"look": tool(message=template, input_schema=ARGUMENTS)}
    async with serving(said) as url, toolbox(source(url, tools)) as box:
        outcome = await box.call("api.look", arguments)
    assert isinstance(outcome, Completed), outcome
    return outcome.content["got"]


@pytest.mark.parametrize(
    ("template", "arguments", "sent"),
    [
        (None, {"city": "Ulm", "days": 3}, {"city": "Ulm", "days": 3}),
        ({"q": "{city}", "n": "{days}"}, {"city": "Ulm", "days": 3}, {"q": "Ulm", "n": 3}),
        ({"q": "{city}", "n": "{days}"}, {"city": "Ulm", "days": None}, {"q": "Ulm", "n": None}),
        ({"q": "{city}", "n": "{days}"}, {"city": 'a"{days}\\\u2028'}, {"q": 'a"{days}\\\u2028'}),
        ({"q": {"deep": ["{city}", "{days}", 7]}}, {"days": 3}, {"q": {"deep": [3, 7]}}),
        ({"q": "in {city}: {days}", "x": "{{city}}"}, {"city": "Ulm", "days": 3}, {"q": "in Ulm: 3", "x": "{city}"}),
        ({"q": "in {city}", "on": True, "of": None, "at": 1.5}, {}, {"on": True, "of": None, "at": 1.5}),
        ("{more}", {"more": {"any": ["thing"]}}, {"any": ["thing"]}),
        ({"q": "with {more}"}, {"more": {"a": [1]}}, {"q": 'with {"a":[1]}'}),
    ],
    ids=["all", "typed", "null", "quoted", "nested", "filled", "absent", "whole", "object in text"],
)
async def test_a_template_is_filled_with_the_arguments(template: Any, arguments: dict[str, Any], sent: Any) -> None:
    assert await sent_for(template, arguments) == sent


async def test_a_message_that_needs_a_missing_argument_is_not_sent() -> None:
    tools = {"look": tool(message="{more}", input_schema=ARGUMENTS)}
    async with toolbox(source("ws://127.0.0.1:9", tools)) as box:
        outcome = await box.call("api.look", {})
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "validation_failed"
    assert "'more'" in str(outcome.error)


async def answered(answer: str | bytes, **options: Any) -> Any:
    """What a call comes to when a server answers so."""

    async def answer_once(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(answer)
        await connection.wait_closed()

    async with serving(answer_once) as url, toolbox(source(url, {"ask": tool()}, **options)) as box:
        return await box.call("api.ask", {})


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ('{"a": 1}', {"a": 1}),
        (b' [1, "\xc3\xbc"] ', [1, "ü"]),
        ('"text"', "text"),
        ("null", None),
        ('{"jsonrpc": "2.0", "id": 1, "result": {"sum": 3}}', {"sum": 3}),
        ('{"error": null, "a": 1}', {"error": None, "a": 1}),
        ('{"error": 0.25, "value": 3}', {"error": 0.25, "value": 3}),
    ],
    ids=["object", "bytes", "text", "null", "json-rpc", "no error", "measurement"],
)
async def test_an_answer_is_read_as_json(answer: str | bytes, content: Any) -> None:
    assert (await answered(answer)).content == content


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ('{"jsonrpc": "2.0", "error": {"code": -32601, "message": "no such method"}}', "no such method (code -32601)"),
        ('{"error": "out of\\u001b[2J ink"}', "out of ink"),
        ('{"error": {"reason": "tired"}}', '{"reason":"tired"}'),
        ('{"error": true, "message": "full"}', "full"),
    ],
    ids=["json-rpc", "text", "another object", "a flag"],
)
async def test_an_error_in_an_answer_is_a_failure_with_its_message(answer: str, told: str) -> None:
    error = (await answered(answer)).error
    assert (type(error).__name__, error.error_code) == ("ToolClientError", "error_answer")
    assert str(error) == f"the server answered with an error: {told}"


@pytest.mark.parametrize(
    "rubbish",
    ["<html>", "", '{"a": NaN}', '{"a": 1} {"b": 2}', b"\xff\xfe", "[" * 100_000, '{"a":' * 50_000],
    ids=["page", "empty", "nan", "two", "no text", "deep list", "deep object"],
)
async def test_an_answer_that_is_not_json_is_reported_as_such(rubbish: str | bytes) -> None:
    error = (await answered(rubbish)).error
    assert error.error_code == "output_invalid"
    assert "the answer is not JSON" in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize("large", ['{"a":' * 100_000, "[" + "{}," * 300_000 + "0]"], ids=["deep", "many"])
async def test_an_answer_of_too_many_values_is_not_decoded(large: str) -> None:
    error = (await answered(large)).error
    assert error.error_code == "message_too_large"


async def test_texts_go_as_they_are_where_the_format_is_text() -> None:
    async def shout(connection: ServerConnection) -> None:
        async for message in connection:
            assert isinstance(message, str)
            await connection.send(message.upper())

    tools = {"say": tool(message="say {city}", input_schema=ARGUMENTS)}
    async with serving(shout) as url, toolbox(source(url, tools, format="text")) as box:
        assert (await box.call("api.say", {"city": "Ulm"})).content == "SAY ULM"
        assert (await box.call("api.say", {})).error.error_code == "validation_failed"
    error = (await answered(b"\xff", format="text")).error
    assert "`format: bytes`" in str(error)


async def test_bytes_become_an_artifact_where_the_format_is_bytes() -> None:
    kinds: list[type] = []

    async def note(connection: ServerConnection) -> None:
        message = await connection.recv()
        kinds.append(type(message))
        await connection.send(b"\x00\x01\xff")

    async with serving(note) as url, toolbox(source(url, {"get": tool(message="GET")}, format="bytes")) as box:
        outcome = await box.call("api.get", {})
        assert isinstance(outcome, Completed)
        (artifact,) = outcome.artifacts
        assert await box.store.artifacts.read(artifact, tenant="local") == b"\x00\x01\xff"
    assert kinds == [bytes]


@pytest.mark.parametrize("outputs", ["report", "strict"])
async def test_an_answer_is_checked_against_the_output_schema(outputs: str) -> None:
    schema = {"type": "object", "properties": {"got": {"type": "string"}}}
    tools = {"look": tool(output_schema=schema)}
    async with serving(said) as url, toolbox(source(url, tools, outputs=outputs)) as box:
        outcome = await box.call("api.look", {"a": 1})
    if outputs == "strict":
        assert outcome.error.error_code == "output_invalid"
    else:
        assert len(outcome.meta["output_issues"]) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tools": {"a": {"message": {"x": "{y}"}, "input_schema": ARGUMENTS}}}, "needs 'y'"),
        ({"tools": {"a": {"message": [1]}}, "mode": "multiplexed"}, "no object for an id at 'id'"),
        (
            {"tools": {"a": {"message": {"m": 1}}}, "mode": "multiplexed", "id_field": "m.id"},
            "no object for an id at 'id'",
        ),
        ({"tools": {}}, "there are no tools"),
    ],
    ids=["unknown argument", "no object", "no object inside", "no tools"],
)
async def test_a_tool_that_cannot_be_called_is_left_out_and_reported(options: dict[str, Any], told: str) -> None:
    async with toolbox(source("ws://127.0.0.1:9", **options)) as box:
        assert [spec for spec in box.registry.specs() if spec.source == "api"] == []
        assert any(told in problem for problem in box.problems), box.problems


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("http://127.0.0.1:9", {}, "only ws and wss"),
        ("ws://127.0.0.1:9", {"mode": "multiplexed", "format": "text"}, "needs the format json"),
    ],
    ids=["http", "text"],
)
async def test_a_source_that_cannot_work_says_why(url: str, options: dict[str, Any], told: str) -> None:
    async with toolbox(source(url, {"a": tool()}, **options)) as box:
        assert told in (box.report[0].error or "")


async def test_a_tool_can_be_run_without_a_box() -> None:
    async with serving(said) as url:
        own = WebSocketSource(source(url, {"look": tool()}, mode="multiplexed"), Services())
        (look,) = await own.discover()
        result = await look.execute({"city": "Ulm"}, ToolContext())
        await own.close()
        await own.close()
    assert (result.success, json.dumps(result.result)) == (True, '{"got": {"city": "Ulm"}}')


async def test_without_a_schema_a_tool_takes_what_its_message_names_and_no_more() -> None:
    tools = {"look": {"message": {"q": "{city}", "n": "{days}"}, "side_effects": "read"}}
    async with serving(said) as url, toolbox(source(url, tools)) as box:
        schema = box.registry.find("api.look").spec.input_schema
        right = await box.call("api.look", {"city": "Ulm", "days": 3})
        wrong = [await box.call("api.look", given) for given in ({}, {"city": "Ulm", "days": 3, "dasy": 4})]

    assert (schema["required"], schema["additionalProperties"]) == (["city", "days"], False)
    assert isinstance(right, Completed), right
    assert [outcome.error.error_code for outcome in wrong if isinstance(outcome, Failed)] == ["validation_failed"] * 2


async def test_arguments_that_a_schema_does_not_name_are_refused_unless_it_lets_them_in() -> None:
    tools = {
        "closed": tool(input_schema=ARGUMENTS),
        "open": tool(input_schema={**ARGUMENTS, "additionalProperties": True}),
    }
    async with serving(said) as url, toolbox(source(url, tools)) as box:
        refused = await box.call("api.closed", {"city": "Ulm", "zzz": 1})
        taken = await box.call("api.open", {"city": "Ulm", "zzz": 1})

    assert isinstance(refused, Failed)
    assert "zzz" in str(refused.error)
    assert isinstance(taken, Completed), taken
