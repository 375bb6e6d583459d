"""OpenAI's two APIs: Chat Completions, which many servers support, and Responses, without storage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from toolpost.agents.models.http_model import Dialect, HttpChatModel
from toolpost.agents.models.replies import read_usage
from toolpost.agents.models.reply_parts import ReplyParts, earlier_calls, reasoning_items
from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.schema.provider_view import is_strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta
    from toolpost.schema.provider_dialects import Provider
    from toolpost.schema.tool_view import ToolView

_SENT = ("role", "content", "name", "tool_call_id")
_FINISH = {"function_call": "tool_calls", "max_tokens": "length", "eos": "stop"}
_RESPONSES_API = "openai-responses"
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _OpenAI:
    """Address and key of both APIs."""

    base_url = "https://api.openai.com/v1"
    provider: Provider = "openai"
    key_variable = "OPENAI_API_KEY"
    url_variable = "OPENAI_BASE_URL"

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}


class ChatDialect(_OpenAI):
    """Chat Completions."""

    title = "Chat Completions"
    path = "/chat/completions"
    stream_options: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def payload(
        self, messages: Sequence[Mapping[str, Any]], view: ToolView, response_schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return messages, tools and the format of the reply, without members of other APIs."""
        body: dict[str, Any] = {"messages": [_message(message, view) for message in messages]}
        if view.definitions:
            body["tools"] = [definition.to_openai() for definition in view.definitions]
        if response_schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": schema_format(response_schema)}
        return body

    def read(self, data: dict[str, Any]) -> ModelReply:
        reader = ChatReader()
        for _ in reader.read_choice(data, "message"):
            pass
        if not reader.has_choice:
            raise ToolOutputError("the language model answered without a choice")
        return reader.parts.reply()

    def reader(self) -> ChatReader:
        return ChatReader()


class ChatReader:
    """Reads chunks of a completion, or a whole one."""

    def __init__(self) -> None:
        self.parts = ReplyParts("openai-chat")
        self.has_choice = False

    def feed(self, event: dict[str, Any]) -> Iterator[TextDelta | ToolCallDelta]:
        yield from self.read_choice(event, "delta")

    def reply(self) -> ModelReply | None:
        """Return the reply once a chunk has a finish reason."""
        return self.parts.reply() if self.parts.finish else None

    def read_choice(self, data: dict[str, Any], member: str) -> Iterator[TextDelta | ToolCallDelta]:
        """Read the first choice; there is only one unless the request asked for more."""
        parts = self.parts
        parts.model = str(data.get("model") or parts.model)
        if is_object(data.get("usage")):
            parts.usage = read_usage(data["usage"])
        choices = data.get("choices")
        choice = choices[0] if is_array(choices) and choices else None
        if not is_object(choice):
            return
        message = choice.get(member)
        self.has_choice = self.has_choice or is_object(message)
        if is_object(message):
            yield from parts.add_text(_text(message.get("content")))
            yield from parts.add_text(message.get("refusal"), refusal=True)
            for call in message.get("tool_calls") or ():
                yield from self._add_call(call)
        finish = choice.get("finish_reason")
        if finish:
            parts.finish = _FINISH.get(finish, str(finish))

    def _add_call(self, call: Any) -> Iterator[ToolCallDelta]:
        """Add a piece of a call; some servers omit the index and begin each call with its name."""
        if not is_object(call):
            return
        function = as_object(call.get("function"))
        index = call.get("index")
        if not isinstance(index, int):
            last = len(self.parts.calls) - 1
            index = last + 1 if function.get("name") or last < 0 else last
        arguments = function.get("arguments")
        yield from self.parts.add_call(
            index, id=call.get("id"), name=function.get("name"), arguments="" if arguments is None else arguments
        )


class OpenAIChat(HttpChatModel):
    """A model behind Chat Completions: OpenAI's, or any compatible server at `base_url`.

    The default is `OPENAI_BASE_URL` or OpenAI, with the key in `OPENAI_API_KEY`.
    """

    dialect: ClassVar[Dialect] = ChatDialect()


def schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of a reply; `strict` if OpenAI can guarantee it."""
    return {"name": "reply", "schema": dict(schema), "strict": is_strict(dict(schema))}


def _message(message: Mapping[str, Any], view: ToolView) -> dict[str, Any]:
    sent = {name: message[name] for name in _SENT if name in message}
    calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in earlier_calls(message, view)
    ]
    return {"content": None, **sent, "tool_calls": calls} if calls else sent


def _text(content: Any) -> Any:
    """Return the text of a content, which some servers send in parts."""
    if not is_array(content):
        return content
    return "".join(str(part.get("text") or "") for part in content if is_object(part))


class ResponsesDialect(_OpenAI):
    """The Responses API."""

    title = "Responses"
    path = "/responses"
    stream_options: Mapping[str, Any] = {"stream": True}

    def payload(
        self, messages: Sequence[Mapping[str, Any]], view: ToolView, response_schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        items = [item for message in messages for item in _items(message, view)]
        body: dict[str, Any] = {"input": items, "store": False}
        if view.definitions:
            body["tools"] = [definition.to_openai_responses() for definition in view.definitions]
        if response_schema is not None:
            body["text"] = {"format": {"type": "json_schema", **schema_format(response_schema)}}
        return body

    def read(self, data: dict[str, Any]) -> ModelReply:
        output = data.get("output")
        if not is_array(output):
            raise ToolOutputError("the language model answered without an output")
        parts = ReplyParts(_RESPONSES_API, model=str(data.get("model") or ""), usage=read_usage(data.get("usage")))
        for item in output:
            if is_object(item):
                _add_item(parts, item)
        details = data.get("incomplete_details")
        reason = details.get("reason") if is_object(details) else None
        parts.finish = _INCOMPLETE.get(str(reason), "length") if data.get("status") == "incomplete" else "stop"
        return parts.reply()

    def reader(self) -> ResponsesReader:
        return ResponsesReader(self)


class ResponsesReader:
    """Reads the events of one response; the last event contains it whole."""

    def __init__(self, dialect: ResponsesDialect) -> None:
        self._dialect = dialect
        self._pieces = ReplyParts(_RESPONSES_API)
        self._positions: dict[Any, int] = {}  # of calls, by the index of their items
        self._whole: ModelReply | None = None

    def feed(self, event: dict[str, Any]) -> Iterator[TextDelta | ToolCallDelta]:
        """Read an event; only text and calls have pieces."""
        pieces = self._pieces
        match event.get("type"):
            case "response.output_text.delta":
                yield from pieces.add_text(event.get("delta"))
            case "response.refusal.delta":
                yield from pieces.add_text(event.get("delta"), refusal=True)
            case "response.output_item.added" if is_object(item := event.get("item")):
                if item.get("type") == "function_call":
                    position = self._positions.setdefault(event.get("output_index"), len(self._positions))
                    yield from pieces.add_call(position, id=item.get("call_id"), name=item.get("name"))
            case "response.function_call_arguments.delta" if event.get("output_index") in self._positions:
                position = self._positions[event.get("output_index")]
                yield from pieces.add_call(position, arguments=event.get("delta") or "")
            case "response.completed" | "response.incomplete" if is_object(response := event.get("response")):
                self._whole = self._dialect.read(response)
            case _:
                pass

    def reply(self) -> ModelReply | None:
        return self._whole


class OpenAIResponses(HttpChatModel):
    """A model behind OpenAI's Responses API, or a compatible server at `base_url`.

    The default is `OPENAI_BASE_URL` or OpenAI, with the key in `OPENAI_API_KEY`.
    """

    dialect: ClassVar[Dialect] = ResponsesDialect()


def _items(message: Mapping[str, Any], view: ToolView) -> Iterator[dict[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": content or ""}
        return
    yield from reasoning_items(message, _RESPONSES_API)
    if content:
        yield {"role": role, "content": [_part(part) for part in content] if is_array(content) else content}
    for id_, name, arguments in earlier_calls(message, view):
        yield {"type": "function_call", "call_id": id_, "name": name, "arguments": json.dumps(arguments)}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part.get("text")}
        case "image_url":
            return {"type": "input_image", "image_url": part["image_url"]["url"]}
        case kind:
            raise ToolValidationError(f"a part of type {kind!r} cannot be sent to Responses; send text or images")


def _add_item(parts: ReplyParts, item: dict[str, Any]) -> None:
    match item.get("type"):
        case "message":
            for part in item.get("content") or ():
                parts.add_text(part.get("text"))
                parts.add_text(part.get("refusal"), refusal=True)
        case "function_call":
            parts.add_call(
                len(parts.calls), id=item.get("call_id"), name=item.get("name"), arguments=item.get("arguments") or ""
            )
        case "reasoning" if item.get("encrypted_content"):  # otherwise only OpenAI's store could read it
            parts.reasoning.append(item)
        case _:
            pass
