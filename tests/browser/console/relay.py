"""A connection between a browser and a gateway that a test can cut and mend."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

CHUNK = 65_536


class Relay:
    """Passes bytes on to a gateway; `cut` ends every connection, and new ones until `mend` as well.

    With `swallow` requests still reach the gateway, but nothing that it sends reaches the browser.
    """

    def __init__(self, gateway: str) -> None:
        self._target = urlsplit(gateway)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._swallows = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = self._swallows = False

    def lead_to(self, gateway: str) -> None:
        """Lead new connections to another gateway, and end those to the old one."""
        self._target = urlsplit(gateway)
        for writer in self._writers:
            writer.transport.abort()

    def swallow(self) -> None:
        self._swallows = True

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection(self._target.hostname, self._target.port)
        for one in (writer, there_writer):
            self._writers.add(one)
        for task in (
            asyncio.create_task(self._pass_on(reader, there_writer, to_gateway=True)),
            asyncio.create_task(self._pass_on(there_reader, writer, to_gateway=False)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_gateway: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if to_gateway or not self._swallows:
                    writer.write(data)
                    await writer.drain()
        writer.close()
        self._writers.discard(writer)


@asynccontextmanager
async def relayed(gateway: str) -> AsyncIterator[Relay]:
    """Serve a relay to a gateway on a free port."""
    relay = Relay(gateway)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
