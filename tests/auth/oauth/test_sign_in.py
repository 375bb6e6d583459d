"""From a refused request to tokens."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.auth.oauth.flows import (
    DOCUMENT,
    ISSUER,
    MCP,
    NOT_FOUND,
    NOW,
    REDIRECT,
    RESOURCE,
    Script,
    at,
    public_client,
    server,
    tokens,
    told,
)
from toolpost.auth.oauth.authorization import SignInContext
from toolpost.auth.oauth.challenges import AuthChallenge
from toolpost.auth.oauth.client import Client, ClientProfile
from toolpost.auth.oauth.flow import FlowResponse
from toolpost.auth.oauth.grants import IdentityProvider
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.sign_in import Assertion, ConsentRedirect, SignInPlan, TokenGrant, sign_in
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError

WELL_KNOWN = "https://mcp.example.org/.well-known/oauth-protected-resource/mcp"
CALLER = SignInContext(redirect_uri=REDIRECT, user="ann")
PROFILE = ClientProfile(redirect_uris=(REDIRECT,))
PLAN = SignInPlan(url=MCP, profile=PROFILE)
OPEN = {**DOCUMENT, "registration_endpoint": f"{ISSUER}/register", "token_endpoint_auth_methods_supported": ["none"]}
NEW_CLIENT = told({"client_id": "new"}, 201)
TOKENS = told({"access_token": "t", "token_type": "Bearer"})


def consent(
    script: Script, challenge: AuthChallenge | None = None, plan: SignInPlan = PLAN, **given: Any
) -> ConsentRedirect:
    found = script.play(sign_in(plan, challenge or AuthChallenge(), CALLER, clock=at(NOW), **given))
    assert isinstance(found, ConsentRedirect)
    return found


def asked_for(found: ConsentRedirect) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(found.url).query))


def test_a_stranger_is_found_registered_with_and_asked_for_consent() -> None:
    script = Script(told({**RESOURCE, "scopes_supported": ["read"]}), told(OPEN), NEW_CLIENT)
    found = consent(script)
    assert script.urls == [WELL_KNOWN, f"{ISSUER}/.well-known/oauth-authorization-server", f"{ISSUER}/register"]
    assert [len(ask.documents) for ask in script.asks] == [0, 1, 2]
    assert (found.client.id, found.client.issuer) == ("new", ISSUER)
    sent = asked_for(found)
    assert (sent["client_id"], sent["resource"], sent["scope"]) == ("new", MCP, "read")
    assert found.transaction.caller.user == "ann"


def test_scopes_that_the_server_wants_are_added_to_those_of_before() -> None:
    challenge = AuthChallenge(status=403, error="insufficient_scope", scopes=("write",))
    script = Script(told({**RESOURCE, "scopes_supported": ["profile"]}), told(OPEN))
    held = tokens(asked=("read", "delete"), scopes=("read", "list"))
    found = consent(script, challenge, tokens=held, clients={ISSUER: public_client()})
    assert asked_for(found)["scope"] == "read delete list write"


def test_scopes_that_were_asked_for_in_vain_are_not_asked_for_again() -> None:
    challenge = AuthChallenge(status=403, error="insufficient_scope", scopes=("admin",))
    with pytest.raises(ToolAuthError, match=r"lack of scope \(admin\)") as refused:
        Script().play(sign_in(PLAN, challenge, CALLER, tokens=tokens(asked=("read", "admin"))))
    assert refused.value.error_code == "oauth_scope_refused"
    assert not refused.value.is_retryable


def test_a_server_that_moved_to_another_issuer_makes_us_register_there() -> None:
    moved = "https://new.example.org"
    document = {**OPEN, "issuer": moved, "registration_endpoint": f"{moved}/register"}
    script = Script(told({**RESOURCE, "authorization_servers": [moved]}), told(document), NEW_CLIENT)
    found = consent(script, clients={ISSUER: public_client(id="old")}, tokens=tokens())
    assert (found.client.id, found.client.issuer) == ("new", moved)
    assert "old" not in found.url


def test_of_several_issuers_the_one_that_knows_us_is_taken() -> None:
    script = Script(told({**RESOURCE, "authorization_servers": ["https://other.example.org", ISSUER]}), told(OPEN))
    assert consent(script, clients={ISSUER: public_client()}).client.id == "app"


def test_an_issuer_that_an_operator_wrote_is_kept_to() -> None:
    plan = SignInPlan(url=MCP, profile=PROFILE, issuer=ISSUER)
    script = Script(told(RESOURCE), told(OPEN), NEW_CLIENT)
    consent(script, plan=plan)
    assert script.asks[1].documents == ()
    with pytest.raises(ToolAuthError, match="the configuration names") as refused:
        Script(told({**RESOURCE, "authorization_servers": ["https://evil.example.com"]})).play(
            sign_in(plan, AuthChallenge(), CALLER)
        )
    assert refused.value.error_code == "oauth_issuer_changed"


def test_endpoints_that_an_operator_wrote_need_no_discovery() -> None:
    plan = SignInPlan(url=MCP, profile=PROFILE, server=server(documents=()), registered=Client(id="ours"))
    found = consent(Script(NOT_FOUND, NOT_FOUND), plan=plan)
    assert asked_for(found)["client_id"] == "ours"
    assert asked_for(found)["resource"] == MCP


def test_a_server_without_a_document_may_be_its_own_issuer() -> None:
    origin = "https://mcp.example.org"
    document = {**OPEN, "issuer": origin}
    script = Script(NOT_FOUND, NOT_FOUND, told(document), NEW_CLIENT)
    assert consent(script).transaction.server.issuer == origin
    assert script.urls[2] == f"{origin}/.well-known/oauth-authorization-server"


def test_a_server_without_any_document_is_believed_only_if_an_operator_says_so() -> None:
    nothing: list[FlowResponse] = [NOT_FOUND] * 4
    with pytest.raises(ToolAuthError, match="does not publish its issuer"):
        Script(*nothing).play(sign_in(PLAN, AuthChallenge(), CALLER))
    script = Script(*nothing, NEW_CLIENT)
    found = consent(script, plan=SignInPlan(url=MCP, profile=PROFILE, legacy=True))
    assert found.url.startswith("https://mcp.example.org/authorize?")
    assert "code_challenge" in asked_for(found)


def test_a_program_gets_tokens_for_itself_without_asking_anybody() -> None:
    plan = SignInPlan(url=MCP, grant="client", registered=Client(id="robot", secret=Secret("s")))
    found = Script(told(RESOURCE), told(DOCUMENT), TOKENS).play(sign_in(plan, AuthChallenge(), CALLER, clock=at(NOW)))
    assert isinstance(found, TokenGrant)
    assert (found.tokens.access_token, found.tokens.resource, found.client.issuer) == (Secret("t"), MCP, ISSUER)


def test_a_workload_shows_its_statement() -> None:
    plan = SignInPlan(url=MCP, grant=Assertion(token=Secret("jwt")), registered=Client(id="pod", auth_method="none"))
    script = Script(told(RESOURCE), told(DOCUMENT), TOKENS)
    assert isinstance(script.play(sign_in(plan, AuthChallenge(), CALLER)), TokenGrant)
    assert script.form["assertion"] == "jwt"


def test_an_enterprise_vouches_for_its_people() -> None:
    idp = IdentityProvider(
        server=ServerMetadata(issuer="https://idp.example.org", token_endpoint="https://idp.example.org/token"),
        client=Client(id="idp-app", auth_method="none"),
        id_token=Secret("who-i-am"),
    )
    plan = SignInPlan(url=MCP, grant=idp, registered=Client(id="ours", issuer=ISSUER, secret=Secret("s")))
    jag = told({"access_token": "jag", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"})
    script = Script(told(RESOURCE), told(DOCUMENT), jag, TOKENS)
    assert isinstance(script.play(sign_in(plan, AuthChallenge(), CALLER)), TokenGrant)
    assert script.urls[2:] == ["https://idp.example.org/token", f"{ISSUER}/token"]


def test_an_issuer_that_an_operator_wrote_helps_a_server_without_a_document() -> None:
    plan = SignInPlan(url=MCP, profile=PROFILE, issuer=ISSUER)
    found = consent(Script(NOT_FOUND, NOT_FOUND, told(OPEN), NEW_CLIENT), plan=plan)
    assert (found.transaction.server.issuer, asked_for(found)["resource"]) == (ISSUER, MCP)


def dpop(challenge: AuthChallenge, *, algorithms: list[str], required: bool = False, **given: Any) -> ConsentRedirect:
    resource = {**RESOURCE, "dpop_bound_access_tokens_required": required}
    document = {**DOCUMENT, "dpop_signing_alg_values_supported": algorithms}
    plan = SignInPlan(url=MCP, profile=PROFILE, registered=Client(id="ours"))
    return consent(Script(told(resource), told(document)), challenge, plan, **given)


def test_a_server_that_wants_bound_tokens_gets_them() -> None:
    for found in (
        dpop(AuthChallenge(dpop=True, bearer=False), algorithms=["ES256"]),
        dpop(AuthChallenge(dpop=True), algorithms=["ES256", "RS256"]),
        dpop(AuthChallenge(), algorithms=["ES256"], required=True),
    ):
        assert found.transaction.dpop_key is not None
        assert asked_for(found)["dpop_jkt"] == DpopKey(found.transaction.dpop_key).thumbprint


def test_tokens_are_bound_to_the_key_of_before() -> None:
    key = DpopKey.new().private
    found = dpop(AuthChallenge(dpop=True), algorithms=["ES256"], tokens=tokens(dpop_key=key))
    assert found.transaction.dpop_key == key


def test_tokens_are_not_bound_where_no_one_wants_it_or_no_one_can() -> None:
    assert dpop(AuthChallenge(), algorithms=["ES256"]).transaction.dpop_key is None
    assert dpop(AuthChallenge(dpop=True), algorithms=[]).transaction.dpop_key is None
    with pytest.raises(ToolAuthError, match="does not support ES256"):
        dpop(AuthChallenge(dpop=True, bearer=False), algorithms=["RS256"])
