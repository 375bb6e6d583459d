"""Token responses, with every mistake that servers make."""

import json
from typing import Any

import pytest

from tests.auth.oauth.flows import ISSUER, MCP, NOW, Script, at, claims_of, public_client, server, tokens, told
from toolpost.auth.oauth.grants import client_credentials
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.tokens import TokenSet, request_headers
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolError, ToolRateLimitError, ToolServerError

GOOD: dict[str, Any] = {"access_token": "t0ken", "token_type": "Bearer"}


def granted(answer: Any, status: int = 200, **headers: str) -> TokenSet:
    flow = client_credentials(server(), public_client(), resource=MCP, scopes=("a",), clock=at(NOW))
    return Script(told(answer, status, **headers)).play(flow)


@pytest.mark.parametrize(
    ("expires_in", "expected"),
    [
        (3600, NOW + 3600),
        ("3600", NOW + 3600),
        (" 60.5 ", NOW + 60.5),
        (0, NOW),
        (-5, NOW),
        (1e300, NOW + 10 * 365 * 86400),
        (10**400, None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        (True, None),
        (None, None),
        ([60], None),
        ({}, None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_lifetime_may_be_written_in_many_ways(expires_in: object, expected: float | None) -> None:
    assert granted({**GOOD, "expires_in": expires_in}).expires_at == expected


def test_numbers_that_json_does_not_have_say_nothing() -> None:
    assert granted(b'{"access_token": "x", "expires_in": NaN}').expires_at is None
    assert granted(b'{"access_token": "x", "expires_in": Infinity}').expires_at is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "returned no access_token"),
        ({"access_token": None}, "returned no access_token"),
        ({"access_token": ""}, "returned no access_token"),
        ({"access_token": 7}, "returned no access_token"),
        ({"access_token": ["x"]}, "returned no access_token"),
        ({"access_token": "a\r\nX-Evil: 1"}, "cannot be sent in a header"),
        ({"access_token": "a b"}, "cannot be sent in a header"),
        ({"access_token": "tökén"}, "cannot be sent in a header"),
        ({"access_token": "x" * 100_000}, "cannot be sent in a header"),
        ({**GOOD, "token_type": "mac"}, "type 'mac'"),
        ({**GOOD, "token_type": "N_A"}, "type 'N_A'"),
        ({**GOOD, "token_type": 7}, "type '7'"),
        ({**GOOD, "token_type": "DPoP"}, "type 'DPoP'"),
        ([GOOD], "not a JSON object"),
        ("t0ken", "not a JSON object"),
        (b"", "not a JSON object"),
        (b"\xff\xfe\x00", "not a JSON object"),
        (b"{" * 200_000, "not a JSON object"),
        (b"access_token=t0ken&token_type=bearer", "not a JSON object"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_answer_that_is_no_token_is_refused(answer: Any, reason: str) -> None:
    with pytest.raises(ToolAuthError, match=reason) as refused:
        granted(answer)
    assert "t0ken" not in str(refused.value)


def test_a_page_for_people_is_reported_as_what_it_is() -> None:
    with pytest.raises(ToolAuthError, match=r"returned status 200 with a body that is not a JSON object \(text/html\)"):
        granted(b"<html>Log in first", content_type="text/html; charset=utf-8")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_endpoint_that_redirects_is_not_followed(status: int) -> None:
    with pytest.raises(ToolAuthError, match=r"redirected .* which is not followed"):
        granted({}, status, location="https://evil.example.com/token")


@pytest.mark.parametrize("status", [200, 400, 401])
def test_an_error_is_an_error_whatever_the_status(status: int) -> None:
    with pytest.raises(ToolAuthError, match=r"^OAuth error: try harder ") as refused:
        granted({"error": "invalid_request", "error_description": "try harder"}, status)
    assert refused.value.error_code == "oauth_refused"
    with pytest.raises(ToolAuthError, match=r"^OAuth error: invalid_client ") as refused:
        granted({"error": "invalid_client"}, status)
    assert refused.value.error_code == "oauth_client_refused"


@pytest.mark.parametrize(
    ("status", "kind"), [(429, ToolRateLimitError), (500, ToolServerError), (503, ToolServerError)]
)
def test_a_server_in_trouble_is_worth_another_try(status: int, kind: type[ToolError]) -> None:
    with pytest.raises(kind) as failed:
        granted(b"<html>busy", status)
    assert failed.value.is_retryable


def test_an_error_that_repeats_our_secret_does_not_get_it_told() -> None:
    client = public_client(auth_method="client_secret_post", secret=Secret("hunter2hunter2"))
    answer = told({"error": "invalid_client", "error_description": "client_secret hunter2hunter2 is wrong"}, 401)
    with pytest.raises(ToolAuthError, match="client_secret … is wrong"):
        Script(answer).play(client_credentials(server(), client, clock=at(NOW)))


@pytest.mark.parametrize("kind", ["bearer", "BEARER", "", "bot", "user"])
def test_a_bearer_token_has_many_names(kind: str) -> None:
    assert granted({**GOOD, "token_type": kind}).token_type == "Bearer"
    assert granted({"access_token": "x"}).token_type == "Bearer"


def test_the_scopes_are_those_asked_for_unless_the_server_says_otherwise() -> None:
    assert granted(GOOD).scopes == ("a",)
    assert granted({**GOOD, "scope": "b  c b"}).scopes == ("b", "c")
    assert granted({**GOOD, "scope": ["b"]}).scopes == ("a",)
    assert granted({**GOOD, "scope": "b"}).asked == ("a",)


def test_a_token_is_not_used_in_its_last_moments() -> None:
    hour = tokens(expires_at=NOW + 3600)
    assert hour.is_fresh(NOW + 3569)
    assert not hour.is_fresh(NOW + 3570)
    short = tokens(expires_at=NOW + 10)
    assert short.is_fresh(NOW + 8)
    assert not short.is_fresh(NOW + 9)
    assert tokens(expires_at=None).is_fresh(NOW * 2)
    assert not tokens(expires_at=NOW).is_fresh(NOW)


def test_tokens_do_not_tell_themselves() -> None:
    held = tokens(id_token=Secret("1d"), dpop_key=Secret("k3y"))
    assert held.secrets == {"access-1", "refresh-1", "1d", "k3y"}
    for secret in held.secrets:
        assert secret not in repr(held)
    with pytest.raises(TypeError):
        json.dumps(held.access_token)


def test_a_bearer_token_travels_in_one_header() -> None:
    assert request_headers(tokens(), "POST", MCP) == {"Authorization": "Bearer access-1"}


def test_a_bound_token_travels_with_a_fresh_proof_for_each_request() -> None:
    key = DpopKey.new()
    bound = tokens(token_type="DPoP", dpop_key=key.private)
    first = request_headers(bound, "POST", f"{MCP}?x=1#y", nonce="n", clock=at(NOW))
    second = request_headers(bound, "POST", MCP, clock=at(NOW))
    assert first["Authorization"] == "DPoP access-1"
    header, claims = claims_of(first["DPoP"])
    assert (header["typ"], header["alg"], claims["htu"], claims["nonce"]) == ("dpop+jwt", "ES256", MCP, "n")
    assert claims["jti"] != claims_of(second["DPoP"])[1]["jti"]


def test_the_endpoint_is_asked_as_the_document_led_there() -> None:
    script = Script(told(GOOD))
    script.play(client_credentials(server(), public_client(), resource=MCP, scopes=("a", "b"), clock=at(NOW)))
    (ask,) = script.asks
    assert (ask.method, ask.url, ask.documents) == ("POST", f"{ISSUER}/token", server().documents)
    assert dict(ask.headers)["Accept"] == "application/json"
    assert script.form == {"grant_type": "client_credentials", "scope": "a b", "resource": MCP, "client_id": "app"}
    assert "app" not in repr(ask)
