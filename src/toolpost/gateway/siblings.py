"""Requests between the worker processes of one gateway.

All workers accept connections from the same port and use the same store. Session-based MCP clients, counters, and
sources added at runtime are in the memory of one worker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.gateway.problems import ProblemResponse
from toolpost.gateway.source_changes import FROM_SIBLING, SOURCE_CHANGES, ChangedSources
from toolpost.stores.durable_files import try_lock
from toolpost.wire.unix_http import UnixHttpError, unix_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolpost.wire.unix_http import StreamedReply

_SESSION = b"mcp-session-id"
_CLIENT = b"x-toolpost-client"  # the client's address in a forwarded request; accepted only from siblings
_MOST_BODY = 4_100_000
_REQUEST_S = 10.0
_SUFFIX = "."
# RFC 9110, 7.6.1; the server adds the last two automatically.
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"date", b"server"})
_log = logging.getLogger("toolpost.gateway")


class WorkerPlace(NamedTuple):
    """The number of a worker, the number of all workers, and the folder with their sockets."""

    number: int
    workers: int
    folder: str

    def socket_of(self, number: int) -> Path:
        """Return the socket on which a worker listens for its siblings."""
        return Path(self.folder) / f"{number}.sock"

    def lock_of(self, number: int) -> Path:
        """Return the file that a worker locks while it serves; the kernel unlocks it if the worker is killed."""
        return Path(self.folder) / f"{number}.serving"


class Siblings:
    """The other workers of the gateway; `token` is the operator's, for requests of this worker."""

    def __init__(self, place: WorkerPlace, token: str) -> None:
        self._place = place
        self._bearer = f"Bearer {token}"
        self.number = place.number
        self.workers = place.workers
        self._numbers = {b"%d" % number: number for number in range(place.workers)}
        self._suffix = f"{_SUFFIX}{self.number}".encode()  # of this worker's session IDs

    def routed(self, app: ASGIApp, admits: Callable[[Scope], Awaitable[bool]]) -> ASGIApp:
        """Return an application that forwards requests for sessions of other workers, and passes all others to `app`.

        `app` rejects requests that fail `admits`, before their body is read.
        """

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            is_forwarded = self._admit(scope)
            if not scope["path"].startswith("/mcp"):
                await app(scope, receive, send)
                return
            owner = self._owner_of(scope)
            if owner != self.number and not is_forwarded and await admits(scope):
                await self._forward(owner, scope, receive, send)
                return
            scope["headers"] = [
                (name, value.removesuffix(self._suffix) if name == _SESSION else value)
                for name, value in scope["headers"]
            ]
            await app(scope, receive, self._with_suffix(send))

        return call

    def _admit(self, scope: Scope) -> bool:
        """Record whether a sibling sent the request, which clients cannot forge, and return it."""
        headers = dict(scope["headers"])
        is_sibling: bool = scope["server"] == (str(self._place.socket_of(self.number)), None)
        if is_sibling:
            scope["client"] = (headers.get(_CLIENT, b"").decode("latin-1"), 0)
        scope["headers"] = [one for one in scope["headers"] if one[0] != _CLIENT]
        scope[FROM_SIBLING] = is_sibling
        return is_sibling

    def _owner_of(self, scope: Scope) -> int:
        """Return the worker that owns the session of a request; this worker if it has no session."""
        headers = dict(scope["headers"])
        number = headers.get(_SESSION, b"").rpartition(_SUFFIX.encode())[2]
        return self._numbers.get(number, self.number)

    def _with_suffix(self, send: Send) -> Send:
        """Return a sender that adds this worker's suffix to session IDs."""

        async def send_with_suffix(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (name, value + self._suffix if name.lower() == _SESSION else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        return send_with_suffix

    async def _forward(self, owner: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to another worker, until the response ends or the client disconnects."""
        body = await _read(receive)
        if body is None:
            await ProblemResponse(413, "body_too_large", "the body is too large")(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        answering = loop.create_task(self._relay(owner, scope, body, send))
        leaving = loop.create_task(_until_gone(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, leaving):
                task.cancel()
            ended = await asyncio.gather(answering, leaving, return_exceptions=True)
        if isinstance(ended[0], UnixHttpError):
            _log.warning("worker %d did not answer: %s", owner, ended[0])
            headers = {"Retry-After": "1"}
            response = ProblemResponse(503, "worker_gone", "the worker of this session is restarting", headers=headers)
            with suppress(RuntimeError):  # a response may have started
                await response(scope, receive, send)

    async def _relay(self, owner: int, scope: Scope, body: bytes, send: Send) -> None:
        client: Any = scope["client"]
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP]
        given = [*headers, (_CLIENT, str(client[0]).encode())]
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        async with unix_request(
            self._place.socket_of(owner),
            scope["method"],
            target,
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in given],
            body=body,
        ) as reply:
            await _send_reply(reply, send)

    @contextmanager
    def serving(self) -> Generator[None]:
        """Hold the lock that shows that this worker responds to its siblings."""
        with self._place.lock_of(self.number).open("wb") as file:
            try_lock(file.fileno(), shared=False)
            yield

    def _is_serving(self, number: int) -> bool:
        try:
            with self._place.lock_of(number).open("rb") as file:
                return not try_lock(file.fileno(), shared=True)
        except FileNotFoundError:
            return False

    async def changed_sources(self) -> ChangedSources:
        """Return the changes of sources before this worker started, from the sibling that has seen most of them.

        A sibling that is still starting is skipped: it knows no changes, and would wait for this worker.
        """
        serving = [number for number in self._others if self._is_serving(number)]
        replies = [ChangedSources(**reply) for reply in await self._request_all(serving, "GET", SOURCE_CHANGES)]
        return max([*replies, ChangedSources()], key=lambda known: known.count)

    async def broadcast(self, method: str, target: str, value: Any = None) -> list[Any]:
        """Send a request to all other workers, and return the JSON of those that respond."""
        return await self._request_all(self._others, method, target, value)

    @property
    def _others(self) -> list[int]:
        return [number for number in range(self._place.workers) if number != self.number]

    async def _request_all(self, numbers: Sequence[int], method: str, target: str, value: Any = None) -> list[Any]:
        replies = await asyncio.gather(*(self._request(number, method, target, value) for number in numbers))
        return [reply for reply in replies if reply is not None]

    async def _request(self, number: int, method: str, target: str, value: Any) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        headers = [
            ("Host", "localhost"),
            ("Authorization", self._bearer),
            ("Content-Type", "application/json"),
            (_CLIENT.decode(), "127.0.0.1"),
        ]
        try:
            async with unix_request(
                self._place.socket_of(number), method, target, headers=headers, body=body, timeout_s=_REQUEST_S
            ) as reply:
                text = b"".join([chunk async for chunk in reply.chunks])
        except UnixHttpError as error:
            _log.warning("worker %d did not answer %s %s: %s", number, method, target, error)
            return None
        if reply.status >= 300:
            _log.warning("worker %d refused %s %s: HTTP %d", number, method, target, reply.status)
            return None
        return json.loads(text) if text else None


async def _read(receive: Receive) -> bytes | None:
    """Return the body of a request, or None if it is too large."""
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _MOST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_reply(reply: StreamedReply, send: Send) -> None:
    headers = [(name.lower(), value) for name, value in reply.headers if name.lower() not in _HOP_BY_HOP]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    async for chunk in reply.chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
