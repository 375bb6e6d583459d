"""One way to ask every chat model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from toolpost.agents.models.replies import request_reply
from toolpost.contracts.chat import TextDelta, ToolCallDelta, Usage
from toolpost.errors import ToolExecutionError, ToolOutputError, ToolTimeoutError
from toolpost.testing import ScriptedModel, tool_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELLO = [{"role": "user", "content": "hello"}]


class PlainModel:
    """A chat model that cannot stream."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        if isinstance(self._reply, BaseException):
            raise self._reply
        if self._reply is None:
            await asyncio.Event().wait()
        return self._reply


async def test_a_streaming_model_is_read_piece_by_piece() -> None:
    pieces: list[Any] = []
    model = ScriptedModel("a longer answer", usage=Usage(3, 4, 0.5))

    reply = await request_reply(model, HELLO, response_schema={"type": "object"}, on_delta=pieces.append)

    assert reply.message == {"role": "assistant", "content": "a longer answer"}
    assert (reply.usage, reply.finish_reason) == (Usage(3, 4, 0.5), "stop")
    assert pieces == [TextDelta("a longer"), TextDelta(" answer")]
    assert model.response_schemas == [{"type": "object"}]


async def test_a_plain_model_gives_its_pieces_at_the_end() -> None:
    pieces: list[Any] = []
    usage = {"prompt_tokens": 7, "completion_tokens": 2}

    reply = await request_reply(
        PlainModel({**tool_calls(("add", {"a": 1})), "content": "I add", "usage": usage}), HELLO, on_delta=pieces.append
    )

    assert reply.usage == Usage(7, 2)
    assert reply.finish_reason == "tool_calls"
    assert "usage" not in reply.message
    assert pieces == [TextDelta("I add"), ToolCallDelta(0, "c0", "add", '{"a": 1}')]


async def test_a_whole_response_of_chat_completions_is_read_too() -> None:
    choice = {"message": {"content": "hi"}, "finish_reason": "length"}

    reply = await request_reply(PlainModel({"choices": [choice], "model": "m", "usage": {"input_tokens": 1}}), HELLO)

    assert reply == ({"role": "assistant", "content": "hi"}, Usage(1), "length", "m")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("text", "a str, not an object"),
        ({"content": object()}, "is not JSON"),
        ({"tool_calls": "add"}, "not a list of objects"),
        ({"choices": []}, "a NoneType, not an object"),
    ],
)
async def test_what_is_no_message_is_an_error(said: Any, why: str) -> None:
    with pytest.raises(ToolOutputError, match=why):
        await request_reply(PlainModel(said), HELLO)


async def test_a_text_in_parts_is_a_text() -> None:
    parts = [{"type": "text", "text": "It is "}, {"type": "text", "text": "42."}]
    reply = await request_reply(PlainModel({"content": parts}), HELLO)
    assert reply.message == {"role": "assistant", "content": "It is 42."}


async def test_a_model_that_raises_or_is_silent_is_a_tool_error() -> None:
    with pytest.raises(ToolExecutionError, match="the language model failed: OSError: gone"):
        await request_reply(PlainModel(OSError("gone")), HELLO)
    with pytest.raises(ToolTimeoutError, match=r"did not answer within 0\.01 s"):
        await request_reply(PlainModel(None), HELLO, timeout_s=0.01)


async def test_a_stream_without_a_whole_reply_is_an_error() -> None:
    class Half(ScriptedModel):
        async def stream(self, *args: Any, **options: Any) -> Any:
            yield TextDelta("half")

    with pytest.raises(ToolOutputError, match="ended without a whole reply"):
        await request_reply(Half(), HELLO)
