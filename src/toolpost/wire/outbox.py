"""WebSocket messages on their way out: many short ones of one turn of the loop leave in one system call."""

from __future__ import annotations

import asyncio
import os
import struct

from toolpost.wire.websocket_frames import MASKED, PING, PONG, TEXT, WHOLE

_SHORT = 16 * 1024
_ENOUGH = 64 * 1024  # what may wait for a slow server before senders have to wait too
_PACKET = 1400  # what fills one on most ways, so that waiting for more saves nothing
_EVERY = bytes(range(256))

_BRIEF = 126  # RFC 6455 §5.2: what is shorter says so in the second byte of its frame
_HEADS = [bytes((WHOLE | TEXT, MASKED | size)) + bytes(4) for size in range(_BRIEF)]
_REPEATED = [((1 << 32 * words) - 1) // 0xFFFF_FFFF << 16 for words in range((_BRIEF + 7) // 4 + 1)]
_MASKS = struct.Struct("<256I")


class Outbox:
    """Frames of one connection; those of a turn leave together when it is over, or as soon as they fill a packet.

    Who has to wait takes the `turn`, and waits for `room` in it; the transport says by `pause` and `resume` whether
    there is any.
    """

    __slots__ = (
        "_asked_at",
        "_frames",
        "_loop",
        "_masks",
        "_owed",
        "_size",
        "_transport",
        "_turning",
        "_written",
        "room",
        "turn",
    )

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        self._size = 0
        self._turning = False
        self._masks: list[int] = []
        self._owed: bytes | None = None
        self._written = 0
        self._asked_at: int | None = None
        self.turn = asyncio.Lock()
        self.room = asyncio.Event()
        self.room.set()

    def put(self, opcode: int, payload: bytes) -> bool:
        """Send a message, unless it is long, others wait, or too much of what was sent before it is still here."""
        size = len(payload)
        if size >= _SHORT or self._size + self._transport.get_write_buffer_size() >= _ENOUGH or self.turn.locked():
            return False
        frame = self._brief(payload) if size < _BRIEF and opcode == TEXT else _frame(opcode, payload)
        self._frames.append(frame)
        self._size += size
        if self._size > _PACKET:
            self.flush()
        elif not self._turning:
            self._begin()
        return True

    def answer(self, payload: bytes) -> None:
        """Send a pong, whoever waits; where there is no room, only the last of them (RFC 6455 §5.5.3)."""
        if not self.room.is_set():
            self._owed = payload
            return
        frame = _frame(PONG, payload)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size > _PACKET:
            self.flush()
        elif not self._turning:
            self._begin()

    def ask(self) -> None:
        """Send a ping, whoever waits."""
        self.write(PING, b"")
        unsent = self._transport.get_write_buffer_size()
        self._asked_at = self._written - unsent if unsent else None

    def is_taking(self) -> bool:
        """Whether the other side has taken some of what could not leave when it was asked."""
        if self._asked_at is None:  # what leaves may wait in this machine, for nobody
            return False
        return self._written - self._transport.get_write_buffer_size() > self._asked_at

    def pause(self) -> None:
        """There is no room."""
        self.room.clear()

    def resume(self) -> None:
        """There is room again, or will never be."""
        self.room.set()
        owed, self._owed = self._owed, None
        if owed is not None:
            self.write(PONG, owed)

    def write(self, opcode: int, payload: bytes) -> None:
        """Send a message of any length, behind what waits for the end of the turn."""
        self.flush()
        self._write(_frame(opcode, payload))

    def flush(self) -> None:
        """Send what waits for the end of the turn."""
        frames, self._frames, self._size = self._frames, [], 0
        if frames:
            self._write(b"".join(frames))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    def _begin(self) -> None:
        self._turning = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self.flush()

    def _brief(self, text: bytes) -> bytes:
        """A text in one frame, by one operation on one number.

        Where the mask goes there are zeros before it, so that the mask masks itself into its place.
        """
        masks, size = self._masks, len(text)
        if not masks:
            masks.extend(_MASKS.unpack(os.urandom(_MASKS.size)))
        words = (size + 7) // 4  # what is too much of them would be masked zeros, which are cut off
        framed = int.from_bytes(_HEADS[size] + text, "little") ^ masks.pop() * _REPEATED[words]
        return framed.to_bytes(words * 4 + 2, "little")[: size + 6]


def _frame(opcode: int, payload: bytes) -> bytes:
    """A message in one frame, masked as RFC 6455 §5.3 asks of clients."""
    size = len(payload)
    mask = os.urandom(4)
    body = _masked(payload, mask) if size < _SHORT else _masked_long(payload, mask)
    if size < _BRIEF:
        return bytes((WHOLE | opcode, MASKED | size)) + mask + body
    if size < 65_536:
        return bytes((WHOLE | opcode, MASKED | 126)) + size.to_bytes(2, "big") + mask + body
    return bytes((WHOLE | opcode, MASKED | 127)) + size.to_bytes(8, "big") + mask + body


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
