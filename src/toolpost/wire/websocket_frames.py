"""WebSocket frames that come: bytes taken apart into messages, as RFC 6455 and RFC 7692 say."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Take = Callable[[str | bytes], object]
    Control = Callable[[int, bytes], None]

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
WHOLE: Final = 0x80  # no more frames of the message follow
MASKED: Final = 0x80
NORMAL, PROTOCOL_ERROR, INVALID_DATA, TOO_BIG = 1000, 1002, 1007, 1009

_DEFLATED = 0x40
_RESERVED = 0x70
_OPCODE = 0x0F
_CONTROL = 0x08
_LONGEST_CONTROL = 125
_TURN = range(512)  # frames: as many as take a few milliseconds, whoever takes them
_WHOLE_TEXT = WHOLE | TEXT
_FLUSHED = b"\x00\x00\xff\xff"  # RFC 7692 §7.2.1: what every compressed message ends with, and nobody sends
_FINISHED = (_FLUSHED, b"\x00" + _FLUSHED)  # RFC 7692 §7.2.3.4: what may stand behind a final block
_CLOSE_CODES = (range(1000, 1004), range(1007, 1015), range(3000, 5000))  # RFC 6455 §7.4


class WrongFrameError(Exception):
    """What came breaks the rules, or is too large; `code` is what the other side is told of it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Frames:
    """Hands out messages as soon as they are whole, and the control frames between them.

    `limit` is for a message, after decompression. While `held` is set, by whoever takes a message or a control
    frame, the rest waits, and so does what is too much for one turn; it is gone on with by feeding.
    """

    __slots__ = (
        "_inflater",
        "_is_deflated",
        "_kind",
        "_limit",
        "_parts",
        "_rest",
        "_short",
        "_wanted",
        "control",
        "held",
        "take",
    )

    def __init__(self, take: Take, control: Control, *, limit: int, deflated: bool) -> None:
        self.take = take
        self.control = control
        self.held = False
        self._limit = limit
        self._short = min(limit, 125)
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        self._kind = CONTINUED  # of the message whose frames are coming, if one is
        self._is_deflated = False
        self._parts = bytearray()
        self._rest = bytearray()
        self._wanted = 0

    def feed(self, data: bytes) -> bool:
        """Take more bytes, and tell whether they were too much for one turn; a WrongFrameError ends all reading."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return False
            data = bytes(self._rest)
            self._rest.clear()
        try:
            at = self._read(data)
        except UnicodeDecodeError as wrong:
            raise WrongFrameError(INVALID_DATA, f"a text that is not UTF-8 ({wrong.reason})") from None
        if at < len(data):
            self._rest += data[at:]
        return not self._wanted

    def _read(self, data: bytes) -> int:
        """Hand out what is whole; gives where the rest begins, and notes how much there has to be of it."""
        at, end = 0, len(data)
        take, short, self._wanted = self.take, self._short, 2
        for _ in _TURN:
            if end - at < 2 or self.held:
                break
            size = data[at + 1]
            if data[at] == _WHOLE_TEXT and size <= short and not self._kind:
                start = at + 2
                after = start + size
                if after > end:
                    self._wanted = after - at
                    break
                take(data[start:after].decode())
            elif (after := self._any(data, at)) == at:
                break
            at = after
        else:
            self._wanted = 0
        return at

    def _any(self, data: bytes, at: int) -> int:
        """Hand out a frame of any kind; gives where the next begins, or `at` again when it is not all here."""
        first, size = data[at], data[at + 1]
        if wrong := self._wrong(first, size):
            raise WrongFrameError(PROTOCOL_ERROR, wrong)
        start = at + 2
        if size > _LONGEST_CONTROL:
            start += 2 if size == 126 else 8
            if start > len(data):
                self._wanted = start - at
                return at
            size = int.from_bytes(data[at + 2 : start], "big")
        if not first & _CONTROL and size + len(self._parts) > self._limit:
            raise self._too_big()
        after = start + size
        if after > len(data):
            self._wanted = after - at
            return at
        self._hand_out(first, data[start:after])
        return after

    def _wrong(self, first: int, size: int) -> str:
        """Which rule the head of a frame breaks; nothing if none."""
        opcode, reserved = first & _OPCODE, first & _RESERVED
        if size & MASKED:
            return "a masked frame, which only clients send"
        if reserved and (reserved != _DEFLATED or self._inflater is None or opcode not in {TEXT, BINARY}):
            return "a frame with reserved bits"
        if opcode in {TEXT, BINARY}:
            return "a message within another" if self._kind else ""
        if opcode == CONTINUED:
            return "" if self._kind else "a continuation of nothing"
        if opcode not in {CLOSE, PING, PONG}:
            return f"a frame of an unknown kind ({opcode})"
        return "" if first & WHOLE and size <= _LONGEST_CONTROL else "a control frame that is long or in parts"

    def _hand_out(self, first: int, payload: bytes) -> None:
        opcode = first & _OPCODE
        if opcode & _CONTROL:
            self.control(opcode, payload)
            return
        if opcode != CONTINUED:
            self._kind, self._is_deflated = opcode, bool(first & _DEFLATED)
        if not first & WHOLE:
            self._parts += payload
            return
        if self._parts:
            payload = bytes(self._parts) + payload
            self._parts.clear()
        if self._is_deflated:
            payload = self._inflated(payload)
        kind, self._kind = self._kind, CONTINUED
        self.take(payload.decode() if kind == TEXT else payload)

    def _inflated(self, payload: bytes) -> bytes:
        """A message as it was before it was compressed; what came before it is known to it."""
        inflater = self._inflater or zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            inflated = inflater.decompress(payload + _FLUSHED, self._limit + 1)
        except zlib.error as wrong:
            raise WrongFrameError(INVALID_DATA, f"a message that cannot be decompressed ({wrong})") from None
        if len(inflated) > self._limit:
            raise self._too_big()
        if inflater.eof:
            if inflater.unused_data not in _FINISHED:
                raise WrongFrameError(INVALID_DATA, "a compressed message with something behind its end")
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        return inflated

    def _too_big(self) -> WrongFrameError:
        return WrongFrameError(TOO_BIG, f"a message of more than {self._limit:,} bytes")


def farewell_of(payload: bytes) -> tuple[int, str]:
    """The code and the reason in a close frame; 0 when there is no code."""
    if not payload:
        return 0, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not any(code in codes for codes in _CLOSE_CODES):
        raise WrongFrameError(PROTOCOL_ERROR, "a close frame whose code is none")
    return code, payload[2:].decode()
