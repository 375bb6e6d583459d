"""Connections that are being closed while nobody waits for it: an answer that is here is not held up by a farewell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.wire.aiohttp_websockets import WebSocket

_MOST = 64


class Goodbyes:
    """The farewells of one source; each is short, and whoever closes the source waits for them."""

    def __init__(self) -> None:
        self._saying: set[asyncio.Task[None]] = set()

    def begin(self, socket: WebSocket) -> None:
        """Close a connection, by and by."""
        saying = asyncio.create_task(socket.close())
        self._saying.add(saying)
        saying.add_done_callback(self._saying.discard)

    async def room(self) -> None:
        """Wait while too many are under way: servers that are slow to part must not use up all sockets."""
        while len(self._saying) >= _MOST:
            await asyncio.wait(self._saying, return_when=asyncio.FIRST_COMPLETED)

    async def finished(self) -> None:
        """Wait for all of them."""
        await asyncio.gather(*self._saying, return_exceptions=True)
