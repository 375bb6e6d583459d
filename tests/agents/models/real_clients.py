"""The providers' own clients. Importing them takes two seconds, so that only tests that use them do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import openai

from tests.agents.models.provider import KEY

if TYPE_CHECKING:
    from tests.agents.models.provider import Provider


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


async def facts_of(client: Any, way: str) -> tuple[str, str, int]:
    """What a client read of a reply: its words, why it ended, and the tokens that it took."""
    try:
        return client.facts(await getattr(client, way)())
    except openai.LengthFinishReasonError as cut:  # how its helper for streams tells it
        return client.facts(cut.completion)
