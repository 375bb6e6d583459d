"""Frames that servers send: messages in any pieces, and what is no message."""

import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.wire.websocket_frames import Frames, WrongFrameError

TEXT, BINARY, CONTINUED, PING = 1, 2, 0, 9
Message = str | bytes


def frame(opcode: int, payload: bytes, *, fin: bool = True, reserved: int = 0) -> bytes:
    first, size = (0x80 if fin else 0) | reserved | opcode, len(payload)
    if size < 126:
        return bytes((first, size)) + payload
    if size < 65_536:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload


def framed(message: Message, cuts: list[int]) -> bytes:
    """A message in as many frames as it is cut into, with a ping before each."""
    opcode, payload = (TEXT, message.encode()) if isinstance(message, str) else (BINARY, message)
    places = [0, *sorted(cut % (len(payload) + 1) for cut in cuts), len(payload)]
    pieces = [payload[start:end] for start, end in pairwise(places)]
    kinds = [opcode] + [CONTINUED] * (len(pieces) - 1)
    last = len(pieces) - 1
    return b"".join(
        frame(PING, b"?") + frame(kind, piece, fin=place == last)
        for place, (kind, piece) in enumerate(zip(kinds, pieces, strict=True))
    )


class Reader:
    """What is read of a stream; `limit` holds it after so many messages, until it is told to go on."""

    def __init__(self, *, limit: int = 1_000_000, deflated: bool = False, at_once: int = 1_000) -> None:
        self.messages: list[Message] = []
        self.controls: list[tuple[int, bytes]] = []
        self._at_once = at_once
        self._frames = Frames(self._take, lambda *told: self.controls.append(told), limit=limit, deflated=deflated)

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        self._frames.held = len(self.messages) % self._at_once == 0

    def read(self, data: bytes, piece: int | None = None) -> list[Message]:
        for start in range(0, len(data), piece or len(data)):
            self._frames.feed(data[start : start + (piece or len(data))])
        return self.messages

    def go_on(self) -> None:
        self._frames.held = False
        self._frames.feed(b"")


@given(
    st.lists(st.tuples(st.text() | st.binary(), st.lists(st.integers(0, 1000), max_size=3)), max_size=6),
    st.integers(1, 50),
)
def test_messages_are_the_same_however_they_are_cut(sent: list[tuple[Message, list[int]]], piece: int) -> None:
    stream = b"".join(framed(message, cuts) for message, cuts in sent)
    assert Reader().read(stream, piece) == [message for message, _ in sent]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("piece", [1_000, 65_536, None])
def test_messages_of_any_length_are_read(size: int, piece: int | None) -> None:
    text, data = "x" * size, b"\xff" * size
    stream = frame(TEXT, text.encode()) + frame(BINARY, data) + frame(TEXT, b"end")
    assert Reader().read(stream, piece) == [text, data, "end"]


def test_what_comes_behind_a_held_message_waits_and_is_not_lost() -> None:
    reader = Reader(at_once=2)
    assert reader.read(b"".join(frame(TEXT, b"%d" % number) for number in range(5)), 3) == ["0", "1"]
    reader.go_on()
    assert reader.messages == ["0", "1", "2", "3"]
    reader.go_on()
    assert reader.messages == ["0", "1", "2", "3", "4"]


def test_control_frames_are_told_between_the_frames_of_a_message() -> None:
    reader = Reader()
    reader.read(frame(TEXT, b"a", fin=False) + frame(PING, b"1") + frame(CONTINUED, b"b") + frame(8, b"\x03\xe8"))
    assert (reader.messages, reader.controls) == (["ab"], [(PING, b"1"), (8, b"\x03\xe8")])


@pytest.mark.parametrize(
    ("stream", "code", "told"),
    [
        (b"\x81\x81\x00\x00\x00\x00x", 1002, "masked"),
        (frame(TEXT, b"x", reserved=0x40), 1002, "reserved"),
        (frame(TEXT, b"x", reserved=0x20), 1002, "reserved"),
        (frame(3, b"x"), 1002, "unknown kind"),
        (frame(0xB, b"x"), 1002, "unknown kind"),
        (frame(CONTINUED, b"x"), 1002, "continuation of nothing"),
        (frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"), 1002, "within another"),
        (frame(TEXT, b"", fin=False) + frame(BINARY, b"x"), 1002, "within another"),
        (frame(PING, b"x", fin=False), 1002, "control frame"),
        (frame(PING, b"x" * 126), 1002, "control frame"),
        (frame(TEXT, b"\xff"), 1007, "not UTF-8"),
        (frame(TEXT, b"\xed\xa0\x80"), 1007, "not UTF-8"),
        (frame(TEXT, b"x" * 101), 1009, "more than 100"),
        (frame(BINARY, b"x" * 70, fin=False) + frame(CONTINUED, b"x" * 31), 1009, "more than 100"),
        (b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 1009, "more than 100"),
    ],
    ids=[
        "masked",
        "compressed, which was not agreed",
        "reserved",
        "kind 3",
        "kind 11",
        "continuation",
        "message within another",
        "message within an empty beginning",
        "control in parts",
        "long control",
        "no utf-8",
        "half a surrogate pair",
        "too long",
        "too long in parts",
        "as long as can be",
    ],
)
def test_what_breaks_the_rules_is_refused(stream: bytes, code: int, told: str) -> None:
    for piece in (None, 1):
        with pytest.raises(WrongFrameError, match=told) as wrong:
            Reader(limit=100).read(stream, piece)
        assert wrong.value.code == code


def deflated(compressor: "zlib._Compress", text: str, mode: int = zlib.Z_SYNC_FLUSH) -> bytes:
    return (compressor.compress(text.encode()) + compressor.flush(mode)).removesuffix(b"\x00\x00\xff\xff")


def test_what_is_compressed_is_read_beside_what_is_not() -> None:
    compressor = zlib.compressobj(wbits=-15)
    first, second = deflated(compressor, "again and " * 9), deflated(compressor, "again and " * 9)
    stream = (
        frame(TEXT, first[:5], fin=False, reserved=0x40)
        + frame(CONTINUED, first[5:])
        + frame(TEXT, b"plain")
        + frame(BINARY, second, reserved=0x40)
    )
    assert len(second) < len(first)
    assert Reader(deflated=True).read(stream, 3) == ["again and " * 9, "plain", b"again and " * 9]


def test_a_server_may_end_its_compression_with_each_message() -> None:
    ended = [deflated(zlib.compressobj(wbits=-15), text, zlib.Z_FINISH) for text in ("one", "two")]
    stream = frame(TEXT, ended[0], reserved=0x40) + frame(TEXT, ended[1] + b"\x00", reserved=0x40)
    assert Reader(deflated=True).read(stream) == ["one", "two"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (deflated(zlib.compressobj(wbits=-15), "x" * 101), 1009),
        (b"\xff\xff\xff", 1007),
        (deflated(zlib.compressobj(wbits=-15), "x", zlib.Z_FINISH) * 2, 1007),
    ],
    ids=["too large", "rubbish", "two in one"],
)
def test_what_cannot_be_decompressed_is_refused(payload: bytes, code: int) -> None:
    with pytest.raises(WrongFrameError) as wrong:
        Reader(limit=100, deflated=True).read(frame(TEXT, payload, reserved=0x40))
    assert wrong.value.code == code
