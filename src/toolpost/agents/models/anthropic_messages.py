"""The Messages API of Anthropic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from toolpost.agents.models.http_model import Dialect, HttpChatModel
from toolpost.agents.models.reply_parts import ReplyParts, earlier_calls, reasoning_items
from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta, Usage
from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.subschemas import replace_subschemas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolpost.schema.provider_dialects import Provider
    from toolpost.schema.tool_view import ToolView

API = "anthropic-messages"
_VERSION = "2023-06-01"
_MAX_TOKENS = 8192
_FINISH = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)
_THOUGHTS = ("thinking", "redacted_thinking")
# Keywords that the API does not enforce; the caller validates the reply against the whole schema.
_UNSUPPORTED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("minItems", "maxItems", "uniqueItems", "contains", "minProperties", "maxProperties", "propertyNames"),
        *("patternProperties", "dependentRequired", "dependentSchemas", "if", "then", "else", "not"),
    }
)


class MessagesDialect:
    """The Messages API."""

    title = "Messages"
    provider: Provider = "anthropic"
    path = "/v1/messages"
    base_url = "https://api.anthropic.com"
    key_variable = "ANTHROPIC_API_KEY"
    url_variable = "ANTHROPIC_BASE_URL"
    stream_options: Mapping[str, Any] = {"stream": True}

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def payload(
        self, messages: Sequence[Mapping[str, Any]], view: ToolView, response_schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        turns, system = list(messages), list[str]()
        while turns and turns[0].get("role") in ("system", "developer"):
            system.append("".join(block["text"] for block in _blocks(turns.pop(0).get("content"))))
        body: dict[str, Any] = {"max_tokens": _MAX_TOKENS, "messages": _turns(turns, view)}
        if any(system):
            body["system"] = "\n\n".join(filter(None, system))
        if view.definitions:
            body["tools"] = [definition.to_anthropic() for definition in view.definitions]
        if response_schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": _close_schema(dict(response_schema))}}
        return body

    def read(self, data: dict[str, Any]) -> ModelReply:
        content = data.get("content")
        if not is_array(content):
            raise ToolOutputError("the language model answered without a content")
        parts = ReplyParts(API, model=str(data.get("model") or ""), usage=_usage(data.get("usage")))
        for block in content:
            _add_block(parts, block)
        parts.finish = _finish(data.get("stop_reason"))
        return parts.reply()

    def reader(self) -> MessagesReader:
        return MessagesReader()


class MessagesReader:
    """Reads the events of one message."""

    def __init__(self) -> None:
        self._parts = ReplyParts(API)
        self._positions: dict[Any, int] = {}  # of calls, by the index of their blocks
        self._thoughts: dict[Any, dict[str, Any]] = {}
        self._stopped = False

    def feed(self, event: dict[str, Any]) -> Iterator[TextDelta | ToolCallDelta]:
        parts, index = self._parts, event.get("index")
        delta = as_object(event.get("delta"))
        match event.get("type"):
            case "message_start" if is_object(message := event.get("message")):
                parts.model, parts.usage = str(message.get("model") or ""), _usage(message.get("usage"))
            case "content_block_start" if is_object(block := event.get("content_block")):
                yield from self._start(block, index)
            case "content_block_delta" if delta.get("type") == "text_delta":
                yield from parts.add_text(delta.get("text"))
            case "content_block_delta" if index in self._positions:
                yield from parts.add_call(self._positions[index], arguments=delta.get("partial_json") or "")
            case "content_block_delta" if index in self._thoughts:
                thought = self._thoughts[index]
                for member in ("thinking", "signature"):
                    thought[member] = f"{thought.get(member) or ''}{delta.get(member) or ''}"
            case "message_delta":
                parts.finish = _finish(delta.get("stop_reason"))
                parts.usage = _later(parts.usage, _usage(event.get("usage")))
            case "message_stop":
                self._stopped = True
            case _:
                pass

    def reply(self) -> ModelReply | None:
        return self._parts.reply() if self._stopped and self._parts.finish else None

    def _start(self, block: dict[str, Any], index: Any) -> Iterator[TextDelta | ToolCallDelta]:
        match block.get("type"):
            case "text":
                yield from self._parts.add_text(block.get("text"))
            case "tool_use":
                self._positions[index] = len(self._positions)
                yield from self._parts.add_call(self._positions[index], id=block.get("id"), name=block.get("name"))
            case kind if kind in _THOUGHTS:
                self._thoughts[index] = dict(block)
                self._parts.reasoning.append(self._thoughts[index])
            case _:
                pass


class AnthropicMessages(HttpChatModel):
    """A model behind Anthropic's Messages API, or a compatible server at `base_url`.

    The default is `ANTHROPIC_BASE_URL` or Anthropic, with the key in `ANTHROPIC_API_KEY`. A reply has at most 8,192
    tokens unless `options` contains another `max_tokens`.
    """

    dialect: ClassVar[Dialect] = MessagesDialect()


def _turns(messages: Sequence[Mapping[str, Any]], view: ToolView) -> list[dict[str, Any]]:
    """Return messages with alternating roles; the results of all calls must be in one message."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = list(_message_blocks(message, view))
        if blocks and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _message_blocks(message: Mapping[str, Any], view: ToolView) -> Iterator[dict[str, Any]]:
    content = _blocks(message.get("content"))
    if message.get("role") == "tool":
        result = {"type": "tool_result", "tool_use_id": _id(message.get("tool_call_id"))}
        yield {**result, "content": content} if content else result
        return
    yield from reasoning_items(message, API)
    yield from content
    for id_, name, arguments in earlier_calls(message, view):
        yield {"type": "tool_use", "id": _id(id_), "name": name, "input": arguments}


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Return a content as blocks, without empty texts, which the API rejects."""
    parts = content if is_array(content) else [{"type": "text", "text": content or ""}]
    return [block for block in map(_block, parts) if block.get("text") != ""]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("text") or "")}
        case "image_url":
            url = str(part["image_url"]["url"])
            if match := _DATA_URL.fullmatch(url):
                return {"type": "image", "source": {"type": "base64", "media_type": match[1], "data": match[2]}}
            return {"type": "image", "source": {"type": "url", "url": url}}
        case kind:
            raise ToolValidationError(f"a part of type {kind!r} cannot be sent to Messages; send text or images")


def _id(value: Any) -> str:
    """Return the ID of a call in the characters that Anthropic accepts."""
    return _NOT_IN_IDS.sub("_", str(value or "")) or "call"


def _add_block(parts: ReplyParts, block: Any) -> None:
    match block.get("type") if is_object(block) else None:
        case "text":
            parts.add_text(block.get("text"))
        case "tool_use":
            parts.add_call(
                len(parts.calls), id=block.get("id"), name=block.get("name"), arguments=block.get("input") or ""
            )
        case kind if kind in _THOUGHTS:
            parts.reasoning.append(block)
        case _:
            pass


def _finish(reason: Any) -> str:
    return _FINISH.get(str(reason), "stop") if reason else ""


def _usage(data: Any) -> Usage:
    """Count tokens; the API lists those of a cached prompt separately."""
    if not is_object(data):
        return Usage()
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    *prompt, completion = (count if isinstance(count := data.get(name), int) else 0 for name in names)
    return Usage(sum(prompt), completion)


def _later(first: Usage, last: Usage) -> Usage:
    """Merge counts of a stream; the last may omit those of the prompt."""
    return Usage(max(first.input_tokens, last.input_tokens), max(first.output_tokens, last.output_tokens))


def _close_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a schema that the API can enforce, with closed objects."""
    closed = replace_subschemas(
        {word: part for word, part in schema.items() if word not in _UNSUPPORTED}, _close_schema
    )
    if "oneOf" in closed:
        closed["anyOf"] = closed.pop("oneOf")
    if closed.get("type") == "object" or "properties" in closed:
        closed["additionalProperties"] = False
    return closed
