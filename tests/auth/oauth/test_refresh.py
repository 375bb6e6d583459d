"""Renewing tokens and ending grants."""

from base64 import b64decode
from typing import Any

import pytest

from tests.auth.oauth.flows import ISSUER, MCP, NOW, Script, at, public_client, server, tokens, told
from toolpost.auth.oauth.flow import FlowResponse
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.refresh import GrantRevoked, RefreshedTokens, RefreshOutcome, RefreshUnknown, refresh, revoke
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import (
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolTimeoutError,
)

NEW = {"access_token": "access-2", "token_type": "Bearer", "expires_in": 60}
REVOKING = server(revocation_endpoint=f"{ISSUER}/revoke")


def refreshed(answer: FlowResponse | ToolError, **changes: Any) -> RefreshOutcome:
    return Script(answer).play(refresh(server(), public_client(), tokens(**changes), clock=at(NOW + 3600)))


def test_a_refresh_shows_the_old_token_and_brings_new_ones() -> None:
    script = Script(told({**NEW, "refresh_token": "refresh-2", "scope": "read"}))
    found = script.play(refresh(server(), public_client(), tokens(), clock=at(NOW + 3600)))
    assert isinstance(found, RefreshedTokens)
    assert found.tokens.access_token == Secret("access-2")
    assert found.tokens.refresh_token == Secret("refresh-2")
    assert (found.tokens.expires_at, found.tokens.received_at) == (NOW + 3660, NOW + 3600)
    assert script.form == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "resource": MCP,
        "client_id": "app",
    }


def test_what_a_server_leaves_out_has_not_changed() -> None:
    found = refreshed(told(NEW), id_token=Secret("who"), asked=("read", "write"))
    assert isinstance(found, RefreshedTokens)
    kept = found.tokens
    assert (kept.refresh_token, kept.id_token) == (Secret("refresh-1"), Secret("who"))
    assert (kept.scopes, kept.asked, kept.resource) == (("read",), ("read", "write"), MCP)


@pytest.mark.parametrize("code", ["invalid_grant", "bad_refresh_token", "invalid_refresh_token", "login_required"])
@pytest.mark.parametrize("status", [200, 400, 401])
def test_a_dead_grant_is_an_outcome(code: str, status: int) -> None:
    answer = told({"error": code, "error_description": "refresh-1 was used"}, status)
    assert refreshed(answer) == GrantRevoked("… was used")


def test_a_client_that_is_blamed_for_a_dead_token_is_not_what_is_wrong() -> None:
    blamed = {"error": "unauthorized_client", "error_description": "refresh_token is invalid"}
    assert refreshed(told(blamed, 403)) == GrantRevoked("refresh_token is invalid")
    with pytest.raises(ToolAuthError, match=r"connecting the account again may help.*not allowed here"):
        refreshed(told({**blamed, "error_description": "not allowed here"}, 403))


@pytest.mark.parametrize(
    "lost",
    [
        ToolConnectionError("it broke", sent=True),
        ToolTimeoutError("no answer"),
        ToolClientError("larger than 1,048,576 bytes", code="response_too_large"),
        told(b"<html>", 200),
        told({}, 200),
        told({}, 302),
        told({"access_token": 7}),
    ],
)
def test_a_lost_answer_is_reported_as_doubt(lost: FlowResponse | ToolError) -> None:
    assert isinstance(refreshed(lost), RefreshUnknown)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (ToolConnectionError("nobody there", sent=False), ToolConnectionError),
        (ToolPermissionError("not a public address"), ToolPermissionError),
        (told(b"", 429), ToolRateLimitError),
        (told(b"", 500), ToolConnectionError),
        (told(b"<html>", 502), ToolConnectionError),
        (told(b"", 503), ToolConnectionError),
        (told({"error": "temporarily_unavailable"}, 503), ToolConnectionError),
        (told({"error": "invalid_client"}, 401), ToolAuthError),
        (told({"error": "temporarily_unavailable"}, 400), ToolAuthError),
        (told(b"<html>", 403), ToolAuthError),
    ],
)
def test_what_had_no_effect_is_raised(answer: FlowResponse | ToolError, kind: type[ToolError]) -> None:
    with pytest.raises(kind):
        refreshed(answer)


def test_without_a_refresh_token_nothing_is_asked() -> None:
    flow = refresh(server(), public_client(), tokens(refresh_token=None))
    assert Script().play(flow) == GrantRevoked("there is no refresh token")


@pytest.mark.parametrize("changes", [{"issuer": "https://old.example.org"}])
def test_tokens_are_not_shown_to_another_issuer(changes: dict[str, Any]) -> None:
    with pytest.raises(ToolAuthError, match="belong to"):
        Script().play(refresh(server(), public_client(), tokens(**changes)))
    with pytest.raises(ToolAuthError, match="belong to"):
        Script().play(refresh(server(), public_client(**changes), tokens()))


def test_a_bound_refresh_proves_its_key_and_takes_a_nonce() -> None:
    key = DpopKey.new()
    bound = tokens(token_type="DPoP", dpop_key=key.private)
    script = Script(told({"error": "use_dpop_nonce"}, 400, DPoP_Nonce="n0nce"), told({**NEW, "token_type": "DPoP"}))
    found = script.play(refresh(server(), public_client(), bound, clock=at(NOW)))
    assert isinstance(found, RefreshedTokens)
    assert found.tokens.dpop_key == key.private
    assert len({dict(ask.headers)["DPoP"] for ask in script.asks}) == 2


def test_a_grant_is_ended_at_the_server_refresh_token_first() -> None:
    client = public_client(auth_method="client_secret_basic", secret=Secret("s:ü"))
    script = Script(told(b""), told(b""))
    assert script.play(revoke(REVOKING, client, tokens(), clock=at(NOW))) is True
    assert [dict(ask.form or ()) for ask in script.asks] == [
        {"token": "refresh-1", "token_type_hint": "refresh_token"},
        {"token": "access-1", "token_type_hint": "access_token"},
    ]
    assert {ask.url for ask in script.asks} == {f"{ISSUER}/revoke"}
    assert b64decode(dict(script.asks[0].headers)["Authorization"].removeprefix("Basic ")) == b"app:s%3A%C3%BC"


def test_a_server_may_be_unable_to_revoke_access_tokens() -> None:
    unable = told({"error": "unsupported_token_type"}, 400)
    assert Script(told(b""), unable).play(revoke(REVOKING, public_client(), tokens())) is True
    assert Script(unable, unable).play(revoke(REVOKING, public_client(), tokens())) is False


def test_a_server_that_did_not_hear_is_reported_as_such() -> None:
    assert Script(told(b"", 503), told(b"")).play(revoke(REVOKING, public_client(), tokens())) is False
    assert Script().play(revoke(server(), public_client(), tokens())) is False
    assert Script(told(b"")).play(revoke(REVOKING, public_client(), tokens(refresh_token=None))) is True
