"""Guarded connections for HTTP clients of httpx2."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.wire.site import Received, Site, reply
from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ToolPermissionError
from toolpost.wire.httpx_transport import GuardedTransport
from toolpost.wire.network import NetworkPolicy


def guarded(policy: NetworkPolicy) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=GuardedTransport(policy), trust_env=False)


async def test_a_client_of_httpx2_reaches_what_the_operator_wrote() -> None:
    async with Site(reply(200, b"hi")) as site, guarded(NetworkPolicy().for_source(site.url)) as client:
        assert [(await client.get(site.url)).content for _ in range(3)] == [b"hi"] * 3
        assert site.connections == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/"])
async def test_a_client_of_httpx2_reaches_nothing_else(url: str) -> None:
    async with Site() as site, guarded(NetworkPolicy()) as client:
        with pytest.raises(ToolPermissionError, match=r"^Permission denied: ") as refused:
            await client.get(url.format(port=site.port))

        assert refused.value.error_code == "address_refused"
        assert site.connections == 0


async def test_a_look_up_that_fails_is_a_failed_connection_of_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(loop: object, host: str, port: int, /, **facts: Any) -> list[Any]:
        return []

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", nothing)
    async with guarded(NetworkPolicy()) as client:
        with pytest.raises(httpx2.ConnectError, match="has no address"):
            await client.get("http://nowhere.example/")


async def test_a_client_of_httpx2_tries_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both(loop: object, host: str, port: int, /, **facts: Any) -> list[Any]:
        addresses = ["127.0.0.2", "127.0.0.1"] if host == "inside.example" else [host]
        return await StubResolver(addresses)(host, port, type=1)

    async with Site(reply(200, b"hi")) as site:
        monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", both)
        policy = NetworkPolicy().for_source(f"http://inside.example:{site.port}")
        async with guarded(policy) as client:
            assert (await client.get(f"http://inside.example:{site.port}/")).content == b"hi"


async def answer_slowly(received: Received, writer: asyncio.StreamWriter) -> None:
    """Answer the head and half of the body, and then no more."""
    if received.path == "/silent":
        await asyncio.Event().wait()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
    if received.path == "/cut":
        await writer.drain()
        writer.close()
        return
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("path", "expected"), [("/silent", httpx2.ReadTimeout), ("/half", httpx2.ReadTimeout), ("/cut", httpx2.ReadError)]
)
async def test_an_answer_that_does_not_come_is_an_error_of_httpx2(path: str, expected: type[Exception]) -> None:
    async with Site(answer=answer_slowly) as site, guarded(NetworkPolicy().for_source(site.url)) as client:
        with pytest.raises(expected):
            await client.get(f"{site.url}{path}", timeout=httpx2.Timeout(None, read=0.3))


async def test_a_server_that_is_not_there_got_nothing() -> None:
    async with Site() as site:
        url = site.url
    async with guarded(NetworkPolicy().for_source(url)) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.post(url, content=b"hello")
