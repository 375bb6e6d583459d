"""Chat models over HTTP: requests, deadlines and server-sent events, for any provider's API."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from toolpost.agents.models.reply_parts import RestoredCalls, complete_message, finish_reply
from toolpost.agents.models.retries import OVERLOADED, RETRY, request_with_retries
from toolpost.auth.secret import Secret, secret_from
from toolpost.contracts import errors
from toolpost.contracts.chat import ModelReply, TextDelta, ToolCallDelta
from toolpost.http.content import parse_json
from toolpost.http.encoding import UnsendableError, compact_json
from toolpost.http.event_stream import SseDecoder
from toolpost.http.response_errors import response_error, sanitize, unusable_error
from toolpost.schema.json_values import is_object
from toolpost.schema.tool_view import ToolViews
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request, Response
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import parse_target, split_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping, Sequence

    from toolpost.contracts.retries import RetryPolicy
    from toolpost.schema.provider_dialects import Provider
    from toolpost.schema.tool_view import ToolView

Delta = TextDelta | ToolCallDelta
T = TypeVar("T")

_MAX_BYTES = 64 * 1024 * 1024
_DONE = "[DONE]"
_STATUS_OF = {
    "authentication_error": 401,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": OVERLOADED,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
}


class ReplyReader(Protocol):
    """Reader of one streamed reply."""

    def feed(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Read one event and yield its pieces."""
        ...

    def reply(self) -> ModelReply | None:
        """Return the whole reply, or None while it is incomplete."""
        ...


