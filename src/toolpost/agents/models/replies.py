"""Requests to chat models, with replies as `ModelReply`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeGuard

from toolpost.contracts.chat import ChatModel, ModelReply, StreamingChatModel, TextDelta, ToolCallDelta, Usage
from toolpost.contracts.errors import ToolError, ToolExecutionError, ToolOutputError, ToolTimeoutError
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.wire.tracing import find_tracer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence

    from opentelemetry.trace import Tracer

    OnDelta = Callable[[TextDelta | ToolCallDelta], object]

REPLY_TIMEOUT_S = 120.0


async def request_reply(
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    response_schema: Mapping[str, Any] | None = None,
    on_delta: OnDelta | None = None,
    timeout_s: float = REPLY_TIMEOUT_S,
    find_tracer: Callable[[], Tracer | None] = find_tracer,
) -> ModelReply:
    """Request the next message of a model and return the whole reply, its message as plain JSON data.

    `on_delta` receives the pieces of the reply: as they arrive from a StreamingChatModel, all at the end from another.
    Only a StreamingChatModel is held to `response_schema`. Without a reply, raise a ToolError.
    """
    requesting = _request(model, messages, tools, response_schema, on_delta, timeout_s)
    tracer = find_tracer()
    return await (requesting if tracer is None else _trace(tracer, str(getattr(model, "model", "") or ""), requesting))


async def _trace(tracer: Tracer, model: str, requesting: Coroutine[Any, Any, ModelReply]) -> ModelReply:
    """Request in a span with OpenTelemetry's attributes for generative AI, never with the content."""
    attributes = {"gen_ai.operation.name": "chat", **({"gen_ai.request.model": model} if model else {})}
    with tracer.start_as_current_span(f"chat {model}".strip(), attributes=attributes, record_exception=False) as span:
        try:
            reply = await requesting
        except ToolError as error:
            span.set_attribute("error.type", error.error_code)
            raise
        span.set_attributes(
            {
                "gen_ai.usage.input_tokens": reply.usage.input_tokens,
                "gen_ai.usage.output_tokens": reply.usage.output_tokens,
                "gen_ai.response.model": reply.model or model,
                "gen_ai.response.finish_reasons": [reply.finish_reason],
            }
        )
        return reply


async def _request(
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    response_schema: Mapping[str, Any] | None,
    on_delta: OnDelta | None,
    timeout_s: float,
) -> ModelReply:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            if _is_streaming(model):
                return await _read_stream(
                    model.stream(messages, tools=tools, response_schema=response_schema), on_delta or (lambda _: None)
                )
            reply = read_reply(await model.complete(messages, tools=tools))
    except ToolError:
        raise
    except Exception as raised:
        if limit.expired():
            message = f"the language model did not answer within {timeout_s:g} s"
            raise ToolTimeoutError(message, timeout_ms=timeout_s * 1000) from raised
        raise ToolExecutionError(f"the language model failed: {type(raised).__name__}: {raised}") from raised
    if on_delta is not None:
        for delta in reply_deltas(reply):
            on_delta(delta)
    return reply


def _is_streaming(model: ChatModel) -> TypeGuard[StreamingChatModel]:
    """Return whether a model streams; `isinstance` of a Protocol takes 40 µs."""
    return callable(getattr(model, "stream", None))


def read_reply(reply: object) -> ModelReply:
    """Read the result of `complete`: a message, or a response of Chat Completions, as data or as an object.

    Raise ToolOutputError if it is not JSON or not a message.
    """
    data = _json_object(reply)
    choice: dict[str, Any] = {}
    if is_array(data.get("choices")):
        choice = data["choices"][0] if data["choices"] and is_object(data["choices"][0]) else {}
    message = check_message(choice.get("message") if "choices" in data else data)
    facts = {name: message.pop(name, None) or data.get(name) for name in ("usage", "model")}
    finish = choice.get("finish_reason") or message.pop("finish_reason", None)
    default = "tool_calls" if message.get("tool_calls") else ""
    return ModelReply(message, read_usage(facts["usage"]), str(finish or default), str(facts["model"] or ""))


def check_message(message: object) -> dict[str, Any]:
    """Return a message with the role of the assistant; raise ToolOutputError if it is invalid."""
    if not is_object(message):
        raise ToolOutputError(f"the language model's message is a {type(message).__name__}, not an object")
    calls: Any = message.get("tool_calls") or []
    if not is_array(calls) or not all(is_object(call) for call in calls):
        raise ToolOutputError("the language model's tool_calls are not a list of objects")
    content: Any = message.get("content")
    if is_array(content) and all(is_object(part) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    return {**message, "role": "assistant"} | ({} if content is None else {"content": content})


def read_usage(data: object) -> Usage:
    """Read `usage` of Chat Completions, Responses or Messages; missing counts are zero."""
    if isinstance(data, Usage):
        return data
    if not is_object(data):
        return Usage()
    prompt = _count(data, "prompt_tokens", "input_tokens")
    completion = _count(data, "completion_tokens", "output_tokens")
    cost = data.get("cost")
    return Usage(prompt, completion, float(cost) if isinstance(cost, int | float) else None)


def reply_deltas(reply: ModelReply) -> Iterator[TextDelta | ToolCallDelta]:
    """Yield a whole reply as pieces: its text, then each call."""
    text = reply.message.get("content")
    if isinstance(text, str) and text:
        yield TextDelta(text)
    for position, call in enumerate(reply.message.get("tool_calls") or []):
        function = as_object(call.get("function"))
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        yield ToolCallDelta(position, str(call.get("id") or ""), str(function.get("name") or ""), arguments)


async def _read_stream(stream: AsyncIterator[TextDelta | ToolCallDelta | ModelReply], on_delta: OnDelta) -> ModelReply:
    try:
        async for item in stream:
            if isinstance(item, ModelReply):
                return item._replace(message=check_message(_json_object(item.message)))
            on_delta(item)
    finally:
        close = getattr(stream, "aclose", None)  # a generator holds a connection until it is closed
        if close is not None:
            await close()
    raise ToolOutputError("the language model's stream ended without a whole reply")


def _json_object(reply: object) -> dict[str, Any]:
    """Return a JSON copy of a reply; raise ToolOutputError if it cannot be stored or sent back."""
    dump = getattr(reply, "model_dump", None)
    try:
        data: Any = json.loads(json.dumps(dump(exclude_none=True) if callable(dump) else reply, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolOutputError(f"the language model's message is not JSON: {error}; return a dict") from error
    if not is_object(data):
        raise ToolOutputError(f"the language model's message is a {type(reply).__name__}, not an object")
    return data


def _count(data: Mapping[str, Any], *names: str) -> int:
    return next((value for name in names if isinstance(value := data.get(name), int)), 0)
