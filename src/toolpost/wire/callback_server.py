"""Loopback HTTP server that receives OAuth redirects of a browser while a sign-in waits (RFC 8252)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple, Self
from urllib.parse import unquote

from msgspec import Struct

from toolpost.contracts.errors import ToolError
from toolpost.contracts.records import represent

HOST = "127.0.0.1"
PATH = "/callback"
DEFAULT_PORT = 21917  # usually free, because it is below the ephemeral ports
_MAX_BYTES = 32 * 1024
_REQUEST_S = 10.0
_CLOSE_S = 2.0


class CallbackResponse(NamedTuple):
    """The response to a browser."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes = b""

    def encode(self) -> bytes:
        fields = dict(self.headers) | {"Content-Length": str(len(self.body)), "Connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        start = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
        return f"{start}{head}\r\n".encode("latin-1", "replace") + self.body


class CallbackRequest(Struct, frozen=True, kw_only=True):
    """The redirect of a browser, which waits for `respond`; `name` is the last part of the path."""

    name: str
    query: str
    response: asyncio.Future[CallbackResponse]

    def __repr__(self) -> str:
        return represent(self, without=("query",))

    def respond(self, response: CallbackResponse) -> None:
        """Send a response, once."""
        if not self.response.done():
            self.response.set_result(response)


class CallbackServer:
    """Server on 127.0.0.1 at `port`, or at a free port; `prefer` is tried first."""

    def __init__(self, *, port: int = 0, prefer: int = 0) -> None:
        self._ports = [port] if port else [prefer, 0] if prefer else [0]
        self._requests: asyncio.Queue[CallbackRequest] = asyncio.Queue()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for number in self._ports:
            with suppress(OSError):
                self._server = await asyncio.start_server(self._accept, HOST, number, limit=_MAX_BYTES)
                return self
        raise ToolError(
            f"port {self._ports[-1]} of this machine is in use; end its program, or choose another port with --port",
            code="port_taken",
        )

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        if self._serving:  # lets a response that was just set be sent
            await asyncio.wait(self._serving, timeout=_CLOSE_S)
        for task in self._serving:
            task.cancel()

    @property
    def port(self) -> int:
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    @property
    def url(self) -> str:
        """The base URL of redirects; a name follows."""
        return callback_server_url(self.port)

    async def receive(self) -> CallbackRequest:
        """Wait for the next redirect to a name below the path."""
        return await self._requests.get()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this as a task
        self._serving.add(task)
        try:
            response = await self._handle(reader)
            if response is not None:
                writer.write(response.encode())
                await asyncio.wait_for(writer.drain(), _CLOSE_S)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the browser disconnected, or the caller no longer waits
        finally:
            self._serving.discard(task)
            writer.close()

    async def _handle(self, reader: asyncio.StreamReader) -> CallbackResponse | None:
        """Read a request, which must be small and arrive immediately, and wait for its response."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            return CallbackResponse(431, ())
        method, _, rest = head.decode("latin-1").partition(" ")
        target = rest.partition(" ")[0]
        path, _, query = target.partition("?")
        if not path.startswith(f"{PATH}/"):
            return CallbackResponse(404, ())
        if method != "GET":
            return CallbackResponse(405, (("Allow", "GET"),))
        name = unquote(path.removeprefix(f"{PATH}/"))
        request = CallbackRequest(name=name, query=query, response=asyncio.get_running_loop().create_future())
        self._requests.put_nowait(request)
        return await request.response


def callback_server_url(port: int) -> str:
    """Return the base URL of redirects at a port; a name follows."""
    return f"http://{HOST}:{port}{PATH}"
