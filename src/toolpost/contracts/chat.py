"""Protocols of chat models, and their requests and replies.

Messages, tools and replies have the format of Chat Completions, regardless of the provider of a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


class Usage(NamedTuple):
    """Tokens that a reply used, and its cost in US dollars if the price of the model is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    @property
    def total_tokens(self) -> int:
        """Tokens of the prompt and of the reply together."""
        return self.input_tokens + self.output_tokens


class TextDelta(NamedTuple):
    """A piece of the text of a reply."""

    text: str


class ToolCallDelta(NamedTuple):
    """A piece of a tool call: `position` is its index in the reply, `arguments` a fragment of the JSON text."""

    position: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ModelReply(NamedTuple):
    """A complete reply: the assistant's message with `content` and `tool_calls`, and its usage.

    `finish_reason` is `stop`, `tool_calls`, `length`, `refusal` or `content_filter`; empty if unknown.
    """

    message: Mapping[str, Any]
    usage: Usage = Usage()
    finish_reason: str = ""
    model: str = ""


class ChatModel(Protocol):
    """A language model that completes a conversation."""

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        """Return the model's next message; a member `usage`, as in Chat Completions, is counted."""
        ...


@runtime_checkable
class StreamingChatModel(ChatModel, Protocol):
    """A chat model that streams its reply, and can produce text for a JSON Schema."""

    def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[TextDelta | ToolCallDelta | ModelReply]:
        """Yield the pieces of the next message, then the whole reply as the last item.

        `response_schema` is the JSON Schema of the text of the reply.
        """
        ...
