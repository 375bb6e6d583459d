"""Consent on another device."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.auth.oauth.flows import ISSUER, MCP, NOW, TRUST, Script, at, public_client, server, told
from toolpost.auth.oauth.device import DeviceGrant, begin_device, poll_device
from toolpost.auth.oauth.flow import FlowResponse
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolError, ToolTimeoutError

SERVER = server(device_authorization_endpoint=f"{ISSUER}/device")
CODE = {"device_code": "d3vice", "user_code": "ABCD-EFGH", "verification_uri": f"{ISSUER}/enter"}
GRANT = DeviceGrant(
    device_code=Secret("d3vice"),
    user_code="ABCD-EFGH",
    verification_uri=f"{ISSUER}/enter",
    interval=5.0,
    expires=NOW + 600,
    server=SERVER,
    client=public_client(),
    resource=MCP,
    scopes=("a",),
)


def begun(answer: Any, status: int = 200) -> DeviceGrant:
    flow = begin_device(SERVER, public_client(), trust=TRUST, resource=MCP, scopes=("a",), clock=at(NOW))
    return Script(told(answer, status)).play(flow)


def polled(answer: FlowResponse | ToolError, grant: DeviceGrant = GRANT) -> TokenSet | DeviceGrant:
    return Script(answer).play(poll_device(grant, clock=at(NOW)))


def test_a_code_is_asked_for_with_scopes_and_resource() -> None:
    script = Script(told({**CODE, "expires_in": 600, "interval": 5}))
    found = script.play(begin_device(SERVER, public_client(), trust=TRUST, resource=MCP, scopes=("a",), clock=at(NOW)))
    assert found == GRANT
    assert script.urls == [f"{ISSUER}/device"]
    assert script.form == {"scope": "a", "resource": MCP, "client_id": "app"}
    assert "d3vice" not in repr(found)


def test_a_poll_shows_the_device_code_and_brings_tokens() -> None:
    script = Script(told({"access_token": "t", "token_type": "Bearer"}))
    found = script.play(poll_device(GRANT, clock=at(NOW)))
    assert isinstance(found, TokenSet)
    assert found.access_token == Secret("t")
    assert script.form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "d3vice",
        "resource": MCP,
        "client_id": "app",
    }


def test_a_person_who_has_not_answered_is_waited_for() -> None:
    assert polled(told({"error": "authorization_pending"}, 400)) is GRANT


def test_a_server_that_wants_slower_polls_gets_them_from_then_on() -> None:
    slower = polled(told({"error": "slow_down"}, 400))
    assert slower == replace(GRANT, interval=10.0)
    assert isinstance(slower, DeviceGrant)
    assert polled(told({"error": "slow_down"}, 400), slower) == replace(GRANT, interval=15.0)


@pytest.mark.parametrize(
    "lost",
    [ToolConnectionError("gone"), ToolTimeoutError("late"), told(b"", 503), told(b"<html>", 502), told(b"", 429)],
    ids=["gone", "late", "closed", "broken", "too many"],
)
def test_a_poll_that_was_lost_is_made_again_later(lost: FlowResponse | ToolError) -> None:
    assert polled(lost) == replace(GRANT, interval=10.0)
    assert polled(lost, replace(GRANT, interval=50.0)) == replace(GRANT, interval=60.0)
    assert polled(lost, replace(GRANT, interval=65.0)) == replace(GRANT, interval=65.0)


@pytest.mark.parametrize(
    ("code", "told_as"), [("access_denied", "oauth_denied"), ("expired_token", "oauth_expired"), ("x", "oauth_refused")]
)
def test_a_no_is_the_end(code: str, told_as: str) -> None:
    with pytest.raises(ToolAuthError) as refused:
        polled(told({"error": code}, 400))
    assert refused.value.error_code == told_as


def test_a_code_that_is_too_old_is_not_even_shown() -> None:
    with pytest.raises(ToolAuthError, match="has expired"):
        Script().play(poll_device(GRANT, clock=at(NOW + 600)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device_code": None}, "no device_code"),
        ({"user_code": "a\x07b"}, "no user_code"),
        ({"verification_uri": "javascript:alert(1)"}, "only http and https"),
        ({"verification_uri": None}, "not a URL"),
        ({"verification_uri_complete": "http://127.0.0.1/x"}, "this machine"),
        ({"error": "invalid_scope"}, "OAuth error: invalid_scope"),
    ],
)
def test_an_answer_that_no_one_can_act_on_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolAuthError, match=reason):
        begun({**CODE, **changes})


@pytest.mark.parametrize("odd", ["soon", 0, -1, True, None, float("inf"), 10**400], ids=lambda odd: repr(odd)[:9])
def test_odd_numbers_have_sensible_ones_in_their_place(odd: object) -> None:
    found = begun({**CODE, "interval": odd, "expires_in": odd})
    assert (found.interval, found.expires) == (5.0, NOW + 600)


def test_the_name_that_google_uses_is_understood() -> None:
    google = {"device_code": "d", "user_code": "u", "verification_url": f"{ISSUER}/device"}
    assert begun(google).verification_uri == f"{ISSUER}/device"


def test_a_server_without_codes_is_reported() -> None:
    with pytest.raises(ToolAuthError, match="Sign in with a browser"):
        Script().play(begin_device(server(), public_client(), trust=TRUST))
