"""Every URL of the corpus through the real client, as a request and as the target of a redirect.

A leak is a connect() toward an address that is not public; the connections themselves do not happen.
"""

from typing import Any

import pytest

from tests.wire.site import Site, reply
from tests.wire.stubs import Dialled, StubResolver
from tests.wire.test_ssrf_corpus import Group, Row, groups_to, rows
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolConnectionError, ToolError, ToolPermissionError
from toolpost.sources.mcp.http_requests import HttpRequests
from toolpost.wire.client import HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy


async def outcome(row: Row, url: str, policy: NetworkPolicy, transport: Http1Transport) -> ToolError | int:
    client = HttpClient(policy, transport=transport, resolver=StubResolver(row.answers))
    try:
        return (await client.send(Request("GET", url))).status
    except ToolError as error:
        return error
    finally:
        await client.close()


@pytest.mark.req("TEST-10", "NSSRF-02", "NSSRF-03")
@pytest.mark.parametrize("group", groups_to("refuse"))
async def test_no_request_leaks(group: Group, transport: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    dialled = Dialled(monkeypatch)
    outcomes = {row.url: await outcome(row, row.url, NetworkPolicy(), transport) for row in rows(group)}

    assert dialled.addresses == []
    assert [url for url, error in outcomes.items() if not isinstance(error, ToolPermissionError)] == []


@pytest.mark.req("TEST-10")
@pytest.mark.parametrize("group", groups_to("allow"))
async def test_no_request_is_blocked_by_mistake(
    group: Group, transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in rows(group):
        dialled = Dialled(monkeypatch)
        error = await outcome(row, row.url, NetworkPolicy(), transport)
        monkeypatch.undo()

        assert isinstance(error, ToolConnectionError), row.url
        assert dialled.addresses, row.url
        assert dialled.leaks() == [], row.url


@pytest.mark.req("TEST-10", "NSSRF-06")
@pytest.mark.parametrize("verdict", ["refuse", "allow"])
async def test_no_redirect_leaks_or_is_blocked_by_mistake(
    verdict: str, transport: Http1Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    undialled: list[str] = []
    async with Site() as site:
        policy = NetworkPolicy().for_source(site.url)
        dialled = Dialled(monkeypatch, real={site.port})
        for row in (row for param in groups_to(verdict) for row in rows(param.values[0])):
            before = len(dialled.addresses)
            site.answer = reply(302, location=row.url)
            answer = await outcome(row, f"{site.url}/start", policy, transport)
            assert isinstance(answer, ToolError | int)
            if len(dialled.addresses) == before:
                undialled.append(row.url)

    assert dialled.leaks() == []
    if verdict == "allow":
        assert undialled == []
    else:
        assert dialled.addresses == []


@pytest.mark.req("TEST-10")
async def test_requests_to_mcp_servers_do_not_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled = Dialled(monkeypatch)
    for row in (row for param in groups_to("refuse") for row in rows(param.values[0])):
        monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", _answering(row))
        await _try(row.url)

    assert dialled.leaks() == []


def _answering(row: Row) -> Any:
    async def getaddrinfo(loop: object, host: str, port: int, /, **facts: int) -> list[tuple[Any, ...]]:
        return await StubResolver(row.answers)(host, port, type=facts.get("type", 1))

    return getaddrinfo


async def _try(url: str) -> None:
    requests = HttpRequests(_Server(), "https://mcp.example/mcp", NetworkPolicy())
    try:
        with pytest.raises(ToolError):
            await requests.send("POST", url, {}, b"{}")
    finally:
        await requests.close()


class _Server:
    config = ExternalToolConfig(name="srv", transport="mcp", connection="https://mcp.example/mcp")
    credential = NO_CREDENTIAL
