"""The guard at work: what DNS may say, whom a connection reaches, and whose name TLS verifies."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.wire.certificates import Authority
from tests.wire.site import Site, reply
from tests.wire.stubs import Dialled, StubResolver
from toolpost.contracts.errors import ErrorCategory, ToolConnectionError, ToolPermissionError
from toolpost.wire import client as client_module
from toolpost.wire.client import HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.routes import ssl_context

PUBLIC, OTHER, INSIDE = "93.184.216.34", "93.184.216.35", "127.0.0.1"


def allowing(*names: str) -> NetworkPolicy:
    return NetworkPolicy(operator_hosts=frozenset(names))


async def get(client: HttpClient, url: str) -> bytes:
    return await (await client.send(Request("GET", url))).read()


# ---------------------------------------------------------------- names


@pytest.mark.req("NSSRF-03")
@pytest.mark.parametrize("answers", [[PUBLIC, INSIDE], [INSIDE, PUBLIC], [PUBLIC, "::1"], [PUBLIC, "169.254.169.254"]])
async def test_one_private_answer_refuses_them_all(
    answers: list[str], transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = Dialled(monkeypatch)
    async with HttpClient(NetworkPolicy(), transport=transport, resolver=StubResolver(answers)) as client:
        with pytest.raises(ToolPermissionError, match="not a public address"):
            await get(client, "http://both.example/")

    assert dialled.addresses == []


@pytest.mark.req("NSSRF-03")
async def test_what_dns_says_after_the_look_up_does_not_matter(
    transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = Dialled(monkeypatch)
    resolver = StubResolver([PUBLIC], [INSIDE])
    async with HttpClient(NetworkPolicy(), transport=transport, resolver=resolver) as client:
        with pytest.raises(ToolConnectionError, match=PUBLIC):
            await get(client, "http://turncoat.example/")
        assert resolver.asked == [("turncoat.example", 80)]
        for _ in range(3):
            with pytest.raises(ToolPermissionError, match="resolves to 127"):
                await get(client, "http://turncoat.example/")

    assert dialled.addresses == [PUBLIC]


@pytest.mark.req("NSSRF-03")
async def test_a_name_is_looked_up_once_and_its_address_is_kept(transport: Http1Transport) -> None:
    resolver = StubResolver([INSIDE], [PUBLIC])
    async with Site(reply(200, b"hi")) as site:
        url = f"http://inside.example:{site.port}/"
        async with HttpClient(allowing("inside.example"), transport=transport, resolver=resolver) as client:
            assert await asyncio.gather(*(get(client, url) for _ in range(10))) == [b"hi"] * 10
            assert await get(client, url) == b"hi"

        assert len(resolver.asked) == 1
        assert site.last.all("host") == [f"inside.example:{site.port}"]


async def test_a_name_is_looked_up_and_judged_again_after_a_while(
    transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_ROUTES_S", 0.0)
    resolver = StubResolver([INSIDE], [INSIDE], ["169.254.169.254"])
    async with Site(reply(200, b"hi")) as site:
        url = f"http://inside.example:{site.port}/"
        async with HttpClient(allowing("inside.example"), transport=transport, resolver=resolver) as client:
            assert [await get(client, url), await get(client, url)] == [b"hi", b"hi"]
            with pytest.raises(ToolPermissionError, match="cloud metadata"):
                await get(client, url)

        assert (len(site.requests), len(resolver.asked)) == (2, 3)


@pytest.mark.skipif(not Path("/proc/net").exists(), reason="all of 127/8 is loopback on Linux")
async def test_the_next_address_is_tried_when_one_does_not_answer(transport: Http1Transport) -> None:
    resolver = StubResolver(["127.0.0.2", "127.0.0.3", INSIDE])
    async with Site(reply(200, b"hi")) as site:
        url = f"http://inside.example:{site.port}/"
        async with HttpClient(allowing("inside.example"), transport=transport, resolver=resolver) as client:
            assert [await get(client, url), await get(client, url)] == [b"hi", b"hi"]

        assert (len(site.requests), len(resolver.asked)) == (2, 1)


async def test_the_last_failure_is_reported_when_no_address_answers(
    transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = Dialled(monkeypatch)
    resolver = StubResolver([PUBLIC, OTHER])
    async with HttpClient(NetworkPolicy(), transport=transport, resolver=resolver) as client:
        with pytest.raises(ToolConnectionError, match=f"no connection to {OTHER}") as failed:
            await client.send(Request("POST", "http://down.example/"))

    assert dialled.addresses == [PUBLIC, OTHER]
    assert not failed.value.sent


@pytest.mark.req("NSSRF-03")
async def test_a_peer_that_is_not_the_judged_address_is_reported_nothing(
    transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Site() as site:
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda sock, _: connect(sock, (INSIDE, site.port)))
        async with HttpClient(NetworkPolicy(), transport=transport, resolver=StubResolver([PUBLIC])) as client:
            with pytest.raises(ToolPermissionError, match=f"peer {INSIDE} is not {PUBLIC}") as refused:
                await get(client, "http://diverted.example/")

        assert refused.value.error_code == "address_refused"
        assert site.requests == []


async def test_a_connection_that_one_policy_made_is_not_lent_to_another(
    transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Site(reply(200, b"inside")) as site:
        url = f"http://shared.example:{site.port}/"
        async with HttpClient(allowing("shared.example"), transport=transport, resolver=StubResolver([INSIDE])) as one:
            assert await get(one, url) == b"inside"
            dialled = Dialled(monkeypatch)
            async with HttpClient(NetworkPolicy(), transport=transport, resolver=StubResolver([PUBLIC])) as two:
                with pytest.raises(ToolConnectionError):
                    await get(two, url)

        assert dialled.addresses == [PUBLIC]
        assert len(site.requests) == 1


async def test_a_literal_ipv6_address_is_reached_and_named(transport: Http1Transport) -> None:
    try:
        site = await Site(reply(200, b"six"), host="::1").__aenter__()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with HttpClient(NetworkPolicy().for_source(site.url), transport=transport) as client:
        assert await get(client, site.url) == b"six"
    await site.__aexit__()

    assert site.last.all("host") == [f"[::1]:{site.port}"]


# ---------------------------------------------------------------- documents


async def test_a_document_cannot_point_at_what_the_operator_allowed_for_others(transport: Http1Transport) -> None:
    async with Site() as site, Site() as neighbour:
        policy = NetworkPolicy(allow_private=True).for_source(site.url, neighbour.url)
        async with HttpClient(policy, transport=transport, resolver=StubResolver([PUBLIC])) as client:
            from_outside = client.for_document("https://docs.example/openapi.json")
            with pytest.raises(ToolPermissionError, match="A document may only point at public addresses"):
                await from_outside.send(Request("GET", site.url))
            await from_outside.close()

            from_inside = client.for_document(f"{site.url}/openapi.json")
            assert (await from_inside.send(Request("GET", neighbour.url))).status == 200  # the same host
            await from_inside.close()
            assert (await client.send(Request("GET", site.url))).status == 200

        assert len(site.requests) == 1


# ---------------------------------------------------------------- TLS


async def test_tls_verifies_the_name_while_the_connection_goes_to_the_address(
    transport: Http1Transport, authority: Authority
) -> None:
    async with Site(reply(200, b"hi"), tls=authority.server("shop.example")) as site:
        resolver = StubResolver([INSIDE])
        async with HttpClient(allowing("shop.example"), transport=transport, resolver=resolver) as client:
            for _ in range(3):
                assert await get(client, f"https://shop.example:{site.port}/") == b"hi"

        assert (site.last.server_name, site.connections) == ("shop.example", 1)
        assert site.last.all("host") == [f"shop.example:{site.port}"]


async def test_a_certificate_for_an_address_is_verified_too(transport: Http1Transport, authority: Authority) -> None:
    site = Site(tls=authority.server(INSIDE))
    async with site, HttpClient(NetworkPolicy().for_source(site.url), transport=transport) as client:
        assert (await client.send(Request("GET", site.url))).status == 200


async def test_a_certificate_for_another_name_is_refused(transport: Http1Transport, authority: Authority) -> None:
    async with Site(tls=authority.server("shop.example")) as site:
        policy = allowing("shop.example", "other.example", INSIDE)
        async with HttpClient(policy, transport=transport, resolver=StubResolver([INSIDE])) as client:
            for host in ("other.example", INSIDE):
                with pytest.raises(ToolConnectionError, match=r"certificate|verify") as refused:
                    await client.send(Request("POST", f"https://{host}:{site.port}/"))
                assert not refused.value.sent
                assert refused.value.category is ErrorCategory.NON_RETRYABLE_CLIENT

        assert site.requests == []


async def test_names_at_one_address_do_not_share_a_connection(transport: Http1Transport, authority: Authority) -> None:
    names = ("one.example", "two.example")
    async with Site(tls=authority.server(*names)) as site:
        async with HttpClient(allowing(*names), transport=transport, resolver=StubResolver([INSIDE])) as client:
            for name in (*names, *names):
                await get(client, f"https://{name}:{site.port}/")

        assert [received.server_name for received in site.requests] == [*names, *names]
        assert site.connections == 2


def test_a_process_has_one_context(authority: Authority) -> None:
    assert ssl_context() is ssl_context()
    made: Any = ssl_context()
    assert made.check_hostname
