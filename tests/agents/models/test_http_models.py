"""Our clients of Chat Completions, Responses and Messages, against a scripted provider on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.agents.models.provider import KEY, Broken, Cut, Provider, Raw, Refusal, Status
from toolpost import PlannerFinish, ReactPlanner, Settings, Toolbox, tool
from toolpost.agents.models.anthropic_messages import AnthropicMessages
from toolpost.agents.models.openai import OpenAIChat, OpenAIResponses
from toolpost.agents.models.replies import read_reply, request_reply
from toolpost.agents.models.retries import RETRY
from toolpost.contracts.chat import ModelReply, TextDelta, Usage
from toolpost.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolOutputError,
    ToolRateLimitError,
    ToolServerError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.schema.provider_view import fit_schema
from toolpost.testing import tool_calls

if TYPE_CHECKING:
    from toolpost.agents.models.http_model import HttpChatModel

ANN = {"user_id": "acme:ann"}
HELLO = [{"role": "user", "content": "hello"}]
QUICK = RETRY.model_copy(update={"wait_exponential_min_s": 0.01})
ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "$b": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": ADD}}]
ALIAS = fit_schema(ADD).aliases["$b"]
FOUR = {"max_attempts": 4}
APIS = [OpenAIChat, OpenAIResponses, AnthropicMessages]
each_api = pytest.mark.parametrize("api", APIS)


def model(api: type[HttpChatModel], provider: Provider, **options: Any) -> HttpChatModel:
    url = provider.site.url if api is AnthropicMessages else provider.url
    return api("m-1", base_url=url, **{"api_key": KEY, "retry": QUICK, **options})


async def pieces(asked: HttpChatModel, messages: Any = HELLO, **options: Any) -> list[Any]:
    return [item async for item in asked.stream(messages, **options)]


@each_api
async def test_a_text_is_streamed_and_counted(api: type[HttpChatModel]) -> None:
    async with Provider(["It rains in Bergen."]) as provider:
        *deltas, reply = await pieces(model(api, provider, prices=(2.0, 10.0)))

    assert "".join(delta.text for delta in deltas) == "It rains in Bergen."
    assert len(deltas) == 3
    assert reply.message["content"] == "It rains in Bergen."
    assert (reply.finish_reason, reply.model) == ("stop", "m-1")
    assert reply.usage == Usage(11, 5, (11 * 2.0 + 5 * 10.0) / 1e6)


@each_api
async def test_parallel_calls_are_streamed_under_their_real_names(api: type[HttpChatModel]) -> None:
    wish = tool_calls(("add", {ALIAS: 2, "a": 1}), ("look", {"q": "ä"}))
    async with Provider([wish]) as provider:
        *deltas, reply = await pieces(model(api, provider), tools=TOOLS)

    calls = [call["function"] for call in reply.message["tool_calls"]]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("add", {"$b": 2, "a": 1}),
        ("look", {"q": "ä"}),
    ]
    assert reply.finish_reason == "tool_calls"
    assert [delta.name for delta in deltas if delta.name] == ["add", "look"]
    assert _arguments(deltas) == [call["arguments"] for call in calls]
    assert "$b" not in json.dumps(provider.bodies[0]["tools"]).replace('"title": "$b"', "")


@each_api
async def test_a_conversation_with_results_is_sent_as_the_api_wants_it(api: type[HttpChatModel]) -> None:
    async with Provider([tool_calls(("add", {"a": 1})), "3"]) as provider:
        asked = model(api, provider)
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, *HELLO]
        reply = await request_reply(asked, messages, tools=TOOLS)
        messages += [reply.message, {"role": "tool", "tool_call_id": "c0", "content": "3"}]
        await request_reply(asked, messages, tools=TOOLS)
        sent = provider.bodies[1]

    assert "model" not in reply.message
    match asked:
        case OpenAIChat():
            assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool"]
            assert sent["messages"][2]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
            assert sent["messages"][2].keys() == {"role", "content", "tool_calls"}
        case OpenAIResponses():
            assert [item.get("type") or item["role"] for item in sent["input"]] == [
                *("system", "user", "reasoning", "function_call", "function_call_output")
            ]
            assert sent["store"] is False
        case _:
            assert sent["system"] == "Be brief."
            assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
            assert sent["messages"][1]["content"] == [
                {"type": "thinking", "thinking": "Hm.", "signature": "signed"},
                {"type": "tool_use", "id": "c0", "name": "add", "input": {"a": 1}},
            ]
            assert sent["messages"][2]["content"][0]["tool_use_id"] == "c0"


@each_api
async def test_a_message_of_another_provider_is_sent_without_its_own_items(api: type[HttpChatModel]) -> None:
    kept = {"api": "another", "items": [{"type": "thought"}]}
    said = {"role": "assistant", "content": "Hi.", "reasoning": kept, "usage": {}}
    calls = {**tool_calls(("add", "{broken")), "content": None}
    calls["tool_calls"][0]["id"] = "call:1"
    results = {"role": "tool", "tool_call_id": "call:1", "content": ""}
    async with Provider(["Ho."]) as provider:
        await request_reply(model(api, provider), [*HELLO, said, *HELLO, calls, results], tools=TOOLS)
        sent = json.dumps(provider.bodies[0])

    assert "thought" not in sent
    assert "unparsed" in sent
    assert ("call:1" in sent) == (api is not AnthropicMessages)


@each_api
@pytest.mark.parametrize("streamed", [True, False])
async def test_refusals_and_cut_replies_say_so(api: type[HttpChatModel], *, streamed: bool) -> None:
    async with Provider([Refusal("I will not."), Cut("It rai")]) as provider:
        asked = model(api, provider)
        first, second = [await (_streamed if streamed else _complete)(asked) for _ in range(2)]

    assert (first.message["content"], first.finish_reason) == ("I will not.", "refusal")
    assert (second.message["content"], second.finish_reason) == ("It rai", "length")


async def _streamed(asked: HttpChatModel) -> ModelReply:
    return await request_reply(asked, HELLO)


async def _complete(asked: HttpChatModel) -> ModelReply:
    return read_reply(await asked.complete(HELLO))


@each_api
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_call_without_arguments_has_an_empty_object(api: type[HttpChatModel], *, streamed: bool) -> None:
    async with Provider([tool_calls(("look", ""))]) as provider:
        reply = await (_streamed if streamed else _complete)(model(api, provider))

    assert [call["function"]["arguments"] for call in reply.message["tool_calls"]] == ["{}"]
    assert reply.usage == Usage(11, 5)


@each_api
async def test_broken_arguments_come_through_as_they_are(api: type[HttpChatModel]) -> None:
    async with Provider([tool_calls(("add", '{"a": 1,'))]) as provider:
        reply = await request_reply(model(api, provider), HELLO, tools=TOOLS)

    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"a": 1,'


@each_api
async def test_a_reply_is_held_to_a_schema(api: type[HttpChatModel]) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    async with Provider(['{"n": 1}']) as provider:
        await request_reply(model(api, provider), HELLO, response_schema=schema)
        sent = provider.bodies[0]

    match api.__name__:
        case "OpenAIChat":
            wanted = {"name": "reply", "schema": schema, "strict": False}
            assert sent["response_format"] == {"type": "json_schema", "json_schema": wanted}
        case "OpenAIResponses":
            assert sent["text"]["format"] == {"type": "json_schema", "name": "reply", "schema": schema, "strict": False}
        case _:
            shown = {**schema, "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
            assert sent["output_config"] == {"format": {"type": "json_schema", "schema": shown}}


@each_api
@pytest.mark.parametrize("how", ["breaks", "ends"])
async def test_a_stream_that_stops_half_way_is_an_error_and_not_asked_for_again(
    api: type[HttpChatModel], how: str
) -> None:
    got: list[Any] = []
    async with Provider([Broken("It rains in Bergen. " * 9, 9, how), "never said"]) as provider:
        with pytest.raises(ToolConnectionError):
            await request_reply(model(api, provider), HELLO, on_delta=got.append)

    assert TextDelta("It rain") in got
    assert provider.lines == ["never said"]


@each_api
async def test_what_failed_before_the_first_piece_is_asked_for_again(api: type[HttpChatModel]) -> None:
    soon = {"retry-after-ms": "1"}
    async with Provider([Status(429, headers=soon), Status(529), Broken("x", 1), "Fine."]) as provider:
        reply = await request_reply(model(api, provider, retry=QUICK.model_copy(update=FOUR)), HELLO)

    assert reply.message["content"] == "Fine."
    assert len(provider.bodies) == 4


async def test_a_server_that_is_not_there_is_named_with_its_model() -> None:
    missing = OpenAIChat("small", base_url="http://127.0.0.1:1/v1", retry=QUICK)
    with pytest.raises(ToolConnectionError, match=r"^Chat Completions of 'small' at http://127\.0\.0\.1:1: no connect"):
        await request_reply(missing, HELLO)


async def test_a_rate_limit_that_asks_for_a_long_wait_is_an_error_at_once() -> None:
    async with Provider([Status(429, '{"error": {"message": "Slow down"}}', {"retry-after": "3600"})]) as provider:
        with pytest.raises(ToolRateLimitError, match="Slow down") as raised:
            await request_reply(model(OpenAIChat, provider), HELLO)

    assert raised.value.retry_after_s == 3600


async def test_a_provider_may_say_that_asking_again_does_not_help() -> None:
    async with Provider([Status(429, headers={"x-should-retry": "false"})]) as provider:
        with pytest.raises(ToolRateLimitError):
            await request_reply(model(OpenAIChat, provider), HELLO)


@each_api
async def test_a_silent_server_is_a_timeout(api: type[HttpChatModel]) -> None:
    async with Provider([Broken("x", 0, "waits"), Broken("It rains.", 3, "waits")]) as provider:
        for _ in range(2):
            with pytest.raises(ToolTimeoutError, match=r"nothing came for 0\.05 s"):
                await request_reply(model(api, provider, silence_s=0.05), HELLO)

    assert len(provider.bodies) == 2


@pytest.mark.waits
async def test_a_reply_that_never_ends_is_a_timeout_too() -> None:
    async with Provider([Broken("It rains.", 3, "waits")]) as provider:
        with pytest.raises(ToolTimeoutError, match="incomplete at the deadline"):
            # Long enough for the first pieces to arrive on a busy machine: what is to be late is the end.
            await request_reply(model(OpenAIChat, provider, timeout_s=1.0), HELLO)


@each_api
async def test_a_key_that_is_refused_is_nowhere_to_be_read(
    api: type[HttpChatModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with Provider([Status(401, json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}}))]) as provider:
        asked = model(api, provider, headers={"X-Team": "team-secret-123"})
        with pytest.raises(ToolAuthError, match="Incorrect API key") as raised:
            await request_reply(asked, HELLO)

    told = "".join([repr(asked), str(raised.value), repr(raised.value.to_dict()), caplog.text])
    assert KEY not in told
    assert "team-secret-123" not in told
    assert "Check the key" in str(raised.value)


@each_api
async def test_an_error_in_the_stream_is_raised(api: type[HttpChatModel]) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded {KEY}"}}
    events = Raw(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
    async with Provider([events, events, events]) as provider:
        with pytest.raises(ToolError, match="reports an error: Overloaded") as raised:
            await request_reply(model(api, provider), HELLO)

    assert KEY not in str(raised.value)
    assert provider.lines == []


async def test_a_response_that_failed_is_an_error() -> None:
    failed = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Sorry"}}}
    async with Provider([Raw(f"data: {json.dumps(failed)}\n\n".encode())] * 3) as provider:
        with pytest.raises(ToolServerError, match="Sorry"):
            await request_reply(model(OpenAIResponses, provider), HELLO)


@each_api
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"data: {broken\n\n", ToolOutputError),
        (b"data: [1]\n\n", ToolOutputError),
        (b"data: " + b"x" * (17 << 20), ToolClientError),
    ],
)
async def test_what_is_no_event_of_the_api_is_an_error(
    api: type[HttpChatModel], data: bytes, kind: type[ToolError]
) -> None:
    async with Provider([Raw(data)]) as provider:
        with pytest.raises(kind):
            await request_reply(model(api, provider), HELLO)


@each_api
async def test_a_whole_reply_without_its_content_is_an_error(api: type[HttpChatModel]) -> None:
    async with Provider([Status(200, '{"id": 1}')]) as provider:
        with pytest.raises(ToolOutputError, match="answered without"):
            await model(api, provider).complete(HELLO)


@each_api
async def test_a_server_that_does_not_stream_is_read_whole(api: type[HttpChatModel]) -> None:
    async with Provider(["Fine."]) as provider:
        reply = await request_reply(model(api, provider, options={"stream": None, "temperature": 0}), HELLO)

    assert reply.message["content"] == "Fine."
    assert provider.bodies[0]["temperature"] == 0


async def test_connections_are_kept_between_requests_by_a_context_manager_only() -> None:
    async with Provider(["1", "2", "3", "4"]) as provider:
        async with model(OpenAIChat, provider) as asked:
            await request_reply(asked, HELLO)
            await request_reply(asked, HELLO)
        assert provider.site.connections == 1
        await request_reply(asked, HELLO)
        await request_reply(asked, HELLO)
        assert provider.site.connections == 3
        assert await provider.site.all_closed()


async def test_a_stream_that_no_one_reads_on_closes_its_connection() -> None:
    async with Provider([Broken("It rains in Bergen.", 4, "waits")]) as provider:
        stream = model(OpenAIChat, provider).stream(HELLO)
        assert await anext(stream) == TextDelta("It rain")
        await stream.aclose()
        assert await provider.site.all_closed()


@each_api
async def test_images_are_sent_and_other_parts_are_refused(api: type[HttpChatModel]) -> None:
    data = "data:image/png;base64,aGk="
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": data}}]
    async with Provider(["A cat.", "x"]) as provider:
        await request_reply(model(api, provider), [{"role": "user", "content": parts}])
        sent = json.dumps(provider.bodies[0])
        if api is not OpenAIChat:
            with pytest.raises(ToolValidationError, match="a part of type 'input_audio' cannot be sent"):
                await request_reply(model(api, provider), [{"role": "user", "content": [{"type": "input_audio"}]}])

    assert "aGk=" in sent
    assert ("data:image" in sent) == (api is not AnthropicMessages)


async def test_servers_that_do_not_count_calls_or_write_arguments_as_objects_are_understood() -> None:
    calls = [
        {"tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"id": "x", "function": {"name": "look", "arguments": '{"q"'}}]},
        {"tool_calls": [{"id": "x", "function": {"arguments": ": 1}"}}]},
    ]
    events = [{"choices": [{"delta": delta}]} for delta in calls] + [{"choices": [{"finish_reason": "stop"}]}]
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    async with Provider([Raw(data.encode())]) as provider:
        reply = await request_reply(model(OpenAIChat, provider), HELLO)

    named = [(call["function"]["name"], call["function"]["arguments"]) for call in reply.message["tool_calls"]]
    assert named == [("add", '{"a": 1}'), ("look", '{"q": 1}')]
    assert all(call["id"] for call in reply.message["tool_calls"])
    assert reply.finish_reason == "tool_calls"


def _arguments(deltas: list[Any]) -> list[str]:
    calls: dict[int, str] = {}
    for delta in deltas:
        calls[delta.position] = calls.get(delta.position, "") + delta.arguments
    return list(calls.values())


@each_api
async def test_a_planner_runs_on_each_of_them(api: type[HttpChatModel]) -> None:
    @tool(side_effects="pure")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with (
        Provider([tool_calls(("add", {"a": 1, "b": 2})), "It is 3."]) as provider,
        Toolbox(tools=[add], settings=Settings(data_dir=None)) as box,
    ):
        finish = await ReactPlanner(catalog=box, llm=model(api, provider)).run("1 + 2?", tool_context=ANN)

    assert isinstance(finish, PlannerFinish)
    assert finish.payload["answer"] == "It is 3."
    assert "3" in json.dumps(provider.bodies[1])
