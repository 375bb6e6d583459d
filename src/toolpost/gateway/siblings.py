"""Worker processes of one gateway among themselves: requests go to the worker that can answer them.

All of them take connections from the same port and work on the same store. What lives in the memory of one worker
alone are sessions of older MCP clients, counters, and sources that were added while it runs.
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
from toolpost.stores.liveness import try_lock
from toolpost.wire.unix_http import UnixHttpError, unix_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolpost.wire.unix_http import StreamedReply

_SESSION = b"mcp-session-id"
_CLIENT = b"x-toolpost-client"  # the address of a client whose request was passed on; from siblings alone
_MOST_BODY = 4_100_000
_ASK_S = 10.0
_MARK = "."
# RFC 9110, 7.6.1; the server adds the last two by itself.
_OF_A_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"date", b"server"})
_log = logging.getLogger("toolpost.gateway")


class WorkerPlace(NamedTuple):
    """Which worker of how many a process is, and the folder with the socket of each."""

    number: int
    workers: int
    folder: str

    def socket_of(self, number: int) -> Path:
        """Return where a worker listens to its siblings."""
        return Path(self.folder) / f"{number}.sock"

    def lock_of(self, number: int) -> Path:
        """Return the file that a worker has locked while it serves; the kernel unlocks it when the worker dies."""
        return Path(self.folder) / f"{number}.serving"


class Siblings:
    """The other workers, as one of them sees them. `token` is the operator's, for what a worker asks by itself."""

    def __init__(self, place: WorkerPlace, token: str) -> None:
        self._place = place
        self._bearer = f"Bearer {token}"
        self.number = place.number
        self._numbers = {b"%d" % number: number for number in range(place.workers)}
        self.rates = Path(place.folder) / "rates"  # the file by which all workers count requests

    @property
    def mark(self) -> str:
        """What the ids of this worker's sessions end with."""
        return f"{_MARK}{self.number}"

    def routed(self, app: ASGIApp, admits: Callable[[Scope], Awaitable[bool]]) -> ASGIApp:
        """Return the application for all requests: those for a session of another worker go there.

        A request that `admits` does not let through is refused by `app` itself, before its body is read.
        """

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            is_passed_on = self._admit(scope)
            if not scope["path"].startswith("/mcp"):
                await app(scope, receive, send)
                return
            owner = self._owner_of(scope)
            if owner != self.number and not is_passed_on and await admits(scope):
                await self._pass_on(owner, scope, receive, send)
                return
            _without_mark(scope, self.mark)
            await app(scope, receive, self._marking(send))

        return call

    def _admit(self, scope: Scope) -> bool:
        """Take in who sends a request; return whether a sibling does, which no client can claim."""
        headers = dict(scope["headers"])
        is_sibling: bool = scope["server"] == (str(self._place.socket_of(self.number)), None)
        if is_sibling:
            scope["client"] = (headers.get(_CLIENT, b"").decode("latin-1"), 0)
        scope["headers"] = [one for one in scope["headers"] if one[0] != _CLIENT]
        scope[FROM_SIBLING] = is_sibling
        return is_sibling

    def _owner_of(self, scope: Scope) -> int:
        """Return the worker that has the session of a request; this one, if the request names none."""
        headers = dict(scope["headers"])
        number = headers.get(_SESSION, b"").rpartition(_MARK.encode())[2]
        return self._numbers.get(number, self.number)

    def _marking(self, send: Send) -> Send:
        """Return a sender that marks the id of a session as this worker's."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                mark = self.mark.encode()
                headers = [
                    (name, value + mark if name.lower() == _SESSION else value) for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        return marked

    async def _pass_on(self, owner: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Let another worker answer a request; it ends when the client goes away."""
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
            response = ProblemResponse(503, "worker_gone", "the worker of this session starts again", headers=headers)
            with suppress(RuntimeError):  # a response may have begun
                await response(scope, receive, send)

    async def _relay(self, owner: int, scope: Scope, body: bytes, send: Send) -> None:
        client: Any = scope["client"]
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_A_HOP]
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
        """Let the others know that this worker answers them."""
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
        """Return how sources were changed before this worker was started, as the one tells it that saw most of it.

        A sibling that is only starting is not asked: it knows nothing, and would wait for this one.
        """
        serving = [number for number in self._others if self._is_serving(number)]
        replies = [ChangedSources(**reply) for reply in await self._ask_all(serving, "GET", SOURCE_CHANGES)]
        return max([*replies, ChangedSources()], key=lambda known: known.count)

    async def ask(self, method: str, target: str, value: Any = None) -> list[Any]:
        """Send a request of this worker's own to all others, and return what those say that answer with JSON."""
        return await self._ask_all(self._others, method, target, value)

    @property
    def _others(self) -> list[int]:
        return [number for number in range(self._place.workers) if number != self.number]

    async def _ask_all(self, numbers: Sequence[int], method: str, target: str, value: Any = None) -> list[Any]:
        replies = await asyncio.gather(*(self._ask(number, method, target, value) for number in numbers))
        return [reply for reply in replies if reply is not None]

    async def _ask(self, number: int, method: str, target: str, value: Any) -> Any:
        body = b"" if value is None else json.dumps(value).encode()
        headers = [
            ("Host", "localhost"),
            ("Authorization", self._bearer),
            ("Content-Type", "application/json"),
            (_CLIENT.decode(), "127.0.0.1"),
        ]
        try:
            async with unix_request(
                self._place.socket_of(number), method, target, headers=headers, body=body, timeout_s=_ASK_S
            ) as reply:
                text = b"".join([chunk async for chunk in reply.chunks])
        except UnixHttpError as error:
            _log.warning("worker %d did not answer %s %s: %s", number, method, target, error)
            return None
        if reply.status >= 300:
            _log.warning("worker %d refused %s %s: HTTP %d", number, method, target, reply.status)
            return None
        return json.loads(text) if text else None


def _without_mark(scope: Scope, mark: str) -> None:
    """Take the mark off the id of a session."""
    suffix = mark.encode()
    scope["headers"] = [
        (name, value.removesuffix(suffix) if name == _SESSION else value) for name, value in scope["headers"]
    ]


async def _read(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large."""
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
    headers = [(name.lower(), value) for name, value in reply.headers if name.lower() not in _OF_A_HOP]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    async for chunk in reply.chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
