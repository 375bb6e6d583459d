"""Flows over the real wire: on loopback, to servers that say what a test tells them to."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tests.auth.oauth.flows import public_client, server, told
from tests.auth.oauth.test_device import GRANT
from tests.wire.site import Received, Site, reply
from toolpost.auth.oauth.client import ClientProfile, register
from toolpost.auth.oauth.device import await_device
from toolpost.auth.oauth.flow import ANSWER_BYTES, Flow, FlowRequest, FlowResponse, run_flow
from toolpost.auth.oauth.grants import client_credentials
from toolpost.auth.oauth.metadata import Trust, find_resource, find_server
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolError, ToolPermissionError
from toolpost.wire.client import HttpClient
from toolpost.wire.network import NetworkPolicy

GOOD = json.dumps({"access_token": "t", "token_type": "Bearer"}).encode()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient(NetworkPolicy(allow_hosts=frozenset({"127.0.0.1", "localhost"}))) as client:
        yield client


def tokens_from(site: Site) -> Flow[TokenSet]:
    there = server(issuer=site.url, token_endpoint=f"{site.url}/token", documents=())
    return client_credentials(there, public_client(issuer=site.url))


async def test_a_form_is_sent_as_a_form_and_json_as_json(client: HttpClient) -> None:
    async with Site(reply(200, GOOD)) as site:
        found = await run_flow(tokens_from(site), client)
        assert found.access_token == Secret("t")
        assert site.last.body == b"grant_type=client_credentials&client_id=app"
        assert site.last.all("content-type") == ["application/x-www-form-urlencoded"]
    async with Site(reply(201, b'{"client_id": "x"}')) as site:
        there = server(registration_endpoint=f"{site.url}/register", documents=(), auth_methods=("none",))
        await run_flow(register(there, ClientProfile()), client)
        assert json.loads(site.last.body)["client_name"] == "Toolpost"
        assert site.last.all("content-type") == ["application/json"]


async def test_five_megabytes_of_token_are_not_read(client: HttpClient) -> None:
    huge = b'{"access_token": "' + b"x" * 5_000_000 + b'"}'
    assert len(huge) > ANSWER_BYTES
    async with Site(reply(200, huge)) as site:
        with pytest.raises(ToolClientError, match="larger than 1,048,576 bytes"):
            await run_flow(tokens_from(site), client)


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_token_endpoint_that_redirects_sends_no_one_our_secrets(client: HttpClient, status: int) -> None:
    async with Site(reply(200, GOOD)) as thief, Site(reply(status, location=f"{thief.url}/token")) as site:
        with pytest.raises(ToolAuthError, match="redirected"):
            await run_flow(tokens_from(site), client)
        assert thief.requests == []


async def test_a_document_may_lie_behind_a_redirect(client: HttpClient) -> None:
    async def moved(received: Received, writer: asyncio.StreamWriter) -> None:
        there = json.dumps({"issuer": site.url, "token_endpoint": f"{site.url}/t"}).encode()
        found = received.path == "/there"
        writer.write(reply(200, there) if found else reply(302, location="/there"))
        await writer.drain()

    async with Site(moved) as site:
        found = await run_flow(find_server(site.url, trust=Trust()), client)
        assert found is not None
        assert found.token_endpoint == f"{site.url}/t"


async def test_a_document_from_elsewhere_cannot_point_at_this_machine(client: HttpClient) -> None:
    async with Site(reply(200, GOOD)) as site:
        there = server(token_endpoint=f"{site.url}/token", documents=("https://id.example.org/metadata",))
        with pytest.raises(ToolPermissionError, match="A document may only point at public addresses"):
            await run_flow(client_credentials(there, public_client()), client)
        assert site.requests == []


async def test_a_document_that_another_one_led_to_is_bound_by_both(client: HttpClient) -> None:
    async with Site(reply(200, GOOD)) as site:
        led = ("https://mcp.example.org/metadata", f"{site.url}/metadata")
        with pytest.raises(ToolPermissionError, match="A document may only point"):
            await run_flow(client_credentials(server(token_endpoint=site.url, documents=led), public_client()), client)
        assert site.requests == []


async def test_a_challenge_cannot_point_at_this_machine(client: HttpClient) -> None:
    with pytest.raises(ToolAuthError, match="this machine"):
        await run_flow(
            find_resource("https://mcp.example.org/mcp", trust=Trust(), metadata_url="http://127.0.0.1/x"), client
        )


async def test_what_fails_on_its_way_is_thrown_into_the_flow(client: HttpClient) -> None:
    seen: list[ToolError] = []

    def stubborn() -> Flow[str]:
        try:
            yield FlowRequest(method="GET", url="http://10.0.0.1/")
        except ToolError as failed:
            seen.append(failed)
        return "went on"

    assert await run_flow(stubborn(), client) == "went on"
    assert isinstance(seen[0], ToolPermissionError)


async def test_a_flow_that_is_cancelled_is_closed(client: HttpClient) -> None:
    closed = asyncio.Event()
    arrived = asyncio.Event()

    async def silent(received: Received, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with Site(silent) as site:

        def patient() -> Flow[None]:
            try:
                yield FlowRequest(method="GET", url=site.url)
            finally:
                closed.set()

        task = asyncio.create_task(run_flow(patient(), client))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert closed.is_set()


async def test_a_device_is_polled_as_slowly_as_its_server_asks(client: HttpClient) -> None:
    answers: list[FlowResponse] = [
        told({"error": "authorization_pending"}, 400),
        told({"error": "slow_down"}, 400),
        told({"access_token": "t", "token_type": "Bearer"}),
    ]
    slept: list[float] = []

    async def next_answer(received: Received, writer: asyncio.StreamWriter) -> None:
        answer = answers.pop(0)
        writer.write(reply(answer.status, answer.body))
        await writer.drain()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Site(next_answer) as site:
        grant = replace(GRANT, server=server(token_endpoint=site.url, documents=()))
        found = await await_device(grant, client, clock=lambda: 0.0, sleep=sleep)
    assert found.access_token == Secret("t")
    assert slept == [5.0, 5.0, 10.0]
