"""A web site on loopback that says exactly what a test tells it to say, byte by byte."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it came in."""

    method: str
    path: str
    headers: Pairs
    body: bytes = b""
    server_name: str | None = None

    def all(self, name: str) -> list[str]:
        return [value for written, value in self.headers if written.lower() == name.lower()]


def reply(status: int = 200, body: bytes = b"", *, framed: bool = True, **fields: str) -> bytes:
    """An answer as bytes; `content_type="text/plain"` is a header field."""
    pairs = [(name.replace("_", "-"), value) for name, value in fields.items()]
    if framed:
        pairs.append(("content-length", str(len(body))))
    head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
    return f"HTTP/1.1 {status} Because\r\n{head}\r\n".encode("utf-8", "surrogatepass") + body


_FINE = reply()
Answer = bytes | Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Site:
    """Answers every request with the same bytes, or as a function does; keeps connections open until told otherwise."""

    answer: Answer = _FINE
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    port: int = 0
    requests: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def connections(self) -> int:
        return len(self._readers)

    @property
    def last(self) -> Received:
        return self.requests[-1]

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: list[asyncio.StreamReader] = []
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self.tls, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def all_closed(self, within_s: float = 30.0) -> bool:
        """Whether every client went away."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._open():
                    await asyncio.sleep(0.005)
        return not self._open()

    def _open(self) -> list[asyncio.StreamReader]:
        return [reader for reader in self._readers if not reader.at_eof() and reader.exception() is None]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._readers.append(reader)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while received := await _receive(reader, writer):
                self.requests.append(received)
                await self._say(received, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            self._tasks.discard(task)
            reader.feed_eof()
            writer.transport.abort()

    async def _say(self, received: Received, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.answer, bytes):
            writer.write(self.answer)
            await writer.drain()
        else:
            await self.answer(received, writer)


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = start.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    fields = {name.lower(): value for name, value in headers}
    if fields.get("transfer-encoding") == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(fields.get("content-length", "0")))
    tls = writer.get_extra_info("ssl_object")
    name = getattr(tls, "named", None) if tls else None
    return Received(method=method, path=path, headers=headers, body=body, server_name=name)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


@contextlib.contextmanager
def site_in_thread(answer: Answer = _FINE) -> Iterator[Site]:
    """A site on a loop of its own, for what runs a loop itself."""
    loop, site = asyncio.new_event_loop(), Site(answer)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(site.__aenter__(), loop).result(30)
        yield site
        asyncio.run_coroutine_threadsafe(site.__aexit__(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
