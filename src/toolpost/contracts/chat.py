"""Protocols of chat models, and the data they exchange with whoever asks them.

Messages, tools and replies have the shape of Chat Completions, whatever the provider behind a model speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


class Usage(NamedTuple):
    """Tokens that a reply used, and its cost in US dollars where the price of the model is known."""

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
    """A piece of a tool call: `position` says which call of the reply, `arguments` is a fragment of their JSON text."""

    position: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class ModelReply(NamedTuple):
    """A whole reply: the assistant's message with `content` and `tool_calls`, and what it used.

    `finish_reason` is `stop`, `tool_calls`, `length`, `refusal` or `content_filter`; empty where it is not known.
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
        """Return the model's next message; a member `usage`, as Chat Completions has it, is counted."""
        ...


@runtime_checkable
class StreamingChatModel(ChatModel, Protocol):
    """A chat model that sends its reply piece by piece, and can be held to a JSON Schema."""

    def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[TextDelta | ToolCallDelta | ModelReply]:
        """Yield the pieces of the next message, then the whole reply as the last item.

        `response_schema` is the JSON Schema that the text of the reply must fulfil.
        """
        ...