class Dialect(Protocol):
    """One API of a provider: its address, its key, its requests and its replies."""

    title: str
    provider: Provider
    path: str
    base_url: str
    key_variable: str
    url_variable: str
    stream_options: Mapping[str, Any]

    def headers(self, key: str) -> dict[str, str]:
        """Return the header fields with the key, if there is one, and the API's version."""
        ...

    def payload(
        self, messages: Sequence[Mapping[str, Any]], view: ToolView, response_schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the body of a request, without the model and the options."""
        ...

    def read(self, data: dict[str, Any]) -> ModelReply:
        """Read a reply that is not streamed."""
        ...

    def reader(self) -> ReplyReader:
        """Return the reader of one streamed reply."""
        ...


class HttpChatModel:
    """A chat model behind an HTTP API.

    `base_url` replaces the provider's URL. The key in the provider's variable is sent only to the provider; another
    server gets `api_key`, which may be a reference such as `env:NAME` or `keyring:SERVICE/NAME`. `options` are members
    of every request, such as `temperature`; None removes one. `prices` are US dollars per million tokens of the prompt
    and of the reply. `timeout_s` limits a whole reply with its retries, `silence_s` the wait for the next piece. As a
    context manager, the model keeps connections open between requests.
    """

    dialect: ClassVar[Dialect]

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        prices: tuple[float, float] | None = None,
        timeout_s: float = 600.0,
        silence_s: float = 120.0,
        retry: RetryPolicy = RETRY,
        proxy: str | None = None,
    ) -> None:
        self.model = model
        self.base_url = _base_url(self.dialect, base_url)
        self._key = _key(self.dialect, self.base_url, api_key, explicit=base_url is not None)
        self._headers = dict(headers or {})
        self._options = dict(options or {})
        self._prices = prices
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._retry = retry
        self._policy = NetworkPolicy(proxy=proxy).for_source(self.base_url)
        self._client: HttpClient | None = None
        self._views = ToolViews(self.dialect.provider)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self.base_url!r})"

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Mapping[str, Any]:
        """Request the next message, without a stream."""
        view = self._views.view(tools)
        body = self._body(self.dialect.payload(messages, view, None))

        async def attempt(timeout_s: float) -> AsyncGenerator[ModelReply]:
            async with self._response(body, timeout_s) as response:
                yield await self._read_whole(response, view)

        async with aclosing(request_with_retries(attempt, self._retry, timeout_s=self._timeout_s)) as replies:
            return complete_message(await anext(replies))

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[TextDelta | ToolCallDelta | ModelReply]:
        """Yield the pieces of the next message as they arrive, then the whole reply."""
        view = self._views.view(tools)
        body = self._body({**self.dialect.payload(messages, view, response_schema), **self.dialect.stream_options})

        def attempt(timeout_s: float) -> AsyncGenerator[Delta | ModelReply]:
            return self._stream(body, view, timeout_s)

        async with aclosing(request_with_retries(attempt, self._retry, timeout_s=self._timeout_s)) as items:
            async for item in items:
                yield item

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        self._client = self._client or HttpClient(self._policy)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _body(self, payload: Mapping[str, Any]) -> bytes:
        members = {"model": self.model, **payload, **self._options}
        try:
            return compact_json({name: value for name, value in members.items() if value is not None}).encode()
        except UnsendableError as error:
            raise errors.ToolValidationError(f"the messages for the language model cannot be sent: {error}") from error

    async def _stream(self, body: bytes, view: ToolView, timeout_s: float) -> AsyncGenerator[Delta | ModelReply]:
        reader, calls = self.dialect.reader(), RestoredCalls(view)
        async with self._response(body, timeout_s, silence_s=self._silence_s) as response:
            if response.media_type != "text/event-stream":  # the server does not stream
                yield await self._read_whole(response, view)
                return
            async for event in self._events(response):
                for delta in calls.restore(reader.feed(event)):
                    yield delta
        reply = reader.reply()
        if reply is None:
            message = f"{self._subject}: the stream ended before the reply was complete"
            raise errors.ToolConnectionError(message, code="incomplete_reply")
        reply = finish_reply(reply, view, self.model, self._prices)
        for delta in calls.release(reply):
            yield delta
        yield reply

    @asynccontextmanager
    async def _response(
        self, body: bytes, timeout_s: float, *, silence_s: float | None = None
    ) -> AsyncGenerator[Response]:
        """Send a request and wait for the head of its response; raise for a non-2xx status."""
        headers = {"Content-Type": "application/json", **self.dialect.headers(self._key.reveal()), **self._headers}
        url = f"{self.base_url}{self.dialect.path}"
        request = Request("POST", url, headers, body, timeout_s=timeout_s, max_bytes=_MAX_BYTES, follow="none")
        async with self._connections() as client, await self._next(client.send(request), silence_s) as response:
            if response.status != 200:
                raise self._failure(response, await response.read())
            yield response

    @asynccontextmanager
    async def _connections(self) -> AsyncGenerator[HttpClient]:
        """Yield the open client, or one for a single request that is closed after it."""
        if self._client is not None:
            yield self._client
            return
        async with HttpClient(self._policy) as client:
            yield client

    async def _events(self, response: Response) -> AsyncGenerator[dict[str, Any]]:
        decoder = SseDecoder()
        async with aclosing(response.stream()) as chunks:
            while (chunk := await self._next(anext(chunks, b""), self._silence_s)) != b"":
                for event in decoder.feed(chunk):
                    if event["data"].strip() == _DONE:
                        return
                    yield self._parse(response, event["data"].encode())

    async def _next(self, work: Awaitable[T], silence_s: float | None) -> T:
        try:
            async with asyncio.timeout(silence_s):
                return await work
        except TimeoutError:
            message = f"{self._subject}: nothing came for {silence_s:g} s"
            raise errors.ToolTimeoutError(message, timeout_ms=(silence_s or 0.0) * 1000) from None
        except errors.ToolConnectionError as error:  # names only an address; add the model
            error.message = f"{self._subject}: {error.message.removeprefix(f'POST {split_url(self.base_url)[0]}: ')}"
            error.args = (error.message,)
            raise

    async def _read_whole(self, response: Response, view: ToolView) -> ModelReply:
        reply = self.dialect.read(self._parse(response, await response.read()))
        return finish_reply(reply, view, self.model, self._prices)

    def _parse(self, response: Response, data: bytes) -> dict[str, Any]:
        """Parse a reply or an event; raise the error that it reports."""
        try:
            parsed = parse_json(data)
        except ValueError as error:
            raise unusable_error(self._subject, response.status, data, error, self._secrets) from None
        if not is_object(parsed):
            raise errors.ToolOutputError(f"{self._subject} answered with {type(parsed).__name__}, not an object")
        if reported := reported_error(parsed):
            raise self._build_error(reported)
        return parsed

    def _failure(self, response: Response, body: bytes) -> errors.ToolNodeError:
        remedy = f"Check the key in {self.dialect.key_variable} or `api_key`." if self._key.reveal() else "Give a key."
        error = response_error(
            self._subject, response.status, response.headers, body, remedy=remedy, secrets=self._secrets
        )
        if response.status == OVERLOADED:
            error.category = errors.ErrorCategory.RETRYABLE_SERVER
        if (
            response.headers.get("x-should-retry") == "false"
        ):  # sent by OpenAI and Anthropic, for example for an exhausted quota
            error.category = errors.ErrorCategory.NON_RETRYABLE_CLIENT
        return error

    def _build_error(self, error: Mapping[str, Any]) -> errors.ToolNodeError:
        words = (error.get("code"), error.get("type"), error.get("status"))
        named = [_STATUS_OF.get(str(word), word) for word in words]
        status = next((word for word in named if isinstance(word, int) and 400 <= word <= 599), 500)
        reason = sanitize(str(error.get("message") or error), self._secrets)
        failure = errors.from_status(status, f"{self._subject} reports an error: {reason}")
        if status == OVERLOADED:
            failure.category = errors.ErrorCategory.RETRYABLE_SERVER
        return failure

    @property
    def _subject(self) -> str:
        return f"{self.dialect.title} of {self.model!r} at {split_url(self.base_url)[0]}"

    @property
    def _secrets(self) -> list[str]:
        return [secret for secret in (self._key.reveal(), *self._headers.values()) if secret]


def reported_error(data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error in a reply or an event of any of the APIs, or None."""
    inner: Any = data.get("response") if data.get("type") == "response.failed" else None
    error: Any = (inner if is_object(inner) else data).get("error")
    if is_object(error):
        return error
    if isinstance(error, str) and error:
        return {"message": error}
    return data if data.get("type") in ("error", "response.failed") else None


def _base_url(dialect: Dialect, base_url: str | None) -> str:
    url = base_url or os.environ.get(dialect.url_variable) or dialect.base_url
    address = url.rstrip("/").removesuffix(dialect.path)
    try:
        parse_target(address)
    except errors.ToolPermissionError as refused:
        raise errors.ConfigError(
            f"the base URL of a model: {refused.message.removeprefix('Permission denied: ')}"
        ) from None
    if "?" in address or "#" in address:
        raise errors.ConfigError(
            "the base URL of a model has no query and no fragment; `headers` and `api_key` carry keys"
        )
    return address


def _key(dialect: Dialect, address: str, reference: str | None, *, explicit: bool) -> Secret:
    """Return the key for an address; the provider's variable is for the provider only."""
    if reference is not None:
        return secret_from(reference, allow_plain=True)
    own = address == dialect.base_url
    key = "" if explicit and not own else os.environ.get(dialect.key_variable, "")
    if own and not key:
        raise errors.ConfigError(
            f"{dialect.title} needs a key: set {dialect.key_variable}, or give api_key", code="secret_missing"
        )
    return Secret(key)
