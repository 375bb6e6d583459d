"""Tool source for WebSockets: sessions, exchanges and streams."""

from __future__ import annotations

import asyncio
import copy
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts.calls import NO_CREDENTIAL, AuthorizedCall, Credential, ToolOutput
from toolpost.contracts.errors import (
    ConfigError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolOutputError,
    ToolTimeoutError,
)
from toolpost.contracts.spec import JsonSchema, ToolSpec, ToolTarget
from toolpost.schema.json_values import is_object
from toolpost.sources.websocket.messages import (
    DECODERS,
    ENCODERS,
    Correlation,
    beginning,
    excerpt,
    json_message,
    json_text,
    json_value,
    list_placeholders,
    listed,
    path_of,
    result_of,
    text_message,
    value_at,
)
from toolpost.transports.base import BaseSource, Services, SourceTool
from toolpost.web.content import OCTETS
from toolpost.web.session_pool import SessionPool
from toolpost.wire.messages import Deadlines
from toolpost.wire.network import WEBSOCKET_SCHEMES, parse_target
from toolpost.wire.websockets import connect_websocket, require_websockets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from toolpost.contracts.config import ExternalToolConfig, WebSocketTool
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question
    from toolpost.sources.websocket.messages import Arguments, Build, Path
    from toolpost.wire.aiohttp_websockets import WebSocket

    Decode = Callable[[str | bytes], Any]
    Tell = Callable[[str], None]
    Connect = Callable[[], Awaitable[WebSocket]]

_Waiting: TypeAlias = "tuple[asyncio.Future[Any], float]"  # for an answer, and until when

_NEVER = float("inf")
_LOOK = 400  # of what came for nobody
_log = logging.getLogger("toolpost.sources.websocket")


class _Stray(NamedTuple):
    """A message that belongs to no call, and the number of the last call that had begun by then."""

    what: str
    number: int
    head: str | bytes | None

    def describe(self) -> str:
        """Describe the message for an error."""
        return self.what if self.head is None else f"{self.what}: {excerpt(self.head)}"


