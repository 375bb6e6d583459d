"""One call on a connection of its own: a message, and the answer or the answers to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolTimeoutError
from toolpost.sources.websocket.answers import result_of
from toolpost.sources.websocket.messages import DECODERS, ENCODERS
from toolpost.sources.websocket.streams import NOBODYS, Stream
from toolpost.wire.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.sources.websocket.correlation import Correlation
    from toolpost.sources.websocket.goodbyes import Goodbyes
    from toolpost.sources.websocket.streams import Limits, Tell
    from toolpost.wire.aiohttp_websockets import WebSocket

    Connect = Callable[[], Awaitable[WebSocket]]

ONLY = 1  # the id of the one message on its connection


class Exchange:
    """How a source talks on a connection that one call has for itself."""

    def __init__(self, form: str, correlation: Correlation | None, goodbyes: Goodbyes) -> None:
        self._encode = ENCODERS[form]
        self._decode_any = DECODERS[form]
        self._correlation = correlation
        self._goodbyes = goodbyes
        self._deadlines = Deadlines()

    async def ask(self, connect: Connect, message: str, *, within_s: float) -> Any:
        """The first answer."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._goodbyes.room()
        socket = await connect()
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return result_of(self._decode_any(await socket.receive()))
        except TimeoutError:
            raise ToolTimeoutError(f"no answer within {within_s:g} s", timeout_ms=within_s * 1000) from None
        finally:
            self._goodbyes.begin(socket)

    async def collect(self, connect: Connect, message: str, *, limits: Limits, tell: Tell, within_s: float) -> Any:
        """All answers until a limit, as a list."""
        sent = self._encode(message)
        deadline = asyncio.get_running_loop().time() + within_s
        await self._goodbyes.room()
        socket = await connect()
        stream = Stream(socket, limits, self._decode, tell)
        try:
            with self._deadlines.until(deadline):
                await socket.send(sent)
                return await stream.collect()
        except TimeoutError:
            text = f"the stream did not end within {within_s:g} s; {stream.came}. max_seconds lets it end by itself"
            raise ToolTimeoutError(text, timeout_ms=within_s * 1000) from None
        finally:
            self._goodbyes.begin(socket)

    def _decode(self, message: str | bytes) -> Any:
        """An answer to the one message; where answers bring ids, others are for nobody."""
        answer = self._decode_any(message)
        if self._correlation is None or self._correlation.taken(answer) == ONLY:
            return answer
        return NOBODYS
