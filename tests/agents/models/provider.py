"""A provider of models on loopback that says scripted lines over Chat Completions, Responses and Messages.

A line is a text, a message with tool calls, or one of the classes below. That it speaks the three APIs rightly is
proved by the providers' own clients, which read it in test_real_clients.py.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.wire.site import Site, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.wire.site import Received

PIECE = 7
KEY = "sk-loopback-0123456789abcdef"


@dataclass(frozen=True)
class Refusal:
    """A reply that refuses."""

    text: str


@dataclass(frozen=True)
class Cut:
    """A reply that is cut by the limit of tokens."""

    text: str


@dataclass(frozen=True)
class Status:
    """A response that is no success."""

    status: int
    body: str = "{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Broken:
    """A stream of so many events of a line, after which the connection breaks, the stream ends, or nothing comes."""

    line: Any
    events: int
    how: str = "breaks"


@dataclass(frozen=True)
class Raw:
    """The bytes of a stream of events."""

    data: bytes


@dataclass
class Provider:
    """Answers requests with its lines in turn; `bodies` are the requests that came."""

    lines: list[Any]
    bodies: list[dict[str, Any]] = field(default_factory=list)
    usage: tuple[int, int] = (11, 5)

    async def __aenter__(self) -> Self:
        self.site = await Site(self._answer).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.site.__aexit__()

    @property
    def url(self) -> str:
        """The base URL of OpenAI's APIs; Anthropic's has no version in it."""
        return f"{self.site.url}/v1"

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        body = json.loads(received.body)
        self.bodies.append(body)
        line = self.lines.pop(0)
        if isinstance(line, Status):
            fields = {"content-type": "application/json", **line.headers}
            writer.write(reply(line.status, line.body.encode(), framed=True, **fields))
        elif isinstance(line, Raw):
            await _stream(writer, [line.data], "ends")
        elif body.get("stream"):
            how, count = (line.how, line.events) if isinstance(line, Broken) else ("ends", None)
            said = line.line if isinstance(line, Broken) else line
            events = list(_events(received.path, said, self.usage, body))[:count]
            await _stream(writer, events, how)
        else:
            whole = json.dumps(_whole(received.path, line, self.usage, body)).encode()
            writer.write(reply(200, whole, content_type="application/json"))
        await writer.drain()


async def _stream(writer: asyncio.StreamWriter, events: list[bytes], how: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for event in events:
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
    if how == "waits":
        await asyncio.Event().wait()
    if how == "breaks":
        raise ConnectionResetError
    writer.write(b"0\r\n\r\n")


def _parts(line: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text of a line, and its calls."""
    if isinstance(line, str):
        return line, []
    if isinstance(line, Refusal | Cut):
        return line.text, []
    calls = [{"id": call["id"], **call["function"]} for call in line["tool_calls"]]
    return line["content"] or "", calls


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _event(data: Any, *, named: bool = False) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data) if isinstance(data, dict) else data}\n\n".encode()


def _whole(path: str, line: Any, usage: tuple[int, int], body: dict[str, Any]) -> dict[str, Any]:
    return _APIS[path.partition("?")[0]][0](line, usage, body["model"])


def _events(path: str, line: Any, usage: tuple[int, int], body: dict[str, Any]) -> Iterator[bytes]:
    return _APIS[path.partition("?")[0]][1](line, usage, body["model"])


# ---------------------------------------------------------------- Chat Completions


