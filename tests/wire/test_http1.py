"""HTTP/1.1 as servers really speak it, and connections as they are kept."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.wire.site import Received, Site, reply
from toolpost.contracts.errors import ToolConnectionError
from toolpost.wire.client import HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Request, Response
from toolpost.wire.network import NetworkPolicy


def client_for(*sites: Site, **options: float) -> HttpClient:
    transport = Http1Transport(**options)  # type: ignore[arg-type]
    policy = NetworkPolicy().for_source(*(site.url for site in sites))
    return HttpClient(policy, transport=transport, timeout_s=60)


async def got(client: HttpClient, site: Site, method: str = "GET") -> tuple[int, bytes]:
    response: Response = await client.send(Request(method, site.url))
    return response.status, await response.read()


@pytest.mark.parametrize("interim", ["100 Continue", "102 Processing", "103 Early Hints\r\nLink: </a>; rel=preload"])
async def test_what_a_server_says_meanwhile_is_not_its_answer(interim: str) -> None:
    said = f"HTTP/1.1 {interim}\r\n\r\n".encode() * 2 + reply(200, b"the answer")
    async with Site(said) as site, client_for(site) as client:
        assert [await got(client, site) for _ in range(2)] == [(200, b"the answer")] * 2
        assert site.connections == 1


async def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    async with Site(reply(200, b"", framed=False, content_length="5000")) as site, client_for(site) as client:
        assert [await got(client, site, "HEAD") for _ in range(2)] == [(200, b"")] * 2
        assert site.connections == 1


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_ends_with_its_head(status: int) -> None:
    async with Site(reply(status, framed=False)) as site, client_for(site) as client:
        assert [await got(client, site) for _ in range(2)] == [(status, b"")] * 2
        assert site.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(reply(200, b"one") + reply(200, b"two"), id="two answers"),
        pytest.param(reply(200, b"one") + b"garbage", id="garbage"),
        pytest.param(reply(204) + b"more", id="a body that must not be"),
    ],
)
async def test_a_connection_that_brings_more_than_was_asked_for_is_not_used_again(said: bytes) -> None:
    async with Site(said) as site, client_for(site) as client:
        for _ in range(3):
            status, body = await got(client, site)
            assert (status, body) in {(200, b"one"), (204, b"")}
        assert site.connections == 3


async def test_what_comes_unasked_between_two_requests_is_never_taken_for_an_answer() -> None:
    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, b"asked for"))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(reply(200, b"smuggled"))

    async with Site(answer) as site, client_for(site) as client:
        assert await got(client, site) == (200, b"asked for")
        assert await site.all_closed()
        assert await got(client, site) == (200, b"asked for")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "another protocol"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 2000 + b"\r\n", "more than 1,000 header fields"),
    ],
    ids=["two lengths", "two framings", "no chunk", "upgrade", "another protocol", "fields"],
)
async def test_an_answer_that_two_readers_could_read_differently_is_refused(said: bytes, reason: str) -> None:
    async with Site(said) as site, client_for(site) as client:
        with pytest.raises(ToolConnectionError, match=reason) as failed:
            await got(client, site)
        assert failed.value.sent is True


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall ")
        await writer.drain()
        writer.write(b"of it")
        writer.close()

    async with Site(answer) as site, client_for(site) as client:
        assert await got(client, site) == (200, b"all of it")


async def test_a_server_that_closes_idle_connections_costs_no_request() -> None:
    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, b"ok"))
        await writer.drain()
        writer.close()

    async with Site(answer) as site, client_for(site) as client:
        for _ in range(3):
            assert await got(client, site) == (200, b"ok")
            await site.all_closed()
            await asyncio.sleep(0.05)  # so that the end of the connection has arrived here, too
        assert site.connections == 3


@pytest.mark.parametrize(("kept", "connections"), [("timeout=1", 2), ("timeout=60, max=9", 1), ("yes", 1)])
async def test_a_connection_that_its_server_is_about_to_close_is_not_used_again(kept: str, connections: int) -> None:
    async with Site(reply(200, b"fine", keep_alive=kept)) as site, client_for(site) as client:
        assert [await got(client, site, "POST") for _ in range(2)] == [(200, b"fine")] * 2
        assert site.connections == connections


async def test_connections_that_no_one_uses_are_closed_after_a_while() -> None:
    async with Site(reply(200, b"ok")) as site, client_for(site, keep_alive_s=0.05) as client:
        await asyncio.gather(*(got(client, site) for _ in range(5)))
        assert await site.all_closed()
        assert await got(client, site) == (200, b"ok")


async def test_more_requests_than_connections_wait_for_their_turn() -> None:
    under_way, most = 0, 0

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        writer.write(reply(200, b"ok"))

    async with Site(answer) as site, Site(answer) as other, client_for(site, other, max_connections=3) as client:
        found = await asyncio.gather(*(got(client, place) for _ in range(8) for place in (site, other)))
        assert found == [(200, b"ok")] * 16
        assert most <= 3


async def test_whoever_gives_up_waiting_takes_nobodys_turn() -> None:
    released = asyncio.Event()

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.write(reply(200, b"ok"))

    async with Site(answer) as site, client_for(site, max_connections=1) as client:
        first, second, third = (asyncio.create_task(got(client, site)) for _ in range(3))
        while not site.requests:
            await asyncio.sleep(0.005)
        second.cancel()
        released.set()
        assert await first == await third == (200, b"ok")
        assert site.connections == 1


async def test_a_server_that_answers_before_it_has_read_everything_is_heard() -> None:
    refused = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(refused)
        await writer.drain()
        while await reader.read(1 << 20):
            pass
        writer.close()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with HttpClient(NetworkPolicy().for_source(url), timeout_s=60) as client:
            response = await client.send(Request("POST", url, body=endless()))
            assert (response.status, await response.read()) == (413, b"much")


async def test_a_large_body_arrives_whole_both_ways() -> None:
    data = bytes(range(256)) * 4096 * 8

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200, received.body))

    async with Site(answer) as site, client_for(site) as client:
        for _ in range(2):
            response = await client.send(Request("POST", site.url, body=data, max_bytes=len(data)))
            assert await response.read() == data
        assert site.connections == 1


async def test_a_reader_that_is_slow_holds_the_server_back() -> None:
    written = 0

    async def answer(_: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        for _number in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            written += 100_000

    async with Site(answer) as site, client_for(site) as client:
        response = await client.send(Request("GET", site.url, max_bytes=10**9))
        before = -1
        while before != written:  # until the server can write no more
            before = written
            await asyncio.sleep(0.1)
        assert written < 50_000_000
        assert sum([len(piece) async for piece in response.stream()]) == 100_000_000


async def test_a_server_that_hangs_up_while_it_is_sent_a_body_is_not_waited_for() -> None:
    over = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        await over.wait()  # the rest of the body is never read
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpClient(NetworkPolicy().for_source(url), timeout_s=60) as client:
        with pytest.raises(ToolConnectionError, match="the connection ended too early") as failed:
            await client.send(Request("POST", url, body=bytes(30_000_000)))
        over.set()
    assert failed.value.sent
