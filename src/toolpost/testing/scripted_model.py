"""A chat model with scripted replies, and messages that call tools."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta, Usage
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

_PIECE = 8  # characters of a streamed piece; short, for several per reply


class ScriptedModel:
    """A chat model without a network that replies with scripted lines, in order.

    A line is a string, a message, an exception to raise, or a function of the messages that returns one of these.
    `requests` contains the messages of every request, `tools` the names of its tools, and `response_schemas` its JSON
    Schema for the reply. Raises AssertionError if no line is left.
    """

    def __init__(self, *lines: Any, usage: Usage = Usage()) -> None:  # noqa: B008 - an immutable tuple
        self._lines = list(lines)
        self._usage = usage
        self.requests: list[list[dict[str, Any]]] = []
        self.tools: list[list[str]] = []
        self.response_schemas: list[Mapping[str, Any] | None] = []

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        """Return the next line as a message."""
        return self._next(messages, tools, None)

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[TextDelta | ToolCallDelta | ModelReply]:
        """Yield the next line in pieces, then as a complete reply."""
        message = self._next(messages, tools, response_schema)
        text = message.get("content")
        if isinstance(text, str):
            for start in range(0, len(text), _PIECE):
                yield TextDelta(text[start : start + _PIECE])
        raw_calls: Any = message.get("tool_calls")
        calls: list[Any] = raw_calls if is_array(raw_calls) else []
        for index, call in enumerate(calls):
            function: Any = call.get("function") if is_object(call) else None
            if is_object(function):
                yield ToolCallDelta(index, str(call.get("id")), str(function.get("name")))
                yield ToolCallDelta(index, arguments=str(function.get("arguments")))
        yield ModelReply(message, self._usage, "tool_calls" if calls else "stop", "scripted")

    @property
    def results(self) -> list[str]:
        """The tool results in the last request, as strings."""
        return [message["content"] for message in self.requests[-1] if message["role"] == "tool"]

    def _next(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        response_schema: Mapping[str, Any] | None,
    ) -> Mapping[str, Any]:
        self.requests.append(copy.deepcopy([dict(message) for message in messages]))
        self.tools.append([tool["function"]["name"] for tool in tools])
        self.response_schemas.append(response_schema)
        if not self._lines:
            raise AssertionError(f"the scripted model has no line for request {len(self.requests)}")
        line = self._lines.pop(0)
        if callable(line):
            answer: Callable[[list[dict[str, Any]]], Any] = line
            line = answer(self.requests[-1])
        if isinstance(line, BaseException):
            raise line
        message: Mapping[str, Any] = {"role": "assistant", "content": line} if isinstance(line, str) else line
        return message


def tool_calls(*wanted: tuple[str, Any]) -> dict[str, Any]:
    """Return a message that calls tools by name; arguments that are a string are sent unchanged."""
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
        for number, (name, arguments) in enumerate(wanted)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
