"""The flows against oidc-provider: what the other side thinks of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from joserfc import jwk
from msgspec.structs import replace

from tests.auth.oauth.flows import claims_of, finish_authorization
from tests.auth.oauth.provider import RESOURCE, Browser, provider
from tests.wire.site import Received, Site, reply
from toolpost.auth.oauth.authorization import (
    SignInContext,
    begin_authorization,
    exchange_code,
    read_callback,
)
from toolpost.auth.oauth.challenges import parse_auth_challenge
from toolpost.auth.oauth.client import Client, ClientProfile, register
from toolpost.auth.oauth.device import DeviceGrant, await_device, begin_device, poll_device
from toolpost.auth.oauth.flow import run_flow
from toolpost.auth.oauth.grants import client_credentials
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.metadata import ServerMetadata, Trust, discover_server
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, refresh, revoke
from toolpost.auth.oauth.sign_in import ConsentRedirect, SignInPlan, sign_in
from toolpost.auth.oauth.tokens import TokenSet, request_headers
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError
from toolpost.wire.client import HttpClient
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy

pytestmark = pytest.mark.programs

REDIRECT = "http://127.0.0.1:7777/callback"
SCOPES = ("openid", "offline_access", "tools.read")
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
KEY = jwk.ECKey.generate_key("P-256", private=True)
SIGNER = Client(id="signer", private_key=Secret(json.dumps(KEY.as_dict(private=True))), auth_method="private_key_jwt")

POLICY = NetworkPolicy(allow_hosts=frozenset({"127.0.0.1"}))
TRUST = Trust(policy=POLICY)
OWN_BEHALF = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    public = KEY.as_dict(private=False) | {"use": "sig", "alg": "ES256"}
    clients: list[dict[str, Any]] = [
        {
            "client_id": "cli",
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token", DEVICE],
        },
        {"client_id": "robot", "client_secret": "s3:cr/et +%", **OWN_BEHALF},
        {
            "client_id": "signer",
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_signing_alg": "ES256",
            "jwks": {"keys": [public]},
            **OWN_BEHALF,
        },
    ]
    with provider(*clients) as issuer:
        yield issuer


@pytest.fixture
async def wire() -> AsyncIterator[HttpClient]:
    async with HttpClient(POLICY) as client:
        yield client


@pytest.fixture
async def known(issuer: str, wire: HttpClient) -> ServerMetadata:
    return await run_flow(discover_server(issuer, trust=TRUST), wire)


def cli(server: ServerMetadata) -> Client:
    return Client(id="cli", issuer=server.issuer, auth_method="none")


async def signed_in(server: ServerMetadata, client: Client, wire: HttpClient, key: DpopKey | None = None) -> TokenSet:
    caller = SignInContext(redirect_uri=REDIRECT, user="alice")
    request = begin_authorization(server, client, caller, resource=RESOURCE, scopes=SCOPES, dpop_key=key)
    back = await Browser(REDIRECT).visit(request.url)
    return await run_flow(finish_authorization(request.transaction, back), wire)


async def test_a_stranger_registers_and_gets_tokens_for_the_resource(known: ServerMetadata, wire: HttpClient) -> None:
    client = await run_flow(register(known, ClientProfile(redirect_uris=(REDIRECT,))), wire)
    found = await signed_in(known, client, wire)
    claims = claims_of(found.access_token.reveal())[1]
    assert (claims["aud"], claims["sub"], claims["iss"]) == (RESOURCE, "alice", known.issuer)
    assert (found.scopes, found.token_type, found.client_id) == (("tools.read",), "Bearer", client.id)
    assert found.refresh_token is not None
    assert found.expires_at is not None
    assert found.expires_at - found.received_at == 600


async def test_a_code_is_worth_nothing_without_its_verifier(known: ServerMetadata, wire: HttpClient) -> None:
    request = begin_authorization(
        known, cli(known), SignInContext(redirect_uri=REDIRECT), resource=RESOURCE, scopes=SCOPES
    )
    code = read_callback(request.transaction, await Browser(REDIRECT).visit(request.url))
    thief = replace(request.transaction, verifier=Secret("x" * 50))
    with pytest.raises(ToolAuthError, match="invalid_grant"):
        await run_flow(exchange_code(thief, code), wire)


async def test_a_code_serves_once(known: ServerMetadata, wire: HttpClient) -> None:
    request = begin_authorization(
        known, cli(known), SignInContext(redirect_uri=REDIRECT), resource=RESOURCE, scopes=SCOPES
    )
    back = await Browser(REDIRECT).visit(request.url)
    await run_flow(finish_authorization(request.transaction, back), wire)
    with pytest.raises(ToolAuthError, match="invalid_grant"):
        await run_flow(finish_authorization(request.transaction, back), wire)


async def test_a_refresh_token_is_rotated_and_using_the_old_one_ends_the_grant(
    known: ServerMetadata, wire: HttpClient
) -> None:
    first = await signed_in(known, cli(known), wire)
    second = await run_flow(refresh(known, cli(known), first), wire)
    assert isinstance(second, RefreshedTokens)
    assert second.tokens.refresh_token != first.refresh_token
    assert second.tokens.access_token != first.access_token
    assert claims_of(second.tokens.access_token.reveal())[1]["aud"] == RESOURCE
    assert isinstance(await run_flow(refresh(known, cli(known), first), wire), GrantRevoked)
    assert isinstance(await run_flow(refresh(known, cli(known), second.tokens), wire), GrantRevoked)


async def test_a_revoked_grant_is_over(known: ServerMetadata, wire: HttpClient) -> None:
    held = await signed_in(known, cli(known), wire)
    assert await run_flow(revoke(known, cli(known), held), wire) is True
    assert isinstance(await run_flow(refresh(known, cli(known), held), wire), GrantRevoked)


async def test_a_person_who_says_no_is_heard(known: ServerMetadata) -> None:
    request = begin_authorization(
        known, cli(known), SignInContext(redirect_uri=REDIRECT), resource=RESOURCE, scopes=SCOPES
    )
    back = await Browser(REDIRECT, says_yes=False).visit(request.url)
    assert back["iss"] == known.issuer
    with pytest.raises(ToolAuthError, match="declined") as refused:
        read_callback(request.transaction, back)
    assert refused.value.error_code == "oauth_denied"


async def test_a_code_of_another_issuer_is_not_sent_anywhere(known: ServerMetadata, wire: HttpClient) -> None:
    public = {"client_id": "cli", "token_endpoint_auth_method": "none", "redirect_uris": [REDIRECT]}
    with provider({**public, "application_type": "native"}) as honest:
        elsewhere = await run_flow(discover_server(honest, trust=TRUST), wire)
        caller = SignInContext(redirect_uri=REDIRECT)
        ours = begin_authorization(known, cli(known), caller, resource=RESOURCE, scopes=("openid",)).transaction
        mixed_up = begin_authorization(elsewhere, cli(elsewhere), caller, resource=RESOURCE, scopes=("openid",))
        back = await Browser(REDIRECT).visit(mixed_up.url.replace(mixed_up.transaction.state, ours.state))
        assert back["code"]
        with pytest.raises(ToolAuthError, match="is not from"):
            await run_flow(finish_authorization(ours, back), wire)


async def test_a_code_is_entered_on_another_device(known: ServerMetadata, wire: HttpClient) -> None:
    begun = begin_device(known, cli(known), trust=TRUST, resource=RESOURCE, scopes=SCOPES)
    grant = await run_flow(begun, wire)
    assert await run_flow(poll_device(grant), wire) == grant
    assert grant.verification_uri_complete is not None

    async def meanwhile(seconds: float) -> None:
        assert seconds == grant.interval
        await Browser(REDIRECT).enter(grant.verification_uri_complete or "")

    found = await await_device(grant, wire, sleep=meanwhile)
    assert claims_of(found.access_token.reveal())[1]["aud"] == RESOURCE
    assert found.refresh_token is not None
    with pytest.raises(ToolAuthError):
        await run_flow(poll_device(grant), wire)
    assert isinstance(grant, DeviceGrant)


async def test_a_program_shows_its_secret_or_signs_with_its_key(known: ServerMetadata, wire: HttpClient) -> None:
    robot = Client(id="robot", secret=Secret("s3:cr/et +%"))
    for client in (robot, SIGNER):
        flow = client_credentials(known, client, resource=RESOURCE, scopes=("tools.call",))
        claims = claims_of((await run_flow(flow, wire)).access_token.reveal())[1]
        assert (claims["client_id"], claims["scope"]) == (client.id, "tools.call")


async def test_a_program_with_the_wrong_secret_is_reported(known: ServerMetadata, wire: HttpClient) -> None:
    wrong = Client(id="robot", secret=Secret("guessed-wrong"))
    with pytest.raises(ToolAuthError, match="invalid_client") as refused:
        await run_flow(client_credentials(known, wrong, resource=RESOURCE), wire)
    assert refused.value.error_code == "oauth_client_refused"
    assert "guessed-wrong" not in str(refused.value)


async def test_tokens_are_bound_to_a_key_with_a_nonce_and_stay_bound(known: ServerMetadata, wire: HttpClient) -> None:
    key = DpopKey.new()
    held = await signed_in(known, cli(known), wire, key)
    assert held.token_type == "DPoP"
    assert claims_of(held.access_token.reveal())[1]["cnf"] == {"jkt": key.thumbprint}
    renewed = await run_flow(refresh(known, cli(known), held), wire)
    assert isinstance(renewed, RefreshedTokens)
    assert claims_of(renewed.tokens.access_token.reveal())[1]["cnf"] == {"jkt": key.thumbprint}


async def test_a_redirect_that_the_server_does_not_take_is_reported_with_its_reason(
    known: ServerMetadata, wire: HttpClient
) -> None:
    profile = ClientProfile(redirect_uris=("https://app.example.org/callback#x",))
    with pytest.raises(ToolAuthError, match=r"rejected this client: .*https://app"):
        await run_flow(register(known, profile), wire)


async def test_a_refused_request_leads_to_a_browser_and_back_to_an_answer(issuer: str, wire: HttpClient) -> None:
    async def guarded(received: Received, writer: asyncio.StreamWriter) -> None:
        document = {
            "resource": f"{site.url}/mcp",
            "authorization_servers": [issuer],
            "scopes_supported": ["tools.read"],
        }
        if received.path == "/metadata":
            writer.write(reply(200, json.dumps(document).encode()))
        elif received.all("authorization"):
            writer.write(reply(200, b"welcome"))
        else:
            challenge = f'Bearer resource_metadata="{site.url}/metadata", scope="tools.call"'
            writer.write(reply(401, www_authenticate=challenge))
        await writer.drain()

    async with Site(guarded) as site:
        url = f"{site.url}/mcp"
        plan = SignInPlan(url=url, profile=ClientProfile(redirect_uris=(REDIRECT,)), trust=TRUST)
        refused = await wire.send(Request("POST", url))
        challenge = parse_auth_challenge(refused.status, refused.headers)
        step = await run_flow(sign_in(plan, challenge, SignInContext(redirect_uri=REDIRECT)), wire)
        assert isinstance(step, ConsentRedirect)
        callback = await Browser(REDIRECT).visit(step.url)
        tokens = await run_flow(finish_authorization(step.transaction, callback), wire)
        async with await wire.send(Request("POST", url, headers=request_headers(tokens, "POST", url))) as back:
            assert await back.read() == b"welcome"
        claims = claims_of(tokens.access_token.reveal())[1]
        assert (claims["aud"], claims["scope"], step.client.issuer) == (url, "tools.call", issuer)