class WebSocketSession:
    """A connection with one reader, and the calls that wait for answers on it.

    An answer goes to the call with its id, once. Messages that belong to no call (late, repeated or unknown) are
    dropped, and the timeout errors of calls mention them. All calls share one timer.
    """

    def __init__(
        self, name: str, socket: WebSocket, correlation: Correlation, credential: Credential = NO_CREDENTIAL
    ) -> None:
        self._name = name
        self._socket = socket
        self._taken = correlation.taken
        self._presented = dict(credential.headers)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int | None, _Waiting] = {}
        self._last_number = 0
        self._is_owed = False  # an answer for which nobody waits any more
        self._stray: _Stray | None = None
        self._ended: ToolError | None = None
        self._retired: asyncio.Event | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = _NEVER
        self._reader = self._loop.create_task(self._read())

    @property
    def is_closed(self) -> bool:
        """Whether the next call needs another connection."""
        return self._ended is not None or self._socket.closed

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for answers."""
        return bool(self._waiting)

    def use_credential(self, credential: Credential) -> bool:
        """Return whether a credential's headers are those of the handshake; others need a connection of their own."""
        return self._presented == credential.headers

    async def ask(self, build: Build, arguments: Arguments, timeout_s: float) -> ToolOutput:
        """Send a message and wait for the answer with its id."""
        loop = self._loop
        until = loop.time() + timeout_s
        self._last_number = number = self._last_number + 1
        text = build(arguments, number)
        if self._ended is not None:
            raise ToolConnectionError(self._ended.message, sent=False)
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting[number] = answer, until
        if until < self._armed_for:
            self._arm(until)
        try:
            try:
                await self._socket.send(text, deadline=until)
            except TimeoutError:
                # It had no effect: nothing of it was read.
                text = f"source {self._name!r} did not take the message in time: it does not read what was sent before"
                raise ToolConnectionError(text, sent=False) from None
            result = await answer
        except BaseException:
            self._waiting.pop(number, None)
            self._is_owed = True
            raise
        finally:
            if self._retired is not None and not self._waiting:
                self._retired.set()
        if isinstance(result, ToolError):
            raise result
        return ToolOutput(result_of(result))

    async def close_when_idle(self) -> None:
        """Close the connection as soon as no call waits for an answer."""
        self._retired = asyncio.Event()
        if self._waiting and not self.is_closed:
            await self._retired.wait()
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls that wait for answers fail."""
        self._end(ToolConnectionError(f"source {self._name!r} was closed"))
        self._reader.cancel()
        if not self._reader.done():  # one that is done may belong to a loop that is closed
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()  # a reader that was cancelled before it began closes nothing

    async def _read(self) -> None:
        ended: ToolError = ToolConnectionError(f"source {self._name!r} is not listened to any more")
        try:
            await self._socket.listen(self._hand_out)
        except ToolError as failed:
            ended = failed
        finally:
            self._end(ended)
            await self._socket.close()

    def _hand_out(self, message: str | bytes) -> None:
        try:
            answer = json_value(message)
        except ToolOutputError:
            self._drop("a message that is not JSON", message)
            return
        number = self._taken(answer)
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            if not waiting[0].done():
                waiting[0].set_result(answer)
        elif number is None:
            self._drop("a message that answers no call", message)
        elif not 0 < number <= self._last_number:
            self._drop(f"an answer with the id {number}, which no call has", message)

    def _drop(self, what: str, message: str | bytes) -> None:
        """Note and log a message that belongs to no call."""
        # Only a call that waits alone sees how it begins, since it may be the answer to another call; no log does.
        is_alone = len(self._waiting) == 1 and not self._is_owed
        self._stray = _Stray(what, self._last_number, message[:_LOOK] if is_alone else None)
        _log.info("source %r: dropped %s", self._name, what)

    def _end(self, ended: ToolError) -> None:
        """Fail every waiting call, each with its own copy of the error; what was sent may have had its effect."""
        self._ended = self._ended or ended
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        if isinstance(ended, ToolClientError) and (len(waiting) > 1 or self._is_owed):
            reason = f"{ended.message}. It is not known for which call it was, so that all on its connection failed"
            ended = ToolConnectionError(reason)
        if isinstance(ended, ToolConnectionError):
            ended.incident = ended.incident or object()
        for answer, _ in waiting.values():
            _settle(answer, copy.copy(ended))

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = self._loop.call_at(when, self._give_up)

    def _give_up(self) -> None:
        """Fail the calls whose time is over; later answers to them are dropped."""
        now = self._loop.time()
        self._timer, self._armed_for = None, _NEVER
        for number in [number for number, (_, until) in self._waiting.items() if until <= now]:
            _settle(self._waiting.pop(number)[0], self._late(number))
            self._is_owed = True
        if self._waiting:
            self._arm(min(until for _, until in self._waiting.values()))

    def _late(self, number: int | None) -> ToolTimeoutError:
        stray = self._stray
        if stray is None or number is None or number > stray.number:
            return ToolTimeoutError(f"source {self._name!r} did not answer in time")
        return ToolTimeoutError(f"source {self._name!r} did not answer in time; it sent {stray.describe()}")


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


_MAX_CLOSING = 64


class ClosingConnections:
    """The connections of one source that are closing; closing the source waits for them."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, socket: WebSocket) -> None:
        """Start to close a connection."""
        closing = asyncio.create_task(socket.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def room(self) -> None:
        """Wait while too many connections are closing, so that slow servers do not use up all sockets."""
        while len(self._closing) >= _MAX_CLOSING:
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)

    async def finished(self) -> None:
        """Wait until every connection is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)


UNRELATED: Final = object()
_PREVIEW_CHARS = 500


class StreamLimits(NamedTuple):
    """The limits that end a stream, besides a clean close."""

    messages: int
    seconds: float | None
    size: int
    last: Path | None

    @classmethod
    def of(cls, tool: WebSocketTool, size: int) -> StreamLimits:
        """Read the limits of a tool's configuration; all answers together may be as large as one message."""
        last = None if tool.last_field is None else path_of(tool.last_field)
        return cls(tool.max_messages, tool.max_seconds, size, last)