def _chat(line: Any, usage: tuple[int, int], model: str) -> dict[str, Any]:
    text, calls = _parts(line)
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if isinstance(line, Refusal):
        message |= {"content": None, "refusal": text}
    if calls:
        message["tool_calls"] = [_chat_call(call) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": _chat_finish(line, calls), "logprobs": None}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _chat_usage(usage)}


def _chat_events(line: Any, usage: tuple[int, int], model: str) -> Iterator[bytes]:
    text, calls = _parts(line)
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**head, "choices": [choice], "usage": None})

    yield chunk({"role": "assistant", "content": ""})
    member = "refusal" if isinstance(line, Refusal) else "content"
    for piece in _pieces(text):
        yield chunk({member: piece})
    for index, call in enumerate(calls):
        function = {"name": call["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]})
        for piece in _pieces(call["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _chat_finish(line, calls))
    yield _event({**head, "choices": [], "usage": _chat_usage(usage)})
    yield _event("[DONE]")


def _chat_call(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": call["arguments"]},
    }


def _chat_finish(line: Any, calls: list[Any]) -> str:
    return "length" if isinstance(line, Cut) else "tool_calls" if calls else "stop"


def _chat_usage(usage: tuple[int, int]) -> dict[str, Any]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


# ---------------------------------------------------------------- Responses


def _response(line: Any, usage: tuple[int, int], model: str) -> dict[str, Any]:
    return _response_of(_output(line), line, usage, model)


def _response_of(output: list[Any], line: Any, usage: tuple[int, int], model: str) -> dict[str, Any]:
    cut = isinstance(line, Cut)
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage[0],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage[1],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sum(usage),
        },
    }


def _output(line: Any) -> list[dict[str, Any]]:
    text, calls = _parts(line)
    items: list[dict[str, Any]] = [{"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "secret"}]
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        refused = {"type": "refusal", "refusal": text}
        content = [refused if isinstance(line, Refusal) else part]
        items.append({"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": content})
    for number, call in enumerate(calls):
        item = {"call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        items.append({"type": "function_call", "id": f"fc{number}", "status": "completed", **item})
    return items


def _response_events(line: Any, usage: tuple[int, int], model: str) -> Iterator[bytes]:
    output = _output(line)
    number = 0

    def event(kind: str, **members: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number, **members}, named=True)

    begun = {**_response_of([], line, usage, model), "status": "in_progress", "usage": None}
    yield event("response.created", response=begun)
    for index, item in enumerate(output):
        at = {"item_id": item["id"], "output_index": index}
        empty = {"content": [], "status": "in_progress"} if item["type"] == "message" else {}
        empty = {"arguments": "", "status": "in_progress"} if item["type"] == "function_call" else empty
        yield event("response.output_item.added", output_index=index, item={**item, **empty})
        if item["type"] == "function_call":
            for piece in _pieces(item["arguments"]):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield event("response.function_call_arguments.done", **at, **done)
        elif item["type"] == "message":
            kind = "refusal" if isinstance(line, Refusal) else "output_text"
            part = {**item["content"][0], ("refusal" if kind == "refusal" else "text"): ""}
            yield event("response.content_part.added", **at, content_index=0, part=part)
            for piece in _pieces(_parts(line)[0]):
                logprobs: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
                yield event(f"response.{kind}.delta", **at, content_index=0, delta=piece, **logprobs)
        yield event("response.output_item.done", output_index=index, item=item)
    whole = _response_of(output, line, usage, model)
    yield event(f"response.{whole['status']}", response=whole)


# ---------------------------------------------------------------- Messages


def _message(line: Any, usage: tuple[int, int], model: str) -> dict[str, Any]:
    text, calls = _parts(line)
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "Hm.", "signature": "signed"}]
    if text:
        blocks.append({"type": "text", "text": text})
    for call in calls:
        arguments = json.loads(call["arguments"] or "{}")
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": arguments})
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": _stop_reason(line, calls),
        "stop_sequence": None,
        "usage": {"input_tokens": usage[0], "output_tokens": usage[1]},
    }


def _message_events(line: Any, usage: tuple[int, int], model: str) -> Iterator[bytes]:
    text, calls = _parts(line)
    whole = _message("", usage, model)
    start = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": usage[0], "output_tokens": 1}}
    yield _event({"type": "message_start", "message": start}, named=True)
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "signed"}],
        )
    ]
    if text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for call in calls:
        begun = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(call["arguments"])]
        blocks.append((begun, deltas))
    for index, (begun, deltas) in enumerate(blocks):
        yield _event({"type": "content_block_start", "index": index, "content_block": begun}, named=True)
        yield _event({"type": "ping"}, named=True)
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta}, named=True)
        yield _event({"type": "content_block_stop", "index": index}, named=True)
    stop = {"stop_reason": _stop_reason(line, calls), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": stop, "usage": {"output_tokens": usage[1]}}, named=True)
    yield _event({"type": "message_stop"}, named=True)


def _stop_reason(line: Any, calls: list[Any]) -> str:
    if isinstance(line, Refusal):
        return "refusal"
    return "max_tokens" if isinstance(line, Cut) else "tool_use" if calls else "end_turn"


_APIS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[..., Iterator[bytes]]]] = {
    "/v1/chat/completions": (_chat, _chat_events),
    "/v1/responses": (_response, _response_events),
    "/v1/messages": (_message, _message_events),
}
