"""Chat models by litellm, which supports about a hundred providers and opens its own sockets."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolpost.agents.models.openai import ChatDialect
from toolpost.agents.models.reply_parts import RestoredCalls, complete_message, finish_reply
from toolpost.agents.models.retries import RETRY, request_with_retries
from toolpost.auth.secret import Secret, secret_from
from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta
from toolpost.contracts.errors import (
    ConfigError,
    ToolConnectionError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    from_status,
)
from toolpost.http.response_errors import sanitize
from toolpost.schema.tool_view import ToolViews

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from toolpost.contracts.retries import RetryPolicy
    from toolpost.schema.tool_view import ToolView

_DIALECT = ChatDialect()
_SECRET_ENDINGS = ("_API_KEY", "_KEY", "_TOKEN", "_SECRET")


class LiteLLMChat:
    """A model by its litellm name, such as `mistral/mistral-large` or `ollama/llama3`.

    Keys come from the environment, as litellm documents, or from `api_key`, which may be a reference such as
    `env:NAME`. `options` are passed to litellm with every request, such as `api_base` or `temperature`. `prices` are US
    dollars per million tokens of prompt and reply; the default is litellm's bundled table, which is not updated over
    the network. litellm is imported at the first request.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        prices: tuple[float, float] | None = None,
        timeout_s: float = 600.0,
        silence_s: float = 120.0,
        retry: RetryPolicy = RETRY,
    ) -> None:
        if find_spec("litellm") is None:
            message = f"the model {model!r} needs litellm; run: pip install 'toolpost[agents]'"
            direct = "gpt-*, claude-*, openai-chat/NAME, anthropic-messages/NAME and URL#NAME"
            raise ConfigError(f"{message}, or name a model that needs no litellm: {direct}")
        self.model = model
        self._key = Secret("") if api_key is None else secret_from(api_key, allow_plain=True)
        self._options = dict(options or {})
        self._prices = prices
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._retry = retry
        self._views = ToolViews("openai")

    def __repr__(self) -> str:
        return f"LiteLLMChat({self.model!r})"

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        """Request the next message, and collect its stream."""
        async with aclosing(self.stream(messages, tools=tools)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    return complete_message(item)
        raise ToolConnectionError(f"{self.model!r} ended without a reply")

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[TextDelta | ToolCallDelta | ModelReply]:
        """Yield the pieces of the next message as they arrive, then the whole reply."""
        litellm = await asyncio.to_thread(_import_litellm)
        view = self._views.view(tools)
        request = {
            **_DIALECT.payload(messages, view, response_schema),
            **_DIALECT.stream_options,
            "max_retries": 0,
            **self._options,
            "model": self.model,
            "api_key": self._key.reveal() or None,
        }

        def attempt(timeout_s: float) -> AsyncGenerator[TextDelta | ToolCallDelta | ModelReply]:
            return self._stream(litellm, {**request, "timeout": timeout_s}, view)

        async with aclosing(request_with_retries(attempt, self._retry, timeout_s=self._timeout_s)) as items:
            async for item in items:
                yield item

    async def _stream(
        self, litellm: Any, request: Mapping[str, Any], view: ToolView
    ) -> AsyncGenerator[TextDelta | ToolCallDelta | ModelReply]:
        reader, calls = _DIALECT.reader(), RestoredCalls(view)
        chunks = await self._next(litellm.acompletion(**request))
        while (chunk := await self._next(anext(chunks, None))) is not None:
            for delta in calls.restore(reader.feed(chunk.model_dump())):
                yield delta
        reply = reader.reply()
        if reply is None or _is_cut(chunks):
            message = f"{self.model!r}: the stream ended before the reply was complete"
            raise ToolConnectionError(message, code="incomplete_reply")
        reply = finish_reply(reply, view, self.model, self._prices)
        if reply.usage.cost is None:
            reply = reply._replace(usage=reply.usage._replace(cost=_known_cost(litellm, self.model, reply)))
        for delta in calls.release(reply):
            yield delta
        yield reply

    async def _next(self, work: Any) -> Any:
        """Await litellm; convert its exceptions to ToolErrors without the key."""
        try:
            async with asyncio.timeout(self._silence_s):
                return await work
        except TimeoutError:
            raise ToolTimeoutError(f"{self.model!r}: nothing came for {self._silence_s:g} s") from None
        except Exception as raised:  # noqa: BLE001 - foreign code; every provider's client fails in its own way
            raise self._failure(raised) from None  # its chain may quote a key

    def _failure(self, raised: Exception) -> ToolError:
        message = f"{self.model!r} by litellm: {sanitize(f'{type(raised).__name__}: {raised}', self._secrets())}"
        if type(raised).__name__ in ("APIConnectionError", "Timeout"):
            return ToolTimeoutError(message) if type(raised).__name__ == "Timeout" else ToolConnectionError(message)
        status = getattr(raised, "status_code", None)
        return from_status(status, message) if isinstance(status, int) else ToolExecutionError(message)

    def _secrets(self) -> list[str]:
        values = [value for name, value in os.environ.items() if name.upper().endswith(_SECRET_ENDINGS)]
        return [secret for secret in (self._key.reveal(), *values) if secret]


def _is_cut(chunks: Any) -> bool:
    """Return whether the provider sent no finish reason: litellm then generates a `stop`."""
    reasons = ("received_finish_reason", "intermittent_finish_reason")
    return hasattr(chunks, reasons[0]) and all(getattr(chunks, name, None) is None for name in reasons)


def _import_litellm() -> Any:
    """Import litellm, which takes seconds, without its network requests and prints."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


def _known_cost(litellm: Any, model: str, reply: ModelReply) -> float | None:
    try:
        prompt, completion = litellm.cost_per_token(
            model=model, prompt_tokens=reply.usage.input_tokens, completion_tokens=reply.usage.output_tokens
        )
    except Exception:  # noqa: BLE001 - foreign code; a model without a price
        return None
    return float(prompt + completion)