class AnswerStream:
    """The answers on one connection; messages that `decode` maps to UNRELATED are dropped."""

    def __init__(self, socket: WebSocket, limits: StreamLimits, decode: Decode, tell: Tell) -> None:
        self._socket = socket
        self._limits = limits
        self._decode = decode
        self._tell = tell
        self._size = 0
        self._dropped = 0
        self.answers: list[Any] = []

    async def collect(self) -> list[Any]:
        """Collect all answers until the end; an error says how many came before it."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not await self._took_last():
                    pass
        except TimeoutError:
            pass  # a limit, and no failure
        except ToolError as failed:
            if not self._socket.ended_well or not isinstance(failed, ToolConnectionError):
                failed.message = f"{failed.message}; {self.came}"
                raise
        return self.answers

    @property
    def came(self) -> str:
        """Describe how many answers and how many dropped messages came."""
        count = len(self.answers)
        dropped = f", and {self._dropped} without its id, which were dropped" if self._dropped else ""
        return f"{count} answer{'' if count == 1 else 's'} had come before{dropped}"

    async def _took_last(self) -> bool:
        message = await self._socket.receive()
        answer = self._decode(message)
        if answer is UNRELATED:
            self._dropped += 1
            return False
        self._size += len(message)
        if self._size > self._limits.size:
            text = f"the stream is larger than {self._limits.size:,} bytes; lower max_messages or raise the limit"
            raise ToolClientError(text, code="response_too_large")
        value = listed(result_of(answer))
        self.answers.append(value)
        self._tell(beginning(value if isinstance(value, str) else json_text(value), _PREVIEW_CHARS))
        ended = self._limits.last is not None and value_at(answer, self._limits.last) is True
        return ended or len(self.answers) >= self._limits.messages


ONLY = 1  # the id of the one message on its connection


class DedicatedExchange:
    """Send one message on a connection of its own and receive its answers."""

    def __init__(self, form: str, correlation: Correlation | None, closing: ClosingConnections) -> None:
        self._encode = ENCODERS[form]
        self._decode_any = DECODERS[form]
        self._correlation = correlation
        self._closing = closing
        self._deadlines = Deadlines()

    async def ask(self, connect: Connect, message: str, *, within_s: float) -> Any:
        """Send a message and return its first answer."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._closing.room()
        socket = await connect()
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return result_of(self._decode_any(await socket.receive()))
        except TimeoutError:
            raise ToolTimeoutError(f"no answer within {within_s:g} s", timeout_ms=within_s * 1000) from None
        finally:
            self._closing.begin(socket)

    async def collect(
        self, connect: Connect, message: str, *, limits: StreamLimits, tell: Tell, within_s: float
    ) -> Any:
        """Send a message and return all answers until a limit, as a list."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._closing.room()
        socket = await connect()
        stream = AnswerStream(socket, limits, self._decode, tell)
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return await stream.collect()
        except TimeoutError:
            text = f"the stream did not end within {within_s:g} s; {stream.came}. max_seconds lets it end by itself"
            raise ToolTimeoutError(text, timeout_ms=within_s * 1000) from None
        finally:
            self._closing.begin(socket)

    def _decode(self, message: str | bytes) -> Any:
        """Decode an answer; where answers have ids, those with another id are unrelated."""
        answer = self._decode_any(message)
        if self._correlation is None or self._correlation.taken(answer) == ONLY:
            return answer
        return UNRELATED


class MessagePlan(Struct, frozen=True, kw_only=True):
    """How the message of a tool is built and sent; only a stream has limits."""

    build: Build
    timeout_s: float
    limits: StreamLimits | None


def plan_tool(
    config: ExternalToolConfig, name: str, tool: WebSocketTool, correlation: Correlation | None
) -> tuple[ToolSpec, MessagePlan]:
    """Build the spec and the plan of a tool; raise a ConfigError when it cannot be called."""
    properties = tool.input_schema.get("properties")
    unknown = [name for name in list_placeholders(tool.message) if is_object(properties) and name not in properties]
    if unknown:
        raise ConfigError(f"its message wants {', '.join(map(repr, unknown))}, which its input_schema does not have")
    _refuse_id(tool, correlation)
    is_json = config.websocket.format == "json"
    build = json_message(tool.message, correlation) if is_json else text_message(tool.message)
    described = tool.model_copy(update={"input_schema": _schema(tool)})
    target = ToolTarget.of(
        "websocket",
        f"a message to {config.connection}",
        message=tool.message,
        options=config.websocket.model_dump(exclude={"tools"}),
    )
    spec = declared_spec(config.name, name, tool=described, kind="websocket", target=target)
    limits = StreamLimits.of(tool, config.websocket.max_message_bytes) if tool.stream else None
    if limits and limits.seconds and spec.timeout_s is None:
        spec = replace(spec, timeout_s=limits.seconds + config.timeout_s)  # a limit must come before the deadline
    return spec, MessagePlan(build=build, timeout_s=spec.timeout_s or config.timeout_s, limits=limits)


def _schema(tool: WebSocketTool) -> JsonSchema:
    """Return the configured schema, or one of the message's placeholders; other arguments are refused."""
    if "input_schema" in tool.model_fields_set or tool.message is None:
        return closed_schema(tool.input_schema)
    names = list_placeholders(tool.message)
    anything: dict[str, JsonSchema] = {name: {} for name in names}
    return closed_schema({"type": "object", "properties": anything, "required": names})


def _refuse_id(tool: WebSocketTool, correlation: Correlation | None) -> None:
    """Raise a ConfigError when an argument of a tool without a message would overwrite the correlation id."""
    if tool.message is not None or correlation is None:
        return
    properties = tool.input_schema.get("properties")
    if any(correlation.sent == (name,) for name in (properties if is_object(properties) else ())):
        name = correlation.sent[0]
        raise ConfigError(f"its argument {name!r} stands where the id of a call goes; write a message for it")


# Less than there is, so that a source can tell what it saw before its caller's time is up.
_SHARE = 0.95
_CONNECT_SHARE = 0.8


