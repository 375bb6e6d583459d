"""Ask a chat model, with retries, and put the pieces of its reply together as one `ModelReply`."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from msgspec import Struct, field

from toolpost.contracts.chat import ChatModel, ModelReply, StreamingChatModel, TextDelta, ToolCallDelta, Usage
from toolpost.contracts.errors import ToolError, ToolExecutionError, ToolOutputError, ToolTimeoutError
from toolpost.contracts.retries import RetryPolicy
from toolpost.runtime.resilience import backoff, may_repeat
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.wire.tracing import find_tracer

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from opentelemetry.trace import Tracer

    from toolpost.schema.provider_view import ToolView

    OnDelta = Callable[[TextDelta | ToolCallDelta], object]

ASK_TIMEOUT_S = 120.0
REASONING = "reasoning"
"""The member of a message with a provider's own items, which only the same API gets back."""
_NOTHING = Usage()
_TOKENS_PRICED = 1_000_000
T = TypeVar("T")

OVERLOADED = 529  # not of the standard, but what Anthropic answers
RETRY = RetryPolicy(
    wait_exponential_min_s=0.5,
    wait_exponential_max_s=8.0,
    retry_on_status=[408, 409, 429, 500, 502, 503, 504, OVERLOADED],
)
_LONGEST_WAIT_S = 60.0  # whoever asked can decide better than to wait for longer


async def ask_model(
    model: ChatModel,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    response_schema: Mapping[str, Any] | None = None,
    on_delta: OnDelta | None = None,
    timeout_s: float = ASK_TIMEOUT_S,
) -> ModelReply:
    """Ask a model for its next message and return the whole reply, its message as plain JSON data.

    `on_delta` gets the pieces of the reply: as they come from a StreamingChatModel, all at the end from another.
    Only a StreamingChatModel is held to `response_schema`. A ToolError says why there is no reply.
    """
    asking = _ask_model(model, messages, tools, response_schema, on_delta, timeout_s)
    tracer = find_tracer()
    return await (asking if tracer is None else _trace(tracer, str(getattr(model, "model", "") or ""), asking))


async def _trace(tracer: Tracer, model: str, asking: Coroutine[Any, Any, ModelReply]) -> ModelReply:
    """Ask in a span, with the attributes of OpenTelemetry's conventions for generative AI; never what was said."""
    attributes = {"gen_ai.operation.name": "chat", **({"gen_ai.request.model": model} if model else {})}
    with tracer.start_as_current_span(f"chat {model}".strip(), attributes=attributes, record_exception=False) as span:
        try:
            reply = await asking
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


async def _ask_model(
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
                    model.stream(messages, tools=tools, response_schema=response_schema), on_delta or _ignore
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
    """Read what `complete` returned: a message, or a whole response of Chat Completions, as data or as an object.

    ToolOutputError where it is not JSON or not a message.
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
    """Return a message as one of the assistant; ToolOutputError where it is none."""
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
    """Read `usage` as Chat Completions, Responses and Messages write it; what is missing counts as zero."""
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
        close = getattr(stream, "aclose", None)  # generators have it, and hold a connection until it is called
        if close is not None:
            await close()
    raise ToolOutputError("the language model's stream ended without a whole reply")


def _json_object(reply: object) -> dict[str, Any]:
    """Return a JSON copy of a reply; ToolOutputError where it could not be stored or sent back."""
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


def _ignore(delta: TextDelta | ToolCallDelta) -> None:
    """Take a piece that nobody asked for."""


class CallParts(Struct):
    """The pieces of one tool call."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def to_message(self) -> dict[str, Any]:
        """Return the call as a message has it; a call without an id gets one, because its result must name it."""
        function = {"name": self.name, "arguments": self.arguments or "{}"}
        return {"id": self.id or f"call_{secrets.token_hex(8)}", "type": "function", "function": function}


class ReplyParts(Struct):
    """The pieces of one reply; `finish` is empty until the provider says why the reply ended."""

    api: str
    text: list[str] = field(default_factory=list[str])
    calls: list[CallParts] = field(default_factory=list[CallParts])
    reasoning: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: Usage = _NOTHING
    finish: str = ""
    model: str = ""
    refused: bool = False

    def add_text(self, text: Any, *, refusal: bool = False) -> list[TextDelta]:
        """Add a piece of text, or of the words by which the model refuses, and return it if there is any."""
        if not isinstance(text, str) or not text:
            return []
        self.refused = self.refused or refusal
        self.text.append(text)
        return [TextDelta(text)]

    def add_call(self, position: int, *, id: Any = "", name: Any = "", arguments: Any = "") -> list[ToolCallDelta]:
        """Add a piece of a call and return what is new: the first id and the first name count."""
        while len(self.calls) <= position:
            self.calls.append(CallParts())
        call = self.calls[position]
        new_id, new_name = ("" if call.id else str(id or "")), ("" if call.name else str(name or ""))
        piece = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call.id, call.name, call.arguments = call.id or new_id, call.name or new_name, call.arguments + piece
        return [ToolCallDelta(position, new_id, new_name, piece)] if new_id or new_name or piece else []

    def reply(self) -> ModelReply:
        """Return the whole reply."""
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
    """Return the items of its own that an API gave with a message; none of another's."""
    reasoning = message.get(REASONING)
    return list(reasoning["items"]) if is_object(reasoning) and reasoning.get("api") == api else []


def earlier_calls(message: Mapping[str, Any], view: ToolView) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the calls of an earlier message: their ids, and names and arguments as the model knows them."""
    for call in message.get("tool_calls") or ():
        function: dict[str, Any] = call.get("function") or {}
        name, arguments = view.call_to_model(str(function.get("name")), function.get("arguments"))
        yield str(call.get("id") or ""), name, arguments


def complete_message(reply: ModelReply) -> dict[str, Any]:
    """Return a whole reply as `complete` does: the message, with usage, model and finish reason beside its content."""
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
    """Return a provider's reply with the real names and arguments of its calls, and with its cost."""
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
    """Pieces of tool calls under the real names; arguments that are mapped are held back until they are whole."""

    def __init__(self, view: ToolView) -> None:
        self._view = view
        self._positions: set[int] = set()

    def restore(self, deltas: Iterable[TextDelta | ToolCallDelta]) -> Iterator[TextDelta | ToolCallDelta]:
        """Yield the pieces that can be passed on."""
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
        """Yield the arguments that were held back, from the whole reply."""
        for position in sorted(self._positions):
            yield ToolCallDelta(position, arguments=reply.message["tool_calls"][position]["function"]["arguments"])


async def ask_with_retries(
    attempt: Callable[[float], AsyncGenerator[T]], policy: RetryPolicy, *, timeout_s: float
) -> AsyncGenerator[T]:
    """Yield what an attempt yields; one that failed before its first item is made again where that may help.

    `attempt` takes the seconds that are left. A reply that was slow is not asked for again.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    tries = 0
    while True:
        tries += 1
        began = False
        try:
            async with aclosing(attempt(deadline - clock())) as items:
                async for item in items:
                    began = True
                    yield item
            return
        except ToolError as error:
            if began or tries >= policy.max_attempts or not _may_retry(error, policy):
                raise
            wait = backoff(tries, error, policy)
            if wait > min(_LONGEST_WAIT_S, deadline - clock()):
                raise
        await asyncio.sleep(wait)


def _may_retry(error: ToolError, policy: RetryPolicy) -> bool:
    # A completion changes nothing, so that it may be asked for again even if the first request arrived.
    return not isinstance(error, ToolTimeoutError) and may_repeat(error, "idempotent", policy)
