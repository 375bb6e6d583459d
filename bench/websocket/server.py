"""A minimal WebSocket server by hand, so that what a server costs does not hide what a client costs.

`python -m bench.websocket.server` prints its address and says every message again. Messages are whole and shorter
than 64 KiB; nothing is compressed, and asyncio sets TCP_NODELAY on each connection.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sys
from typing import Any

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_HEAD = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n\r\n"
)
_TEXT, _CLOSE, _PING, _PONG = 0x81, 0x88, 0x89, 0x8A
_MASK = 4


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self) -> None:
        self._waiting = b""
        self._open = False
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        if not self._open:
            self._shake_hands()
            return
        said = bytearray()
        while (frame := _frame(self._waiting)) is not None:
            kind, payload, end = frame
            self._waiting = self._waiting[end:]
            said += _framed(kind, payload)
        self._transport.write(bytes(said))

    def _shake_hands(self) -> None:
        head, found, self._waiting = self._waiting.partition(b"\r\n\r\n")
        if not found:
            self._waiting = head
            return
        fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        written = head[head.lower().index(b"sec-websocket-key: ") + 19 :].split(b"\r\n")[0]
        assert b"upgrade" in fields
        accepted = base64.b64encode(hashlib.sha1(written + _GUID, usedforsecurity=False).digest())
        self._transport.write(_HEAD % accepted)
        self._open = True


def _frame(data: bytes) -> tuple[int, bytes, int] | None:
    """The kind and the payload of the first frame, and where it ends; None when not all of it is here."""
    if len(data) < 2:
        return None
    size, at = data[1] & 0x7F, 2
    if size == 126:
        size, at = int.from_bytes(data[2:4], "big"), 4
    end = at + _MASK + size
    if len(data) < end:
        return None
    mask = data[at : at + _MASK] * (size // _MASK + 1)
    payload = int.from_bytes(data[at + _MASK : end], "big") ^ int.from_bytes(mask[:size], "big")
    return data[0], payload.to_bytes(size, "big"), end


def _framed(kind: int, payload: bytes) -> bytes:
    if kind not in {_TEXT, _CLOSE, _PING}:
        return b""
    kind = _PONG if kind == _PING else kind
    if len(payload) < 126:
        return bytes((kind, len(payload))) + payload
    return bytes((kind, 126)) + len(payload).to_bytes(2, "big") + payload


async def serve() -> None:
    """Serve on a free port of loopback until stdin ends, so that no server outlives who started it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0)
    print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
