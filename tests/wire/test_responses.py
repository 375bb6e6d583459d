"""Bodies that are decompressed, and those that never end, explode or cannot be read."""

import asyncio
import gzip
import itertools
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.site import Answer, Received, Site, reply
from toolpost.contracts.errors import ToolClientError, ToolConnectionError
from toolpost.wire.client import PAGE_BYTES, HttpClient
from toolpost.wire.decompression import Inflater
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Request, Response
from toolpost.wire.network import NetworkPolicy

TEXT = b"The tool post holds any cutting tool. " * 5000


def raw_deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def client_for(site: Site, transport: Http1Transport, *, max_bytes: int = PAGE_BYTES) -> HttpClient:
    policy = NetworkPolicy().for_source(site.url)
    return HttpClient(policy, transport=transport, max_bytes=max_bytes, timeout_s=60)


async def fetch(answer: Answer, transport: Http1Transport, *, method: str = "GET", max_bytes: int = 2**20) -> bytes:
    async with Site(answer) as site, client_for(site, transport) as client:
        response = await client.send(Request(method, site.url, max_bytes=max_bytes))
        return await response.read()


def slowly(content: bytes, **fields: Any) -> Answer:
    """Says the content one byte at a time, so that every boundary is met."""

    async def say(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(framed=False, content_length=str(len(content)), **fields))
        for byte in content:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    return say


def endlessly(content: bytes, **fields: Any) -> Answer:
    async def say(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(framed=False, **fields))
        while True:
            writer.write(content)
            await writer.drain()

    return say


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("X-GZIP", gzip.compress(TEXT, mtime=0)),
        ("gzip", gzip.compress(TEXT[:99], mtime=0) + gzip.compress(TEXT[99:], mtime=0)),
        ("gzip", gzip.compress(TEXT, mtime=0) + b"\0" * 512),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("identity", TEXT),
        ("identity, gzip", gzip.compress(TEXT, mtime=0)),
    ],
    ids=["gzip", "x-gzip", "two members", "padding", "zlib", "raw deflate", "identity", "identity and gzip"],
)
async def test_a_body_is_decompressed(encoding: str, content: bytes, transport: Http1Transport) -> None:
    assert await fetch(reply(200, content, content_encoding=encoding), transport) == TEXT


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"short", mtime=0), zlib.compress(b"short"), raw_deflate(b"short")],
    ids=["gzip", "zlib", "raw deflate"],
)
async def test_a_body_may_come_byte_by_byte(content: bytes, transport: Http1Transport) -> None:
    encoding = "gzip" if content.startswith(b"\x1f\x8b") else "deflate"

    assert await fetch(slowly(content, content_encoding=encoding), transport) == b"short"


async def test_a_stream_gives_the_same(transport: Http1Transport) -> None:
    answer = reply(200, gzip.compress(TEXT, mtime=0), content_encoding="gzip")
    async with Site(answer) as site, client_for(site, transport) as client:
        for _ in range(2):
            response = await client.send(Request("GET", site.url))
            assert b"".join([piece async for piece in response.stream()]) == TEXT

        assert site.connections == 1


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_no_body_is_no_mistake(method: str, transport: Http1Transport) -> None:
    promised = reply(204 if method == "GET" else 200, framed=False, content_encoding="gzip", content_length="99999999")

    assert await fetch(promised, transport, method=method, max_bytes=10) == b""


async def test_an_empty_body_may_call_itself_compressed(transport: Http1Transport) -> None:
    assert await fetch(reply(200, b"", content_encoding="gzip"), transport) == b""


@given(
    contents=st.lists(st.binary(max_size=300), min_size=1, max_size=4), sizes=st.lists(st.integers(1, 50), min_size=1)
)
def test_where_chunks_begin_and_end_does_not_matter(contents: list[bytes], sizes: list[int]) -> None:
    content = b"".join(map(gzip.compress, contents)) + b"\x1f\x00padding \x1f\x8b"
    inflater = Inflater("gzip", "x")
    pieces: list[bytes] = []
    turns = itertools.cycle(sizes)
    while content:
        size = next(turns)
        pieces += inflater.feed(content[:size])
        content = content[size:]

    assert b"".join(pieces) == b"".join(contents)
    assert inflater.complete


@pytest.mark.parametrize("size", [*range(65_530, 65_800, 27), 131_072, 131_073, 4_000_000])
def test_a_piece_that_is_full_is_not_the_last(size: int) -> None:
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)):
        inflater = Inflater(encoding, "x")
        pieces = list(inflater.feed(pack(bytes(size))))

        assert (sum(map(len, pieces)), inflater.complete) == (size, True)
        assert max(map(len, pieces)) <= 65_536 + 8_192


