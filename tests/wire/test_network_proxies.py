"""A proxy that an operator names."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from tests.wire.certificates import Authority
from tests.wire.site import Site, reply
from toolpost import ExternalToolConfig, Toolbox
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolPermissionError
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy


class Relay:
    """A proxy that opens tunnels and remembers what it was asked for."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        writer.write(self.answer)
        if b" 200 " in self.answer:
            host, _, port = head.split()[1].rpartition(":")
            onward, back = await asyncio.open_connection(host.strip("[]"), int(port))
            await asyncio.gather(pumped(reader, back), pumped(onward, writer))
        writer.close()


async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def serving(relay: Relay) -> AsyncIterator[str]:
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_request_goes_through_a_tunnel_to_the_judged_address() -> None:
    relay = Relay()
    async with Site(reply(200, b"hello")) as site, serving(relay) as proxy:
        policy = NetworkPolicy(proxy=f"http://ann:s%3Acret@{proxy}").for_source(site.url)
        async with HttpClient(policy) as client:
            for _ in range(2):
                assert await (await client.send(Request("GET", site.url))).read() == b"hello"
        assert "s:cret" not in repr(policy)
    [head] = relay.asked  # the tunnel is kept
    assert head.startswith(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic YW5uOnM6Y3JldA==\r\n" in head


async def test_tls_is_spoken_with_the_server_and_not_with_the_proxy(authority: Authority) -> None:
    relay = Relay()
    async with (
        Site(reply(200, b"safe"), tls=authority.server("127.0.0.1")) as site,
        serving(relay) as proxy,
        HttpClient(NetworkPolicy(proxy=f"http://{proxy}").for_source(site.url)) as client,
    ):
        assert await (await client.send(Request("GET", site.url))).read() == b"safe"
    assert len(relay.asked) == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"", b"SSH-2.0-x\r\n\r\n"])
async def test_a_proxy_that_opens_no_tunnel_is_reported_and_nothing_was_sent(answer: bytes) -> None:
    async with Site() as site, serving(Relay(answer)) as proxy:
        async with HttpClient(NetworkPolicy(proxy=f"http://{proxy}").for_source(site.url)) as client:
            with pytest.raises(ToolConnectionError, match="the proxy") as failed:
                await client.send(Request("GET", site.url))
        assert failed.value.sent is False
        assert site.requests == []


async def test_a_proxy_gives_no_way_around_the_guard() -> None:
    relay = Relay()
    async with serving(relay) as proxy, HttpClient(NetworkPolicy(proxy=f"http://{proxy}")) as client:
        with pytest.raises(ToolPermissionError, match="not a public address"):
            await client.send(Request("GET", "http://169.254.169.254/latest"))
    assert relay.asked == []


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Site(reply(200, b"direct")) as site, HttpClient(NetworkPolicy().for_source(site.url)) as client:
        assert await (await client.send(Request("GET", site.url))).read() == b"direct"


@pytest.mark.programs
async def test_an_mcp_server_is_reached_through_the_proxy_too() -> None:
    relay = Relay()
    with mirror() as url:
        async with serving(relay) as proxy:
            source = ExternalToolConfig(name="web", transport="mcp", connection=url)
            settings = PatientSettings(data_dir=None, sources=[source], network={"proxy": f"http://{proxy}"})
            async with Toolbox(settings=settings) as box:
                assert [state.error for state in box.report] == [None]
    assert relay.asked


@pytest.mark.parametrize("written", ["proxy:3128", "socks5://proxy:1080", "https://proxy", "http://", "http://h:x"])
def test_a_proxy_that_cannot_be_used_is_refused_at_once_without_being_quoted(written: str) -> None:
    with pytest.raises(ConfigError, match="http://host:port"):
        NetworkPolicy(proxy=written)
