"""Frames that servers send: messages in any pieces, and what is no message."""

import asyncio
import random
import zlib
from itertools import pairwise

import pytest

from tests.wire.test_websocket_endings import BYE, talking
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError
from toolpost.wire.websockets import WebSocket

TEXT, BINARY, CONTINUED, PING = 1, 2, 0, 9
COMPRESSED = 0x40
DEFLATE = "Connection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
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


async def read(websocket: WebSocket) -> list[Message]:
    """All messages until the server closes the connection."""
    found: list[Message] = []
    async with asyncio.timeout(20):
        with pytest.raises(ToolConnectionError, match="code 1000"):
            await websocket.listen(found.append)
    return found


@pytest.mark.parametrize("seed", range(5))
async def test_messages_are_the_same_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    sent: list[Message] = []
    for _ in range(40):
        text = "".join(chance.choices("aé€😀\0 ", k=chance.choice([0, 1, 5, 60, 300])))
        sent.append(text if chance.random() < 0.5 else text.encode()[::-1])
    stream = b"".join(framed(message, chance.choices(range(1000), k=chance.randrange(4))) for message in sent) + BYE
    async with talking() as (peer, websocket):
        reading = asyncio.create_task(read(websocket))
        while stream:
            size = chance.randint(1, 50)
            peer.writer.write(stream[:size])
            stream = stream[size:]
            await asyncio.sleep(0)
        assert await reading == sent


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
async def test_messages_of_any_length_are_read(size: int) -> None:
    text, data = "x" * size, b"\xff" * size
    async with talking(frame(TEXT, text.encode()) + frame(BINARY, data) + frame(TEXT, b"end") + BYE) as (_, websocket):
        assert await read(websocket) == [text, data, "end"]


async def test_a_ping_between_the_frames_of_a_message_is_answered() -> None:
    stream = frame(TEXT, b"a", fin=False) + frame(PING, b"1") + frame(CONTINUED, b"b")
    async with talking(stream) as (peer, websocket):
        assert await websocket.receive() == "ab"
        assert await peer.hears() == (0x8A, b"1")


async def refusal(
    stream: bytes, fields: str = "Connection: Upgrade\r\n", *, max_message_bytes: int = 100
) -> tuple[int, ToolError]:
    """The close code that a server gets, and the error that a reader gets."""
    async with talking(stream, fields=fields, max_message_bytes=max_message_bytes) as (peer, websocket):
        async with asyncio.timeout(20):
            with pytest.raises(ToolError) as failed:
                await websocket.receive()
        opcode, payload = await peer.hears()
        assert opcode == 0x88
        assert websocket.closed
    return int.from_bytes(payload[:2], "big"), failed.value


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (frame(TEXT, b"x", reserved=COMPRESSED), 1002),
        (frame(TEXT, b"x", reserved=0x20), 1002),
        (frame(3, b"x"), 1002),
        (frame(0xB, b"x"), 1002),
        (frame(CONTINUED, b"x"), 1002),
        (frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"), 1002),
        (frame(PING, b"x", fin=False), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"\xed\xa0\x80"), 1007),
    ],
    ids=[
        "compressed, which was not agreed",
        "reserved",
        "kind 3",
        "kind 11",
        "continuation",
        "message within another",
        "control in parts",
        "long control",
        "no utf-8",
        "half a surrogate pair",
    ],
)
async def test_what_breaks_the_rules_is_refused(stream: bytes, code: int) -> None:
    told, error = await refusal(stream, max_message_bytes=1000)
    assert told == code
    assert isinstance(error, ToolConnectionError)
    assert "invalid WebSocket message" in str(error)
    assert error.sent


def deflated(compressor: "zlib._Compress", text: str, mode: int = zlib.Z_SYNC_FLUSH) -> bytes:
    return (compressor.compress(text.encode()) + compressor.flush(mode)).removesuffix(b"\x00\x00\xff\xff")


@pytest.mark.parametrize(
    ("stream", "fields"),
    [
        (frame(TEXT, b"x" * 101), "Connection: Upgrade\r\n"),
        (frame(BINARY, b"x" * 70, fin=False) + frame(CONTINUED, b"x" * 31), "Connection: Upgrade\r\n"),
        (b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "Connection: Upgrade\r\n"),
        (frame(TEXT, deflated(zlib.compressobj(wbits=-15), "x" * 10_000), reserved=COMPRESSED), DEFLATE),
    ],
    ids=["at once", "in parts", "as long as can be", "compressed"],
)
async def test_what_is_too_long_is_refused_before_it_is_kept(stream: bytes, fields: str) -> None:
    told, error = await refusal(stream, fields)
    assert told == 1009
    assert isinstance(error, ToolClientError)
    assert error.error_code == "response_too_large"


async def test_what_is_compressed_is_read_beside_what_is_not() -> None:
    compressor = zlib.compressobj(wbits=-15)
    first, second = deflated(compressor, "again and " * 9), deflated(compressor, "again and " * 9)
    stream = (
        frame(TEXT, first[:5], fin=False, reserved=COMPRESSED)
        + frame(CONTINUED, first[5:])
        + frame(TEXT, b"plain")
        + frame(BINARY, second, reserved=COMPRESSED)
    )
    assert len(second) < len(first)
    async with talking(stream + BYE, fields=DEFLATE) as (_, websocket):
        assert await read(websocket) == ["again and " * 9, "plain", b"again and " * 9]


async def test_what_cannot_be_decompressed_is_refused() -> None:
    told, error = await refusal(frame(TEXT, b"\xff\xff\xff", reserved=COMPRESSED), DEFLATE)
    assert told == 1002
    assert isinstance(error, ToolConnectionError)
