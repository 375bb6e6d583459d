"""Bare TCP and UDP: only judged addresses, bounded answers, and errors that say whether anything was sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from toolpost.contracts.errors import (
    ToolClientError,
    ToolConnectionError,
    ToolPermissionError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.sockets import Framing, Received, exchange_datagrams, exchange_stream

HERE = "127.0.0.1"


@asynccontextmanager
async def server(answer: bytes, *, stays: bool = False, got: list[bytes] | None = None) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read(65536)
        if got is not None:
            got.append(sent)
        writer.write(answer)
        await writer.drain()
        if stays:
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, HERE, 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def allowed(port: int) -> NetworkPolicy:
    return NetworkPolicy().for_source(f"http://{HERE}:{port}")


async def asked(port: int, framing: Framing, *, timeout_s: float = 60.0) -> bytes:
    return (await received(port, framing, timeout_s=timeout_s)).data


async def received(port: int, framing: Framing, *, message: bytes = b"hi", timeout_s: float = 60.0) -> Received:
    return await exchange_stream(HERE, port, message, framing=framing, policy=allowed(port), timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("framing", "sent"),
    [
        (Framing(), b"hi"),
        (Framing(strategy="fixed_length", length=1), b"hi"),
        (Framing(strategy="delimiter", delimiter=b"\r\n"), b"hi\r\n"),
        (Framing(strategy="length_prefix", prefix_bytes=2, endian="little"), b"\x02\x00hi"),
    ],
    ids=["stream", "fixed", "delimiter", "prefix"],
)
async def test_a_message_is_framed_as_its_answer_is(framing: Framing, sent: bytes) -> None:
    got: list[bytes] = []
    async with server(b"\x01\x00a\r\n", got=got) as port:
        await asked(port, framing)

    assert got == [sent]


async def test_a_delimiter_is_found_wherever_the_pieces_break() -> None:
    async with server(b"x" * 100_000 + b"\r\nmore", stays=True) as port:
        assert await asked(port, Framing(strategy="delimiter", delimiter=b"\r\n")) == b"x" * 100_000


@pytest.mark.parametrize(
    "framing",
    [
        Framing(strategy="delimiter", delimiter=b"!"),
        Framing(strategy="fixed_length", length=99),
        Framing(strategy="length_prefix"),
    ],
    ids=["delimiter", "fixed", "prefix"],
)
async def test_an_answer_that_ends_too_early_is_reported(framing: Framing) -> None:
    async with server(b"\0\0\0\x09half") as port:
        with pytest.raises(ToolConnectionError, match="before the answer was complete") as raised:
            await asked(port, framing)

    assert raised.value.sent


@pytest.mark.parametrize("strategy", ["delimiter", "length_prefix"])
async def test_an_answer_that_floods_is_refused(strategy: str) -> None:
    framing = Framing(strategy=strategy, delimiter=b"!", max_bytes=1000)  # type: ignore[arg-type]
    async with server(b"\x7f" * 5000, stays=True) as port:
        with pytest.raises(ToolClientError, match="larger than 1,000 bytes"):
            await asked(port, framing)


async def test_no_one_there_means_that_nothing_was_sent() -> None:
    async with server(b"") as port:
        pass

    with pytest.raises(ToolConnectionError, match=rf"tcp://{HERE}:{port}") as raised:
        await asked(port, Framing())

    assert not raised.value.sent


async def test_a_silent_server_is_given_up_in_time() -> None:
    async with server(b"", stays=True) as port:
        with pytest.raises(ToolTimeoutError):
            await asked(port, Framing(), timeout_s=0.2)


async def test_a_message_too_long_for_its_prefix_is_not_sent() -> None:
    framing = Framing(strategy="length_prefix", prefix_bytes=1)
    with pytest.raises(ToolClientError, match="prefix of 1 bytes"):
        await exchange_stream(HERE, 9, b"x" * 300, framing=framing, policy=allowed(9), timeout_s=1)


@pytest.mark.parametrize("host", [HERE, "localhost", "169.254.169.254", "::1", "0x7f000001", "127.1"])
async def test_an_address_that_no_one_allowed_is_not_connected_to(host: str) -> None:
    with pytest.raises(ToolPermissionError):
        await exchange_stream(host, 9, b"", framing=Framing(), policy=NetworkPolicy(), timeout_s=30)
    with pytest.raises(ToolPermissionError):
        await exchange_datagrams(host, 9, b"", answers=1, policy=NetworkPolicy(), timeout_s=30)


async def test_a_port_that_refuses_datagrams_is_reported() -> None:
    async with server(b"") as port:  # a port of TCP, at which no datagram is taken
        with pytest.raises(ToolConnectionError, match="udp://"):
            await exchange_datagrams(HERE, port, b"hi", answers=1, policy=allowed(port), timeout_s=30)


async def test_a_message_that_holds_the_delimiter_is_not_sent() -> None:
    got: list[bytes] = []
    async with server(b"ok\n", got=got) as port:
        with pytest.raises(ToolValidationError, match="would start a second message"):
            await received(port, Framing(strategy="delimiter", delimiter=b"\n"), message=b"GET a\nFLUSHALL")

    assert got == []


@pytest.mark.waits
async def test_a_stream_that_is_cut_says_so() -> None:
    async with server(b"x" * 5000) as port:
        whole = await received(port, Framing(max_bytes=5000))
        cut = await received(port, Framing(max_bytes=1000))
    async with server(b"half", stays=True) as port:
        late = await received(port, Framing(), timeout_s=1)

    assert (len(whole.data), whole.note) == (5000, "")
    assert (len(cut.data), cut.note) == (1000, "The answer continues; it is cut at 1,000 bytes.")
    assert late == (b"half", "The connection stayed open; this is the data received before the timeout.")


async def test_a_server_that_does_not_read_holds_no_one_past_the_deadline() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()
        writer.transport.abort()

    async with await asyncio.start_server(serve, HERE, 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ToolTimeoutError):
            async with asyncio.timeout(30):
                await received(port, Framing(), message=b"x" * 20_000_000, timeout_s=0.3)
        gone.set()
