"""Servers that say exactly what a test tells them to say: what a connection makes of it, and what it answers."""

import asyncio
import base64
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import serving, soon
from toolpost.contracts.errors import ToolClientError, ToolConnectionError
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.websockets import WebSocket, connect_websocket

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BYE = b"\x88\x02\x03\xe8"


class Peer:
    """The server's side of one connection; `first` is sent in one piece with the answer to the handshake."""

    def __init__(self, first: bytes, fields: str) -> None:
        self._first = first
        self._fields = fields
        self.heard: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.writer: asyncio.StreamWriter

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        head = await reader.readuntil(b"\r\n\r\n")
        key = next(line.split()[1] for line in head.splitlines() if line.lower().startswith(b"sec-websocket-key:"))
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        fields = f"Upgrade: WebSocket\r\n{self._fields}Sec-WebSocket-Accept: {accept}\r\n"
        writer.write(f"HTTP/1.1 101 Fine\r\n{fields}\r\n".encode() + self._first)
        try:
            while True:
                first, second = await reader.readexactly(2)
                assert second & 0x80, "clients mask what they send"
                mask, size = await reader.readexactly(4), second & 0x7F
                masked = await reader.readexactly(size)
                self.heard.put_nowait((first, bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.gone.set()

    async def hears(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            return await self.heard.get()


@asynccontextmanager
async def talking(
    first: bytes = b"",
    *,
    fields: str = "Connection: Upgrade\r\n",
    ping_s: float | None = None,
    max_message_bytes: int = 1_000_000,
) -> AsyncGenerator[tuple[Peer, WebSocket]]:
    """A server that has said something, and a connection to it."""
    peer = Peer(first, fields)
    async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            async with contextlib.AsyncExitStack() as stack:
                websocket = await connect_websocket(
                    url, policy=NetworkPolicy().for_source(url), ping_s=ping_s, max_message_bytes=max_message_bytes
                )
                stack.push_async_callback(websocket.close)
                stack.callback(peer.writer.write, BYE)  # else closing would wait for it
                yield peer, websocket
        finally:
            async with asyncio.timeout(20):
                await peer.gone.wait()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()


async def test_what_comes_with_the_answer_to_the_handshake_is_read() -> None:
    async with talking(b"\x81\x02hi\x81\x03you" + BYE) as (_, websocket):
        assert [await websocket.receive(), await websocket.receive()] == ["hi", "you"]
        with pytest.raises(ToolConnectionError, match="code 1000"):
            await websocket.receive()
        assert websocket.ended_well


async def test_words_of_the_handshake_may_be_written_in_many_ways() -> None:
    extension = 'permessage-deflate;server_no_context_takeover; server_max_window_bits="10"'
    fields = f"Connection: keep-alive, upgrade\r\nSec-WebSocket-Extensions: {extension}\r\n"
    async with talking(b"\xc1\x07\xf2H\xcd\xc9\xc9\x07\x00", fields=fields) as (_, websocket):
        assert await websocket.receive() == "Hello"  # as RFC 7692 §7.2.3.1 has it


async def test_the_words_of_a_field_may_come_in_many_fields() -> None:
    async with talking(b"\x81\x02hi", fields="Connection: keep-alive\r\nConnection: Upgrade\r\n") as (_, websocket):
        assert await websocket.receive() == "hi"


async def test_an_extension_in_a_second_field_is_seen_too() -> None:
    extensions = "".join(f"Sec-WebSocket-Extensions: {name}\r\n" for name in ("permessage-deflate", "x-other"))
    with pytest.raises(ToolClientError, match="Unsupported extension: name = x-other"):
        async with talking(fields=f"Connection: Upgrade\r\n{extensions}"):
            pass


async def test_a_server_that_hangs_up_on_a_handshake_is_asked_once() -> None:
    asked: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ToolConnectionError, match="without an answer") as failed:
            await connect_websocket(url, policy=NetworkPolicy().for_source(url))
    assert not failed.value.sent
    assert len(asked) == 1


async def test_whoever_listens_gets_every_message_at_once_and_then_hears_of_the_end() -> None:
    heard: list[str | bytes] = []
    async with talking(b"\x81\x011\x81\x012") as (peer, websocket):
        peer.writer.write(b"\x82\x013" + BYE)
        with pytest.raises(ToolConnectionError, match="code 1000"):
            await websocket.listen(heard.append)
    assert heard == ["1", "2", b"3"]


@pytest.mark.parametrize(
    "frames", [b"\x81\x00", b"\x89\x00\x81\x00", b"\x01\x00\x80\x00"], ids=["messages", "pings", "fragments"]
)
async def test_however_many_frames_come_at_once_others_have_their_turn_between_them(frames: bytes) -> None:
    turn, heard = 0, Counter[int]()

    async def work() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with talking() as (peer, websocket):
        working = asyncio.create_task(work())
        peer.writer.write(frames * 10_000 + BYE)
        with pytest.raises(ToolConnectionError, match="code 1000"):
            await websocket.listen(lambda _: heard.update([turn]))
        working.cancel()
    assert heard.total() == 10_000
    assert max(heard.values()) < 1000


async def test_a_message_that_is_too_late_for_a_connection_is_not_sent_and_tells_why() -> None:
    async with talking(b"\x88\x06\x0f\xa1gone") as (_, websocket):
        with pytest.raises(ToolConnectionError, match="code 4001: gone") as posted:
            await websocket.send("x")
        with pytest.raises(ToolConnectionError, match="code 4001: gone") as sent:
            await websocket.send("x")
    assert (posted.value.sent, sent.value.sent) == (False, False)


async def test_an_answer_to_the_handshake_that_is_no_http_does_not_tell_the_url() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ready\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ToolConnectionError, match=r"handshake failed \(.*220 mail") as failed:
            await connect_websocket(f"{url}/hidden/path?word=hush", policy=NetworkPolicy().for_source(url))
    assert "hidden" not in str(failed.value)
    assert "hush" not in str(failed.value)


async def test_a_ping_is_answered_while_no_one_reads() -> None:
    async with talking() as (peer, _):
        peer.writer.write(b"\x89\x05hello\x8a\x00\x89\x00")
        assert [await peer.hears(), await peer.hears()] == [(0x8A, b"hello"), (0x8A, b"")]


@pytest.mark.waits
async def test_a_server_that_answers_pings_is_not_given_up() -> None:
    async with talking(ping_s=1) as (peer, websocket):
        for _ in range(2):
            assert await peer.hears() == (0x89, b"")
            peer.writer.write(b"\x8a\x00")
        assert not websocket.closed


@pytest.mark.parametrize(
    ("said", "answered", "told"),
    [
        (BYE, b"\x03\xe8", "code 1000"),
        (b"\x88\x00", b"", "no code"),
        (b"\x88\x05\x0f\xa0bye", b"\x0f\xa0", "code 4000: bye"),
        (b"\x88\x01\x03", b"\x03\xea", "close frame too short"),
        (b"\x88\x02\x03\xed", b"\x03\xea", "invalid status code"),
        (b"\x88\x02\x03\xee", b"\x03\xea", "invalid status code"),
        (b"\x88\x02\x13\x88", b"\x03\xea", "invalid status code"),
        (b"\x88\x03\x03\xe8\xff", b"\x03\xef", "invalid UTF-8"),
        (b"\x81\x01\xff", b"\x03\xef", "invalid UTF-8"),
        (b"\x83\x00", b"\x03\xea", "invalid opcode"),
    ],
    ids=["normal", "no code", "own code", "half a code", "1005", "1006", "5000", "bad reason", "bad text", "bad kind"],
)
async def test_an_end_is_answered_by_the_code_that_fits_it(said: bytes, answered: bytes, told: str) -> None:
    async with talking(said + b"\x81\x04late") as (peer, websocket):
        with pytest.raises(ToolConnectionError, match=told) as failed:
            await websocket.receive()
        opcode, payload = await peer.hears()
        assert (opcode, payload[:2]) == (0x88, answered)  # a reason may follow the code
        assert websocket.closed
    assert failed.value.sent
    assert peer.heard.empty()


async def test_a_close_is_known_at_once_though_no_one_reads() -> None:
    async with talking() as (peer, websocket):
        peer.writer.write(BYE)
        await peer.hears()
        with pytest.raises(ToolConnectionError, match="is closed") as unsent:
            await websocket.send("too late")
    assert not unsent.value.sent


async def test_a_server_that_sends_faster_than_anybody_reads_has_to_wait() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        for number in range(40_000):
            writer.write(b"\x81\x7e\x04\x00%1024d" % number)
            await writer.drain()

    async with talking() as (peer, websocket):
        flooding = asyncio.create_task(flood(peer.writer))
        await asyncio.wait([flooding], timeout=0.5)
        waited = not flooding.done()
        async with asyncio.timeout(60):
            assert [int(await websocket.receive()) for _ in range(40_000)] == list(range(40_000))
            await flooding
    assert waited


async def test_closing_with_messages_unread_is_a_goodbye_all_the_same() -> None:
    async with talking(b"\x81\x7e\x04\x00%1024d" % 1 * 1000) as (peer, websocket):
        closing = asyncio.create_task(websocket.close())
        assert await peer.hears() == (0x88, b"\x03\xe8")
        peer.writer.write(BYE)
        await closing
        with pytest.raises(ToolConnectionError, match="closed on this side"):
            await websocket.receive()


# ---------------------------------------------------------------- servers that take little of what is sent


@asynccontextmanager
async def deaf(
    *, ping_s: float | None = None, size: int = 20_000_000
) -> AsyncGenerator[tuple[ServerConnection, WebSocket]]:
    """A server that does not read, and a connection whose message waits for it."""
    reached, over = asyncio.Event(), asyncio.Event()
    served: list[ServerConnection] = []

    async def stop_reading(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        served.append(connection)
        reached.set()
        await over.wait()

    async with serving(stop_reading, max_size=None, ping_interval=None) as url:
        websocket = await connect_websocket(url, policy=NetworkPolicy().for_source(url), ping_s=ping_s)
        try:
            await soon(reached)
            await websocket.send(b"x" * size)
            yield served[0], websocket
        finally:
            over.set()
            await websocket.close()


async def let_go(connection: ServerConnection) -> bool:
    """Whether the other side has closed its socket: only then is what is written to it refused."""
    for _ in range(400):
        connection.transport.write(b"\x8a\x00")
        if connection.transport.is_closing():
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.waits
async def test_a_server_that_says_goodbye_and_takes_nothing_holds_neither_senders_nor_sockets() -> None:
    async with deaf() as (connection, websocket):
        behind = asyncio.create_task(websocket.send("behind it"))
        connection.transport.write(BYE)
        async with asyncio.timeout(20):
            with pytest.raises(ToolConnectionError, match="is closed") as unsent:
                await behind
        assert not unsent.value.sent
        assert await let_go(connection)


async def test_a_goodbye_that_is_given_up_holds_no_socket() -> None:
    async with deaf() as (connection, websocket):
        closing = asyncio.create_task(websocket.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert await let_go(connection)


async def test_the_last_ping_is_answered_though_messages_wait_for_their_turn() -> None:
    async with deaf() as (connection, websocket):
        behind = asyncio.create_task(websocket.send("behind it"))
        pongs = [await connection.ping(), await connection.ping()]
        connection.transport.write(b"\x81\x02hi")
        assert await websocket.receive() == "hi"
        assert not behind.done()
        connection.transport.resume_reading()
        async with asyncio.timeout(20):
            await asyncio.gather(*pongs, behind)


@pytest.mark.waits
async def test_a_server_that_takes_a_long_message_slowly_is_not_given_up() -> None:
    async with deaf(ping_s=0.8, size=40_000_000) as (connection, websocket):
        for _ in range(100):
            await asyncio.sleep(0.02)
            connection.transport.resume_reading()
            for _ in range(2):  # one piece is read in the second
                await asyncio.sleep(0)
            connection.transport.pause_reading()
        assert not websocket.closed
        connection.transport.resume_reading()
        async with asyncio.timeout(20):
            assert len(await connection.recv()) == 40_000_000


async def test_a_server_that_takes_nothing_is_given_up() -> None:
    async with deaf(ping_s=0.2) as (_, websocket):
        async with asyncio.timeout(20):
            with pytest.raises(ToolConnectionError, match="PONG"):
                await websocket.receive()
