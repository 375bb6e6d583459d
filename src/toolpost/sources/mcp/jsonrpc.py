"""JSON-RPC with one peer: the dispatcher, its messages, and the link to a process.

`JsonRpc` is a dispatcher of the MCP SDK: the SDK's session negotiates over it. Every response is matched by its id to
the future of its request, without a task or a stream per message. Other links are `streamable_http`, `sse`, and
`server_object` for a server of this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, cast

import anyio
import orjson
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest, run_notify_intercept
from mcp.shared.inbound import mcp_param_headers
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, RequestId
from pydantic_core import from_json, to_json

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolError, ToolNodeError
from toolpost.processes.json_documents import cut_document, measure
from toolpost.processes.line_splitter import LineSplitter
from toolpost.schema.json_size import SMALL, CheckedJson, JsonLimits
from toolpost.schema.json_values import (
    as_object,
    cooperative_decoder,
    decode_in_pieces,
    finite_number,
    is_array,
    is_object,
)
from toolpost.sources.mcp.errors import split_messages, too_many_values_error, unreadable_error
from toolpost.sources.mcp.peer_requests import Message, PeerMessage, PeerTurns, id_key, progress_token
from toolpost.wire.tracing import TRACEPARENT, traceparent

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
LARGE_MESSAGE = SMALL
_STRUCTURED = ("result", "structuredContent")
_CLOSE_S = 1.0
_MAX_SERVED = 1000  # requests of a peer that wait for our response
_IDS = frozenset({int, str, float, type(None)})
_log = logging.getLogger(__name__)
_MAX_UNREAD = 64 * 1024 * 1024  # what a process may leave unread on its stdin
_BEGINNINGS = (b"{", b"[", b" ", b"\t")
_LINE_FEED = 10


class JsonRpc(Dispatcher[TransportContext]):
    """Requests to a peer and handlers of its requests, over one link.

    With `trace_context`, requests contain the trace that they are part of.
    """

    def __init__(self, link: Link, *, trace_context: bool = False) -> None:
        self._link = link
        self._trace_context = trace_context
        self._pending: dict[RequestId, PendingRequest] = {}
        self._served: dict[RequestId, tuple[asyncio.Task[None], PeerMessage]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turns = PeerTurns(self._start_serving)
        self._last_id = 0
        self._is_open = False
        self._loop = asyncio.get_running_loop()
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        # By tool, the arguments that are also sent as headers in the stateless protocol.
        self.header_arguments: dict[str, Mapping[tuple[str, ...], str]] = {}

    # ------------------------------------------------------------------ requests of ours

    @property
    def is_busy(self) -> bool:
        """Whether several requests wait for their responses."""
        return len(self._pending) > 1

    def begin(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        *,
        headers: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
        request_id: RequestId | None = None,
    ) -> PendingRequest:
        """Send a request and return it; a caller that stops waiting for its future must call `abandon`."""
        if not self._is_open:
            raise ToolConnectionError("MCP connection failed: Connection closed", sent=False)
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        elif request_id in self._pending:
            raise ValueError(f"request id {request_id!r} is already in flight")
        pending = PendingRequest(request_id, method, self._loop.create_future())
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if on_progress is not None:
            pending.on_progress = on_progress
            params = _with_meta(params, "progressToken", request_id)
        if self._trace_context and (trace := traceparent()) is not None:
            params = _with_meta(params, TRACEPARENT, trace)  # SEP-414; baggage stays here
        if params:
            message["params"] = params
            if self.header_arguments and method == "tools/call":
                named = self.header_arguments.get(params["name"], {})
                headers = {**(headers or {}), **mcp_param_headers(named, params.get("arguments") or {})}
        self._pending[request_id] = pending
        try:
            self._link.request(message, pending, headers)
        except BaseException:
            del self._pending[request_id]
            raise
        return pending

    def follow(self, method: str, answer: Coroutine[Any, Any, dict[str, Any]]) -> PendingRequest:
        """Return a request that something else sends; it is cancelled when no caller waits for it."""
        self._last_id += 1
        pending = PendingRequest(f"followed {self._last_id}", method, self._loop.create_future())
        task = self.start(answer)
        pending.cancellable, pending.stop = False, task.cancel
        self._pending[pending.id] = pending

        def settle(done: asyncio.Task[dict[str, Any]]) -> None:
            self._pending.pop(pending.id, None)
            if done.cancelled():
                pending.end(MCPError(code=CONNECTION_CLOSED, message="the request was cancelled"))
            else:
                error = done.exception()
                pending.end(cast("Exception | None", error), None if error else done.result())

        task.add_done_callback(settle)
        return pending

    def abandon(self, pending: PendingRequest, reason: str, error: Exception | None = None) -> None:
        """Drop a request whose response is not needed, and notify the peer."""
        if self._pending.get(pending.id) is not pending:
            return
        del self._pending[pending.id]
        pending.was_abandoned = True
        if pending.cancellable and self._is_open:
            params = {"requestId": pending.id, "reason": reason}
            self._link.abandon(pending, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        elif pending.stop is not None:
            pending.stop()
        pending.end(error or MCPError(code=CONNECTION_CLOSED, message=reason))
        if not pending.future.cancelled():
            pending.future.exception()  # marks it as retrieved if no task waits

    def fail(self, pending: PendingRequest, error: Exception) -> None:
        if self._pending.get(pending.id) is pending:
            del self._pending[pending.id]
            pending.end(error)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request of the SDK's session and wait for its result."""
        opts = opts or {}
        pending = self.begin(
            method,
            params,
            headers=opts.get("headers"),
            on_progress=self._in_task(opts.get("on_progress")),
            request_id=opts.get("request_id"),
        )
        pending.cancellable = opts.get("cancel_on_abandon", True)
        try:
            async with asyncio.timeout(opts.get("timeout")):
                return cast("dict[str, Any]", await pending.future)
        except TimeoutError:
            self.abandon(pending, "timed out")
            raise MCPError(code=REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
        except asyncio.CancelledError:
            self.abandon(pending, "caller cancelled")
            raise

    def _in_task(self, report: Callable[..., Awaitable[None]] | None) -> OnProgress | None:
        if report is None:
            return None
        return lambda progress, total, text: self.start(_contained(report, progress, total, text))

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification; it is lost on a closed connection."""
        if self._is_open:
            message: Message = {"jsonrpc": "2.0", "method": method}
            if params is not None:
                message["params"] = params
            await self._link.send(message, (opts or {}).get("headers"))

    # ------------------------------------------------------------------ messages of the peer

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver the peer's messages until the connection ends; every request fails then."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        self._is_open = True
        task_status.started()
        try:
            await self._link.run(self)
        finally:
            self._is_open = False
            self._turns.waiting.clear()
            for pending in list(self._pending.values()):
                self.fail(pending, ToolConnectionError("MCP connection failed: Connection closed"))
            for task in self._tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=_CLOSE_S)

    def receive(self, message: Message) -> None:
        """Process one message: settle the request that it answers, or start the handler of its request."""
        method = message.get("method")
        if method is None:
            self._settle(message)
        elif message.get("id") is not None:
            self._turns.unsolicited += 1
            if not self._is_open:
                return  # the response has no receiver
            if len(self._served) + len(self._turns.waiting) < _MAX_SERVED:
                self._turns.put(message)
            else:
                self._end_flood()
        else:
            self._turns.unsolicited += 1
            self._note(method, message.get("params"))

    def due_pause(self) -> float:
        """Return the pause before the next read after many unsolicited messages."""
        return self._turns.due_pause() if self._turns.unsolicited else 0.0

    def _start_serving(self, message: Message) -> None:
        request_id = message["id"]
        context = PeerMessage(self, request_id, progress_token(message))
        task = self.start(self._serve(context, message["method"], message.get("params")))
        self._served[id_key(request_id)] = (task, context)

    def _end_flood(self) -> None:
        """End the connection to a peer that sends requests without waiting for the responses."""
        text = f"the MCP server sent {_MAX_SERVED:,} requests without waiting for a response; its session was ended"
        self._is_open = False
        self._turns.waiting.clear()
        for task, _ in self._served.values():
            task.cancel()
        for pending in list(self._pending.values()):
            self.fail(pending, ToolNodeError(text, code="server_floods", category=ErrorCategory.UNKNOWN))
        self._link.hang_up()

    def _settle(self, message: Message) -> None:
        request_id: Any = message.get("id")
        pending = self._pending.pop(request_id, None) or self._pending.pop(id_key(request_id), None)
        if pending is None:
            return  # late or unknown
        error = message.get("error")
        if error is None:
            pending.end(result=message["result"])
        else:
            pending.end(MCPError(code=error["code"], message=error["message"], data=error.get("data")))

    def _note(self, method: str, params: Message | None) -> None:
        if method == "notifications/cancelled":
            request_id = id_key((params or {}).get("requestId"))
            task, context = self._served.get(request_id, (None, None))
            if task is not None and context is not None:
                context.was_cancelled = True
                task.cancel()
            else:
                self._turns.waiting.pop(request_id, None)
        elif method == "notifications/progress":
            self._report(params or {})
        if run_notify_intercept(self._intercept, method, params) or self._on_notify is None:
            return
        if not self._turns.admits(method):
            return
        self.start(_contained(self._on_notify, PeerMessage(self, None, None), method, params))

    def _report(self, params: Message) -> None:
        pending = self._pending.get(id_key(params.get("progressToken")))
        progress, total = (finite_number(params.get(name)) for name in ("progress", "total"))
        text = params.get("message")
        if pending is not None and pending.on_progress is not None and progress is not None:
            pending.on_progress(progress, total, text if isinstance(text, str) else None)

    async def _serve(self, context: PeerMessage, method: str, params: Message | None) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": context.request_id}
        try:
            answer["result"] = await cast("OnRequest", self._on_request)(context, method, params)
        except asyncio.CancelledError:
            if not context.was_cancelled:
                raise
            return
        except Exception as raised:  # noqa: BLE001 - of a handler; it is sent to the peer
            error = handler_exception_to_error_data(raised)
            if error is None:
                answer["error"] = {"code": 0, "message": str(raised)}
            else:
                answer["error"] = error.model_dump(by_alias=True, mode="json", exclude_none=True)
        finally:
            context.is_over = True
            self._served.pop(id_key(context.request_id), None)
        await self._link.send(answer)

    def start(self, work: Any) -> asyncio.Task[Any]:
        """Start a task that ends with the connection at the latest."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class PendingRequest:
    """A request that waits for its response; `future` gets the result, the error, or an interrupting event.

    `on_end` is called once, when the response has arrived or the caller has given up. `stop` is set by the link and
    ends its work for this request.
    """

    __slots__ = ("cancellable", "future", "id", "method", "on_end", "on_progress", "stop", "was_abandoned")

    def __init__(self, request_id: RequestId, method: str, future: asyncio.Future[Any]) -> None:
        self.id = request_id
        self.method = method
        self.future = future
        self.on_progress: OnProgress | None = None
        self.on_end: Callable[[PendingRequest], None] | None = None
        self.cancellable = True
        self.was_abandoned = False
        self.stop: Callable[[], object] | None = None

    def interrupt(self, event: object) -> None:
        """Resolve the future with an event; the response will resolve a new future."""
        if not self.future.done():
            future, self.future = self.future, self.future.get_loop().create_future()
            future.set_result(event)

    def end(self, error: Exception | None = None, result: Any = None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)


class Link(Protocol):
    """A connection that sends messages to a peer and delivers its messages."""

    async def run(self, rpc: JsonRpc) -> None:
        """Deliver messages to `rpc.receive` until the peer has ended the connection."""
        ...

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        """Send a request without waiting; raise an error if no part of it can have been sent."""
        ...

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification or a response; a failure is ignored."""
        ...

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        """Notify the peer that a request was cancelled."""
        ...

    def hang_up(self) -> None:
        """Stop reading."""
        ...


def _with_meta(params: Mapping[str, Any] | None, name: str, value: Any) -> dict[str, Any]:
    """Return a copy of parameters with one more member of their `_meta`."""
    whole = {} if params is None else {**params}
    meta = whole.get("_meta")
    whole["_meta"] = {**meta, name: value} if meta else {name: value}
    return whole


async def _contained(handler: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    # The handler is called here: a task that is cancelled before its first turn would leave its coroutine unawaited.
    try:
        await handler(*arguments)
    except Exception:  # noqa: BLE001 - a handler's failure must not end the connection
        _log.exception("a handler of an MCP notification failed")


def encode_message(message: Message) -> bytes:
    """Encode a message as JSON on one line."""
    try:
        return orjson.dumps(message)
    except orjson.JSONEncodeError:  # for example an integer of more than 64 bits
        return to_json(message, inf_nan_mode="null")


def read_messages(text: str | bytes) -> list[Message]:
    """Parse a message or a batch; skip other text that a server writes between its messages.

    Protocol revision 2025-03-26 lets servers send batches.
    """
    try:
        value = from_json(text)
    except ValueError:
        return _unreadable(text)
    return _checked(value, text)


async def read_large(text: str | bytes, limits: JsonLimits) -> list[Message]:
    """Parse a large message as `read_messages`, but in a thread; reject one that cannot be checked.

    The structured content of a result with many values is checked in another process, and stays JSON.
    """
    data = text.encode() if isinstance(text, str) else text
    try:
        return await _read_measured(data, limits)
    except ToolError as error:  # of this message only: the session continues
        refusal = too_many_values_error(data, error.message)
        return [] if refusal is None else [from_json(refusal)]


async def _read_measured(data: bytes, limits: JsonLimits) -> list[Message]:
    values = await measure(data, limits.max_values)
    if values > limits.inline_values and b'"structuredContent"' in data:
        with suppress(ValueError):
            rest, part = await cut_document(data, _STRUCTURED)
            messages = await asyncio.to_thread(_read_in_pieces, rest)
            if part is not None:
                for message in messages:
                    as_object(message.get("result"))["structuredContent"] = CheckedJson(part)
            return messages
    return await asyncio.to_thread(_read_in_pieces, data)


def _read_in_pieces(text: str | bytes) -> list[Message]:
    with suppress(ValueError):  # nearly all are lists
        return _checked(decode_in_pieces(text.encode() if isinstance(text, str) else text), text)
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return _checked(cooperative_decoder(decoded).decode(decoded), text)
    except (ValueError, RecursionError):
        return _unreadable(text)


def _checked(value: Any, text: str | bytes) -> list[Message]:
    if _is_message(value):
        return [value]
    if is_array(value):
        return [message for one in value if is_object(one) for message in _checked(one, to_json(one))]
    return _unreadable(text)


def _is_message(value: Any) -> bool:
    match value:
        case {"jsonrpc": "2.0", "method": str()}:
            is_valid = isinstance(value.get("params"), dict | None)
        case {"method": _}:
            is_valid = False
        case {"jsonrpc": "2.0", "error": {"code": int(), "message": str()}}:
            is_valid = True
        case {"error": _}:
            is_valid = False
        case {"jsonrpc": "2.0", "result": {}}:  # any object
            is_valid = True
        case _:
            return False
    return is_valid and type(value.get("id")) in _IDS


def _unreadable(text: str | bytes) -> list[Message]:
    """Return an error in place of a response that cannot be parsed; nothing when it has no id."""
    error = unreadable_error(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
    return [] if error is None else [from_json(error)]


class Pipe:
    """Link to a process: one message a line on its stdin and stdout. `on_end` is called when its stdout has ended."""

    def __init__(self, stdin: asyncio.StreamWriter, reader: MessageReader, *, on_end: Callable[[], None]) -> None:
        self._stdin = stdin.transport
        self._reader = reader
        self._on_end = on_end
        self._rpc: JsonRpc | None = None
        self._loop = asyncio.get_running_loop()
        self._is_corked = False
        self._corked: list[tuple[bytes, PendingRequest | None]] = []

    async def run(self, rpc: JsonRpc) -> None:
        self._rpc = rpc
        await self._reader.deliver(rpc.receive, rpc.due_pause)
        self._on_end()

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        if not self._put(encode_message(message), pending):
            raise _process_gone()

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        self._put(encode_message(message), None)

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        self._put(encode_message(notice), None)

    def hang_up(self) -> None:
        self._reader.stop()

    def _put(self, line: bytes, pending: PendingRequest | None) -> bool:
        """Write a line immediately, or with the other lines of this loop iteration: each write wakes the process."""
        if self._is_corked:
            self._corked.append((line, pending))
            return True
        if self._rpc is not None and self._rpc.is_busy:
            self._is_corked = True
            self._loop.call_soon(self._uncork)
        return self._write(line)

    def _uncork(self) -> None:
        self._is_corked = False
        lines, self._corked = self._corked, []
        if lines and not self._write(b"\n".join([line for line, _ in lines])):
            for _, pending in lines:
                if pending is not None and self._rpc is not None:
                    self._rpc.fail(pending, _process_gone())

    def _write(self, lines: bytes) -> bool:
        """Write lines; return False if no part of them can have been sent."""
        transport = self._stdin
        waiting = transport.get_write_buffer_size()
        if transport.is_closing() or waiting > _MAX_UNREAD:
            return False
        transport.write(lines + b"\n")
        return bool(waiting) or not transport.is_closing()


class MessageReader(asyncio.Protocol):
    """Messages on the stdout of a process, one per line, processed as soon as they are read.

    A large message is parsed in a thread; later ones wait, which keeps the order of messages.
    """

    def __init__(self, limit: int, values: JsonLimits) -> None:
        self._limit = limit
        self._values = values
        self._lines: LineSplitter = split_messages(limit)
        self._receive: Callable[[Message], None] | None = None
        self._waiting: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._has_ended = False
        self.was_stopped = False
        self._due_pause: Callable[[], float] = float

    async def deliver(self, receive: Callable[[Message], None], due_pause: Callable[[], float]) -> None:
        """Call `receive` with every message until stdout has ended; do not read while a pause is due."""
        self._due_pause = due_pause
        loop = asyncio.get_running_loop()
        while self._waiting or not self._has_ended:
            while self._waiting:
                line = self._waiting.popleft()
                large = len(line) > LARGE_MESSAGE
                for message in await read_large(line, self._values) if large else read_messages(line):
                    receive(message)
            if self._has_ended:
                continue
            self._receive, self._waiter = receive, loop.create_future()
            if self._transport is not None:
                self._transport.resume_reading()
            try:
                await self._waiter
            finally:
                self._receive = self._waiter = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        # Most reads consist of whole lines; their calls do not enter the line splitter.
        whole = data[-1] == _LINE_FEED and len(data) <= self._limit and not self._lines.pending_bytes
        try:
            for line in data.split(b"\n") if whole else self._lines.feed(data):
                if line[:1] in _BEGINNINGS:  # no other line is a message, such as one of a log
                    self._take(line)
        except Exception as error:  # noqa: BLE001 - raised by `deliver`
            self._wake(error)
        pause_s = self._due_pause()
        if pause_s and self._transport is not None and not self._has_ended:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        if self._receive is not None and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def stop(self) -> None:
        """Stop reading, as if stdout had ended."""
        self.was_stopped = True
        self._waiting.clear()
        self._receive = None
        if self._transport is not None:
            self._transport.pause_reading()
        self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._wake()

    def _take(self, line: bytes) -> None:
        if self._receive is not None and len(line) <= LARGE_MESSAGE:
            for message in read_messages(line):
                self._receive(message)
            return
        self._waiting.append(line)
        self._receive = None
        if self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def _wake(self, error: Exception | None = None) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)


def _process_gone() -> ToolConnectionError:
    return ToolConnectionError("the MCP server's process has ended", sent=False)
