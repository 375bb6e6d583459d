"""A place on this machine that a browser comes back to, open for as long as somebody waits there (RFC 8252)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import unquote

from toolpost.contracts.errors import ToolError

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
PATH = "/callback"
USUAL_PORT = 21917  # below those that systems hand out, so that it is mostly free
_MOST_BYTES = 32 * 1024
_REQUEST_S = 10.0
_GOODBYE_S = 2.0


class Answer(NamedTuple):
    """What the browser is told."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes = b""

    def written(self) -> bytes:
        """The answer as it goes over the wire."""
        fields = dict(self.headers) | {"Content-Length": str(len(self.body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        start = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
        return f"{start}{head}\r\n".encode("latin-1", "replace") + self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A browser that came back; it waits until it is told something. `name` is the last part of where it came to."""

    name: str
    query: str = field(repr=False)
    answered: asyncio.Future[Answer]

    def answer(self, answer: Answer) -> None:
        """Tell the browser."""
        if not self.answered.done():
            self.answered.set_result(answer)


class Loopback:
    """Listens at `port`, or where there is room; `prefer` is tried first."""

    def __init__(self, *, port: int = 0, prefer: int = 0) -> None:
        self._ports = [port] if port else [prefer, 0] if prefer else [0]
        self._visits: asyncio.Queue[Visit] = asyncio.Queue()
        self._talking: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for number in self._ports:
            with suppress(OSError):
                self._server = await asyncio.start_server(self._accept, HOST, number, limit=_MOST_BYTES)
                return self
        raise ToolError(
            f"port {self._ports[-1]} of this machine is taken; end what listens there, or give another with --port",
            code="port_taken",
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        if self._talking:  # a page that was just handed over shall arrive
            await asyncio.wait(self._talking, timeout=_GOODBYE_S)
        for task in self._talking:
            task.cancel()

    @property
    def port(self) -> int:
        """Where it listens."""
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    @property
    def url(self) -> str:
        """What the addresses begin with to which browsers are to be sent; a name follows."""
        return loopback_url(self.port)

    async def visit(self) -> Visit:
        """The next browser that comes to a name below the path."""
        return await self._visits.get()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this as a task
        self._talking.add(task)
        try:
            answer = await self._heard(reader)
            if answer is not None:
                writer.write(answer.written())
                await asyncio.wait_for(writer.drain(), _GOODBYE_S)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the browser left, or nobody waits any more
        finally:
            self._talking.discard(task)
            writer.close()

    async def _heard(self, reader: asyncio.StreamReader) -> Answer | None:
        """What to tell a browser; its request must be small and come at once."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            return Answer(431, ())
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        path, _, query = target.partition("?")
        if not path.startswith(f"{PATH}/"):
            return Answer(404, ())
        if method != "GET":
            return Answer(405, (("Allow", "GET"),))
        name = unquote(path.removeprefix(f"{PATH}/"))
        visit = Visit(name=name, query=query, answered=asyncio.get_running_loop().create_future())
        self._visits.put_nowait(visit)
        return await visit.answered


def loopback_url(port: int) -> str:
    """The address of such a place, to which a name is added."""
    return f"http://{HOST}:{port}{PATH}"
