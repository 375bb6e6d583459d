"""The HTTP server and clients that are slow, huge, or gone."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.gateway.serving import listening
from toolpost.wire.http_server import listen

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\n"


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@asynccontextmanager
async def connected(*, request_s: float = 60) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    async with listening(app, request_s=request_s) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        try:
            async with asyncio.timeout(60):
                yield reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST / HT",
        HEAD,
        HEAD + b"Content-Length: 9\r\n\r\nhalf",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET / HT",  # a request that is answered, and the beginning of another
    ],
)
async def test_a_client_that_does_not_finish_its_request_in_time_is_let_go(begun: bytes) -> None:
    async with connected(request_s=0.2) as (reader, writer):
        writer.write(begun)
        said = await reader.read()

    assert b"HTTP/1.1 408 " in said


async def test_a_client_that_dribbles_gets_no_more_time_for_it() -> None:
    async def dribble(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"X-Slow: 1\r\n")
            await asyncio.sleep(0.01)

    async with connected(request_s=0.5) as (reader, writer):
        writer.write(HEAD)
        dribbling = asyncio.create_task(dribble(writer))
        with suppress(ConnectionResetError):  # it was sending when it was let go
            await reader.read()
        dribbling.cancel()

    assert reader.at_eof() or reader.exception() is not None


async def test_a_head_without_an_end_is_refused() -> None:
    async with connected() as (reader, writer):
        writer.write(HEAD + b"X-Long: " + b"x" * 100_000)
        said = await reader.read()

    assert b"HTTP/1.1 431 " in said


async def test_a_server_without_requests_stops_at_once() -> None:
    began = asyncio.get_running_loop().time()
    for _ in range(10):
        async with connected() as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n0")  # the connection stays open

    assert asyncio.get_running_loop().time() - began < 1  # ten looks of uvicorn's own would take longer


@pytest.mark.waits
async def test_a_client_that_reads_nothing_does_not_keep_the_server_from_stopping() -> None:
    begun = asyncio.Event()

    async def large(_request: Request) -> PlainTextResponse:
        begun.set()
        return PlainTextResponse("x" * 50_000_000)

    async with asyncio.timeout(30):
        async with listening(Starlette(routes=[Route("/", large)])) as url:
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            cast("asyncio.ReadTransport", writer.transport).pause_reading()
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            await begun.wait()
        writer.close()


async def test_requests_that_come_together_are_answered_in_order() -> None:
    async with connected(request_s=5) as (reader, writer):
        writer.write(b"".join(HEAD + b"Content-Length: %d\r\n\r\n%b" % (size, b"x" * size) for size in (3, 5000, 7)))
        said = b""
        while said.count(b"\r\n\r\n") < 3 or not said.endswith(b"7"):
            said += await reader.read(4096)

    assert said.count(b"HTTP/1.1 200 ") == 3
    assert said.index(b"\r\n\r\n3") < said.index(b"\r\n\r\n5000") < said.index(b"\r\n\r\n7")


def test_a_small_answer_does_not_wait_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
