"""The providers' own clients read the scripted provider, and `answer_tool_calls` takes their own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.agents.models.provider import KEY, Broken, Cut, Provider, Refusal, Status
from toolpost import Settings, Toolbox, tool
from toolpost.testing import tool_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.programs  # the client of OpenAI asks a program which system it runs on

PARALLEL = tool_calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
EMPTY = tool_calls(("greet", ""))


@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects="pure")
def greet() -> str:
    """Say hello."""
    return "hello"


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    async with Toolbox(tools=[add, greet], settings=Settings(data_dir=None)) as opened:
        yield opened


class Chat:
    """OpenAI's client of Chat Completions."""

    failed = openai.RateLimitError

    def __init__(self, provider: Provider) -> None:
        self.client = openai.AsyncOpenAI(api_key=KEY, base_url=provider.url, max_retries=0)
        self.ask = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

    async def whole(self) -> Any:
        return await self.client.chat.completions.create(**self.ask)  # type: ignore[call-overload] # plain data

    async def streamed(self) -> Any:
        options = {"include_usage": True}
        async with self.client.chat.completions.stream(**self.ask, stream_options=options) as stream:  # type: ignore[arg-type] # plain data
            return await stream.get_final_completion()

    def facts(self, reply: Any) -> tuple[str, str, int]:
        choice = reply.choices[0]
        return choice.message.content or choice.message.refusal, choice.finish_reason, reply.usage.total_tokens


class Responses:
    """OpenAI's client of Responses."""

    failed = openai.RateLimitError

    def __init__(self, provider: Provider) -> None:
        self.client = openai.AsyncOpenAI(api_key=KEY, base_url=provider.url, max_retries=0)

    async def whole(self) -> Any:
        return await self.client.responses.create(model="m", input="hello")

    async def streamed(self) -> Any:
        stream = await self.client.responses.create(model="m", input="hello", stream=True)
        events = [event async for event in stream]
        assert events[-1].type in ("response.completed", "response.incomplete")
        return events[-1].response

    def facts(self, reply: Any) -> tuple[str, str, int]:
        details = reply.incomplete_details
        part = reply.output[1].content[0]
        words = getattr(part, "refusal", None) or part.text
        return words, details.reason if details else part.type, reply.usage.total_tokens


class Messages:
    """Anthropic's client."""

    failed = anthropic.RateLimitError

    def __init__(self, provider: Provider) -> None:
        self.client = anthropic.AsyncAnthropic(api_key=KEY, base_url=provider.site.url, max_retries=0)

    async def whole(self) -> Any:
        hello: Any = [{"role": "user", "content": "hello"}]
        return await self.client.messages.create(model="m", max_tokens=9, messages=hello)

    async def streamed(self) -> Any:
        hello: Any = [{"role": "user", "content": "hello"}]
        async with self.client.messages.stream(model="m", max_tokens=9, messages=hello) as stream:
            return await stream.get_final_message()

    def facts(self, reply: Any) -> tuple[str, str, int]:
        used = reply.usage
        return reply.content[1].text, reply.stop_reason, used.input_tokens + used.output_tokens


FINISHES = {
    Chat: ("stop", "stop", "length"),
    Responses: ("output_text", "refusal", "max_output_tokens"),
    Messages: ("end_turn", "refusal", "max_tokens"),
}
each_client = pytest.mark.parametrize("kind", [Chat, Responses, Messages])
each_way = pytest.mark.parametrize("way", ["whole", "streamed"])


@each_client
@each_way
async def test_texts_refusals_and_cut_replies_are_read(kind: Any, way: str) -> None:
    async with Provider(["It rains.", Refusal("I will not."), Cut("It rai")]) as provider:
        real = kind(provider)
        async with real.client:
            facts = [await _facts(real, way) for _ in range(3)]

    assert [fact[0] for fact in facts] == ["It rains.", "I will not.", "It rai"]
    assert tuple(fact[1] for fact in facts) == FINISHES[kind]
    assert {fact[2] for fact in facts} == {16}


async def _facts(real: Any, way: str) -> tuple[str, str, int]:
    try:
        return real.facts(await getattr(real, way)())
    except openai.LengthFinishReasonError as cut:  # how its helper for streams tells it
        return real.facts(cut.completion)


@each_client
@each_way
async def test_the_calls_of_a_clients_own_object_are_answered(kind: Any, way: str, box: Toolbox) -> None:
    async with Provider([PARALLEL, EMPTY]) as provider:
        real = kind(provider)
        async with real.client:
            replies = [await getattr(real, way)() for _ in range(2)]
    first, second = [await box.answer_tool_calls(reply) for reply in replies]

    assert [outcome.content for outcome in first.outcomes] == [3, 7]  # type: ignore[union-attr] # Completed
    assert [outcome.content for outcome in second.outcomes] == ["hello"]  # type: ignore[union-attr] # Completed


async def test_broken_arguments_in_a_clients_own_object_are_an_outcome(box: Toolbox) -> None:
    async with Provider([tool_calls(("add", '{"a": 1,'))] * 2) as provider:
        chat, responses = Chat(provider), Responses(provider)
        async with chat.client, responses.client:
            replies = [await chat.whole(), await responses.whole()]
    answers = [await box.answer_tool_calls(reply) for reply in replies]

    assert ["JSON" in str(answer.messages) for answer in answers] == [True, True]


@each_client
async def test_a_rate_limit_and_a_stream_that_stops_half_way_are_errors(kind: Any) -> None:
    limited = Status(429, '{"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}')
    async with Provider([limited, Broken("It rains.", 3)]) as provider:
        real = kind(provider)
        async with real.client:
            with pytest.raises(real.failed):
                await real.whole()
            with pytest.raises(Exception, match=r"closed|complete"):
                await real.streamed()