class MessageTool(SourceTool):
    """A tool that sends one message."""

    __slots__ = ("plan",)

    def __init__(self, source: WebSocketSource, spec: ToolSpec, plan: MessagePlan) -> None:
        super().__init__(spec, source)
        self.plan = plan


class WebSocketSource(BaseSource):
    """The declared messages of a server, each call on a dedicated connection or all on one session.

    A stream always has a dedicated connection, because closing it ends a subscription for certain.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config, services)
        self._policy = services.network.for_source(config.connection)
        options = config.websocket
        self._correlation = correlation = Correlation.of(options) if options.mode == "multiplexed" else None
        self._closing = ClosingConnections()
        self._exchange = DedicatedExchange(options.format, correlation, self._closing)
        self._sessions = (
            None if correlation is None else SessionPool(config.name, partial(self._open_session, correlation))
        )

    async def discover(self) -> Sequence[MessageTool]:
        """Return the declared tools; the first call connects."""
        require_websockets()
        parse_target(self.config.connection, schemes=WEBSOCKET_SCHEMES)
        options = self.config.websocket
        if self._sessions is not None and options.format != "json":
            raise ConfigError(f"source {self.name!r}: websocket.mode multiplexed needs the format json")
        tools: list[MessageTool] = []
        problems = [] if options.tools else [f"source {self.name!r}: there are no tools under websocket.tools"]
        for name, tool in options.tools.items():
            if not self.config.includes(name):
                continue
            try:
                tools.append(MessageTool(self, *plan_tool(self.config, name, tool, self._correlation)))
            except ConfigError as error:
                problems.append(f"source {self.name!r}: tool {name!r} is left out: {error}")
        self.problems = problems
        return tools

    def invoke(self, call: AuthorizedCall) -> Coroutine[Any, Any, ToolOutput | Question]:
        validated = call.permitted.validated
        plan = cast("MessageTool", validated.tool).plan
        attempt_s = call.attempt_s or plan.timeout_s
        timeout_s = min(validated.request.timeout_s or attempt_s, attempt_s)
        return self.run(plan, validated.arguments, call.credential, timeout_s=timeout_s, context=call.context)

    def run(
        self,
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        *,
        timeout_s: float,
        context: Callable[[], ToolContext],
    ) -> Coroutine[Any, Any, ToolOutput]:
        """Send a tool's message and return the answer."""
        within_s = timeout_s * _SHARE
        if self._sessions is None or plan.limits is not None:
            return self._run_alone(plan, arguments, credential, within_s, context)
        session = self._sessions.find(credential)
        if session is None:
            return self._run_first(self._sessions, plan, arguments, credential, within_s)
        return session.ask(plan.build, arguments, within_s)

    async def _run_first(
        self,
        sessions: SessionPool[WebSocketSession],
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        within_s: float,
    ) -> ToolOutput:
        """Open a session and run a call on it in the time that is left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        session = await sessions.get(credential)
        return await session.ask(plan.build, arguments, until - loop.time())

    async def _run_alone(
        self,
        plan: MessagePlan,
        arguments: dict[str, Any],
        credential: Credential,
        within_s: float,
        context: Callable[[], ToolContext],
    ) -> ToolOutput:
        """Run a call on a dedicated connection."""
        message = plan.build(arguments, ONLY)
        connect = partial(self._connect, credential)
        if plan.limits is None:
            return _output(await self._exchange.ask(connect, message, within_s=within_s))
        tell = context().progress
        return _output(await self._exchange.collect(connect, message, limits=plan.limits, tell=tell, within_s=within_s))

    async def close(self) -> None:
        """Close every connection; safe to call twice."""
        if self._sessions is not None:
            await self._sessions.close()
        await self._closing.finished()

    async def _open_session(self, correlation: Correlation, credential: Credential) -> WebSocketSession:
        return WebSocketSession(self.name, await self._connect(credential), correlation, credential)

    async def _connect(self, credential: Credential) -> WebSocket:
        """Connect with a credential, whose headers replace configured ones of the same name."""
        config, options = self.config, self.config.websocket
        credential_names = {name.lower() for name in credential.headers}
        own = [pair for pair in config.headers.items() if pair[0].lower() not in credential_names]
        return await connect_websocket(
            config.connection,
            policy=self._policy,
            headers=(*own, *credential.headers.items()),
            subprotocols=options.subprotocols,
            timeout_s=min(config.connect_timeout_s, config.timeout_s * _CONNECT_SHARE),
            max_message_bytes=options.max_message_bytes,
        )


def _output(content: Any) -> ToolOutput:
    return ToolOutput(content, media_type=OCTETS) if isinstance(content, bytes) else ToolOutput(content)
