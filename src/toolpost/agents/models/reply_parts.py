"""Replies of HTTP models: pieces of a stream are assembled, and tools get their real names back."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta, Usage
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolpost.schema.tool_view import ToolView

REASONING = "reasoning"
"""The member of a message with a provider's own items, which only the same API gets back."""
_NOTHING = Usage()
_TOKENS_PRICED = 1_000_000


class CallParts(Struct):
    """The pieces of one tool call."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def to_message(self) -> dict[str, Any]:
        """Return the call in the form of a message; generate an ID if it has none, for its result."""
        function = {"name": self.name, "arguments": self.arguments or "{}"}
        return {"id": self.id or f"call_{secrets.token_hex(8)}", "type": "function", "function": function}


class ReplyParts(Struct):
    """The pieces of one reply; `finish` is empty until the provider sends a finish reason."""

    api: str
    text: list[str] = field(default_factory=list[str])
    calls: list[CallParts] = field(default_factory=list[CallParts])
    reasoning: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: Usage = _NOTHING
    finish: str = ""
    model: str = ""
    refused: bool = False

    def add_text(self, text: Any, *, refusal: bool = False) -> list[TextDelta]:
        """Add a piece of text or of a refusal, and return it unless it is empty."""
        if not isinstance(text, str) or not text:
            return []
        self.refused = self.refused or refusal
        self.text.append(text)
        return [TextDelta(text)]

    def add_call(self, position: int, *, id: Any = "", name: Any = "", arguments: Any = "") -> list[ToolCallDelta]:
        """Add a piece of a call and return the new part; the first ID and the first name are used."""
        while len(self.calls) <= position:
            self.calls.append(CallParts())
        call = self.calls[position]
        new_id, new_name = ("" if call.id else str(id or "")), ("" if call.name else str(name or ""))
        piece = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call.id, call.name, call.arguments = call.id or new_id, call.name or new_name, call.arguments + piece
        return [ToolCallDelta(position, new_id, new_name, piece)] if new_id or new_name or piece else []

    def reply(self) -> ModelReply:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text) or None}
        if self.calls:
            message["tool_calls"] = [call.to_message() for call in self.calls]
        if self.reasoning:
            message[REASONING] = {"api": self.api, "items": self.reasoning}
        finish = self.finish or "stop"
        if self.refused:
            finish = "refusal"
        elif self.calls and finish == "stop":
            finish = "tool_calls"
        return ModelReply(message, self.usage, finish, self.model)


def reasoning_items(message: Mapping[str, Any], api: str) -> list[dict[str, Any]]:
    """Return the provider's own items of a message; only the same API gets them back."""
    reasoning = message.get(REASONING)
    return list(reasoning["items"]) if is_object(reasoning) and reasoning.get("api") == api else []


def earlier_calls(message: Mapping[str, Any], view: ToolView) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the calls of an earlier message: IDs, names and arguments in the model's view."""
    for call in message.get("tool_calls") or ():
        function: dict[str, Any] = call.get("function") or {}
        name, arguments = view.call_to_model(str(function.get("name")), function.get("arguments"))
        yield str(call.get("id") or ""), name, arguments


def complete_message(reply: ModelReply) -> dict[str, Any]:
    """Return a reply in the form of `complete`: the message with usage, model and finish reason."""
    counted: dict[str, Any] = {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
        "total_tokens": reply.usage.total_tokens,
    }
    if reply.usage.cost is not None:
        counted["cost"] = reply.usage.cost
    return {**reply.message, "model": reply.model, "finish_reason": reply.finish_reason, "usage": counted}


def finish_reply(
    reply: ModelReply, view: ToolView, model: str, prices: tuple[float, float] | None = None
) -> ModelReply:
    """Return a provider's reply with the real names and arguments of its calls, and its cost."""
    message = dict(reply.message)
    if message.get("tool_calls"):
        message["tool_calls"] = [_restored_call(call, view) for call in message["tool_calls"]]
    usage = reply.usage
    if usage.cost is None and prices is not None:
        usage = usage._replace(cost=(usage.input_tokens * prices[0] + usage.output_tokens * prices[1]) / _TOKENS_PRICED)
    return reply._replace(message=message, usage=usage, model=reply.model or model)


def _restored_call(call: Mapping[str, Any], view: ToolView) -> dict[str, Any]:
    name, arguments = view.call_from_model(call["function"]["name"], call["function"]["arguments"])
    return {**call, "function": {"name": name, "arguments": arguments}}


class RestoredCalls:
    """Pieces of tool calls under the real names; mapped arguments are buffered until they are complete."""

    def __init__(self, view: ToolView) -> None:
        self._view = view
        self._positions: set[int] = set()

    def restore(self, deltas: Iterable[TextDelta | ToolCallDelta]) -> Iterator[TextDelta | ToolCallDelta]:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                yield delta
                continue
            if delta.name and not self._view.is_plain(delta.name):
                self._positions.add(delta.position)
            arguments = "" if delta.position in self._positions else delta.arguments
            if delta.id or delta.name or arguments:
                yield delta._replace(name=self._view.real_name(delta.name), arguments=arguments)

    def release(self, reply: ModelReply) -> Iterator[ToolCallDelta]:
        """Yield the buffered arguments from the whole reply."""
        for position in sorted(self._positions):
            yield ToolCallDelta(position, arguments=reply.message["tool_calls"][position]["function"]["arguments"])