# ---------------------------------------------------------------- too much


@pytest.mark.req("NSSRF-05")
@pytest.mark.parametrize("size", [1000, 1001])
async def test_the_limit_is_the_last_byte_that_is_read(size: int, transport: Http1Transport) -> None:
    content = b"x" * size
    for answer in (
        reply(200, content),
        slowly(content),
        reply(200, gzip.compress(content, mtime=0), content_encoding="gzip"),
    ):
        if size == 1000:
            assert await fetch(answer, transport, max_bytes=1000) == content
            continue
        with pytest.raises(ToolClientError, match=r"larger than 1,000 bytes; request less") as large:
            await fetch(answer, transport, max_bytes=1000)
        assert (large.value.error_code, large.value.is_retryable) == ("response_too_large", False)


@pytest.mark.req("NSSRF-05")
@pytest.mark.parametrize(
    "fields", [{}, {"transfer_encoding": "chunked"}, {"content_encoding": "gzip"}], ids=["plain", "chunked", "members"]
)
async def test_an_endless_body_ends_at_the_limit(fields: dict[str, str], transport: Http1Transport) -> None:
    piece, limit = b"3e8\r\n" + b"x" * 1000 + b"\r\n", PAGE_BYTES
    if "content_encoding" in fields:
        piece, limit = gzip.compress(b"", mtime=0), 2**18  # each of them is small, and has to be looked at
    async with Site(endlessly(piece, **fields)) as site, client_for(site, transport, max_bytes=limit) as client:
        with pytest.raises(ToolClientError, match=f"larger than {limit:,} bytes"):
            await (await client.send(Request("GET", site.url))).read()
        assert await site.all_closed()


async def test_a_body_that_promises_too_much_is_not_read_at_all(transport: Http1Transport) -> None:
    with pytest.raises(ToolClientError, match="larger than 1,000 bytes"):
        await fetch(reply(framed=False, content_length="1001"), transport, max_bytes=1000)


@pytest.mark.req("NSSRF-05")
async def test_a_decompression_bomb_stops_at_the_limit(transport: Http1Transport) -> None:
    packer = zlib.compressobj(level=1, wbits=16 + zlib.MAX_WBITS)
    zeros = bytes(2**20)
    bomb = b"".join(packer.compress(zeros) for _ in range(256)) + packer.flush()
    assert len(bomb) < 2**21

    tracemalloc.start()
    try:
        with pytest.raises(ToolClientError, match="larger than"):
            await fetch(reply(200, bomb, content_encoding="gzip"), transport, max_bytes=2**21)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 20 * 2**20


async def test_a_stream_has_the_same_limit(transport: Http1Transport) -> None:
    got: list[int] = []

    async def collect(response: Response) -> None:
        async for piece in response.stream():
            got.append(len(piece))  # noqa: PERF401 - what came before the failure is what counts

    bomb = reply(200, gzip.compress(bytes(2**22)), content_encoding="gzip")
    async with Site(bomb) as site, client_for(site, transport, max_bytes=2**20) as client:
        response = await client.send(Request("GET", site.url))
        with pytest.raises(ToolClientError, match="larger than"):
            await collect(response)

    assert sum(got) == 2**20


# ---------------------------------------------------------------- unreadable


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br"])
async def test_an_encoding_that_no_one_asked_for_is_named(encoding: str, transport: Http1Transport) -> None:
    with pytest.raises(ToolClientError, match=rf"encoded as '{encoding}'") as unknown:
        await fetch(reply(200, b"whatever", content_encoding=encoding), transport)

    assert unknown.value.error_code == "unknown_encoding"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_what_is_not_compressed_cannot_be_decompressed(encoding: str, transport: Http1Transport) -> None:
    with pytest.raises(ToolClientError, match="cannot be decompressed") as unreadable:
        await fetch(reply(200, b"<html>not at all</html>", content_encoding=encoding), transport)

    assert unreadable.value.error_code == "unreadable_response"


@pytest.mark.parametrize("answer", [reply, slowly], ids=["at once", "slowly"])
async def test_compressed_data_that_stops_early_is_a_broken_answer(answer: object, transport: Http1Transport) -> None:
    cut = gzip.compress(b"The tool post", mtime=0)[:-12]
    said = reply(200, cut, content_encoding="gzip") if answer is reply else slowly(cut, content_encoding="gzip")

    with pytest.raises(ToolConnectionError, match="ended too early") as broken:
        await fetch(said, transport)

    assert broken.value.sent
