"""What httpx2 brings: HTTP/2 where it is wanted, and guarded connections for clients that are not ours."""

import asyncio
import importlib
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any

import httpx2
import pytest

from tests.wire.certificates import Authority
from tests.wire.site import Site, reply
from tests.wire.stubs import StubResolver
from toolpost.contracts.errors import ToolPermissionError
from toolpost.wire import httpx_transport
from toolpost.wire.client import HttpClient
from toolpost.wire.http import http2_transport, http_transport
from toolpost.wire.httpx_transport import Httpx2Transport
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.requests import Request


def guarded(policy: NetworkPolicy) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=http_transport(policy), trust_env=False)


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


async def test_pools_that_nobody_uses_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx_transport, "_MOST_POOLS", 1)
    async with Site() as one, Site(host="127.0.0.2") as two:
        transport = Httpx2Transport()
        async with HttpClient(NetworkPolicy().for_source(one.url, two.url), transport=transport) as client:
            for site in (one, two, one):
                await (await client.send(Request("GET", site.url))).read()
        assert await two.all_closed()
        await transport.close()

        assert (one.connections, two.connections) == (2, 1)


@pytest.mark.skipif(find_spec("h2") is None, reason="HTTP/2 is not tried: h2 is not installed")
async def test_http2_is_spoken_with_a_server_that_offers_it(authority: Authority) -> None:
    context = authority.server("127.0.0.1")
    context.set_alpn_protocols(["h2"])
    ended = asyncio.Event()
    server = await asyncio.start_server(partial(_speak_http2, ended), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/thing?x=1"
    transport = http2_transport()
    async with server, HttpClient(NetworkPolicy().for_source(url), transport=transport) as client:
        answers = await asyncio.gather(*(client.send(Request("POST", url, body=b"hi")) for _ in range(5)))
        bodies = [await answer.read() for answer in answers]
        await transport.close()
        await asyncio.wait_for(ended.wait(), 60)

    assert [body.strip() for body in bodies] == [f"POST /thing?x=1 {url[8:-10]} hi".encode()] * 5


async def _speak_http2(ended: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says back what was asked, once it was asked whole."""
    events: Any = importlib.import_module("h2.events")
    config = importlib.import_module("h2.config").H2Configuration(client_side=False)
    speaker: Any = importlib.import_module("h2.connection").H2Connection(config=config)
    speaker.initiate_connection()
    asked: dict[int, list[bytes]] = {}
    while data := await reader.read(65536):
        for event in speaker.receive_data(data):
            if isinstance(event, events.RequestReceived):
                fields = dict(event.headers)
                asked[event.stream_id] = [fields[b":method"], fields[b":path"], fields[b":authority"]]
            elif isinstance(event, events.DataReceived):
                asked[event.stream_id].append(event.data)
            elif isinstance(event, events.StreamEnded):
                speaker.send_headers(event.stream_id, [(":status", "200")])
                speaker.send_data(event.stream_id, b" ".join(asked[event.stream_id]), end_stream=True)
        writer.write(speaker.data_to_send())
    writer.close()
    ended.set()


def test_http2_without_its_parts_is_told_with_the_install_line() -> None:
    program = "import sys; sys.modules['h2'] = None\nfrom toolpost.wire.http import http2_transport as t\nt()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr.strip().endswith("HTTP/2 needs httpx2 and h2; run: pip install 'httpx2[http2]'")
