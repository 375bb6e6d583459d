"""WebSocket messages on their way out: many short ones of one turn of the loop leave in one system call."""

from __future__ import annotations

import asyncio
import os

_SHORT = 16 * 1024
_ENOUGH = 64 * 1024  # what may wait for a slow server before senders have to wait too
_WHOLE = 0x80  # RFC 6455 §5.2: the message is in this frame
_MASKED = 0x80
_EVERY = bytes(range(256))


class Outbox:
    """Frames of one connection; the first of a turn leaves at once, the others together when the turn is over."""

    __slots__ = ("_frames", "_loop", "_size", "_transport", "_turning")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._size = 0
        self._turning = False

    def put(self, opcode: int, payload: bytes) -> bool:
        """Send a message, unless it is long or too much of what was sent before it is still here."""
        transport, size = self._transport, len(payload)
        if size >= _SHORT or self._size + transport.get_write_buffer_size() >= _ENOUGH:
            return False
        frame = _frame(opcode, payload)
        if self._turning:
            self._frames.append(frame)
            self._size += size
        else:
            self._turning = True
            self._loop.call_soon(self._turn)
            transport.write(frame)
        return True

    def write(self, opcode: int, payload: bytes) -> None:
        """Send a message of any length, behind what waits for the end of the turn."""
        self.flush()
        self._transport.write(_frame(opcode, payload))

    def flush(self) -> None:
        """Send what waits for the end of the turn."""
        frames, self._frames, self._size = self._frames, [], 0
        if frames and not self._transport.is_closing():
            self._transport.write(b"".join(frames))

    def _turn(self) -> None:
        self._turning = False
        self.flush()


def _frame(opcode: int, payload: bytes) -> bytes:
    """A message in one frame, masked as RFC 6455 §5.3 asks of clients."""
    size = len(payload)
    mask = os.urandom(4)
    body = _masked(payload, mask) if size < _SHORT else _masked_long(payload, mask)
    if size < 126:
        return bytes((_WHOLE | opcode, _MASKED | size)) + mask + body
    if size < 65_536:
        return bytes((_WHOLE | opcode, _MASKED | 126)) + size.to_bytes(2, "big") + mask + body
    return bytes((_WHOLE | opcode, _MASKED | 127)) + size.to_bytes(8, "big") + mask + body


def _masked(payload: bytes, mask: bytes) -> bytes:
    """Every byte with its byte of the mask, by one operation on one number."""
    size = len(payload)
    stretched = mask * (size // 4 + 1)  # what is too much of it would be masked zeros, which are cut off
    masked = int.from_bytes(payload, "little") ^ int.from_bytes(stretched, "little")
    return masked.to_bytes(len(stretched), "little")[:size]


def _masked_long(payload: bytes, mask: bytes) -> bytes:
    """The same for as many bytes as there are: every fourth by one table."""
    masked = bytearray(payload)
    for place, byte in enumerate(mask):
        masked[place::4] = masked[place::4].translate(_masked(_EVERY, bytes((byte,)) * 4))
    return bytes(masked)
