"""Consent in a browser: the URL that it is sent to, and what it may bring back."""

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from msgspec.structs import replace

from tests.auth.oauth.flows import (
    ISSUER,
    MCP,
    NOW,
    REDIRECT,
    Script,
    at,
    finish_authorization,
    public_client,
    server,
    told,
)
from toolpost.auth.oauth.authorization import (
    AuthorizationRequest,
    SignInContext,
    Transaction,
    begin_authorization,
    browser_binding,
    callback_parameters,
    read_callback,
    select_scopes,
)
from toolpost.auth.oauth.metadata import ResourceMetadata, ServerMetadata
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolPermissionError

CALLER = SignInContext(redirect_uri=REDIRECT, tenant="acme", user="ann", browser=browser_binding("cookie"))


def begun(
    at_server: ServerMetadata | None = None, caller: SignInContext = CALLER, **changes: Any
) -> AuthorizationRequest:
    given = {"resource": MCP, "scopes": ("read", "offline_access"), "clock": at(NOW), **changes}
    return begin_authorization(at_server or server(), public_client(), caller, **given)


def query_of(url: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def verifier_of(transaction: Transaction) -> str:
    assert transaction.verifier is not None
    return transaction.verifier.reveal()


def callback(transaction: Transaction, **changes: str) -> dict[str, str]:
    return {"code": "c0de", "state": transaction.state, "iss": ISSUER} | changes


@pytest.mark.req("OAUTH-08")
def test_the_url_asks_for_a_code_with_pkce_and_names_the_resource() -> None:
    request = begun()
    transaction = request.transaction
    digest = hashlib.sha256(verifier_of(transaction).encode()).digest()
    assert request.url.startswith(f"{ISSUER}/authorize?")
    assert query_of(request.url) == {
        "response_type": "code",
        "client_id": "app",
        "redirect_uri": REDIRECT,
        "scope": "read offline_access",
        "state": transaction.state,
        "resource": MCP,
        "prompt": "consent",
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    assert (transaction.created, transaction.expires) == (NOW, NOW + 600)
    assert 43 <= len(verifier_of(transaction)) <= 128


def test_every_sign_in_has_a_state_and_a_verifier_of_its_own() -> None:
    one, other = begun().transaction, begun().transaction
    assert one.state != other.state
    assert one.verifier != other.verifier


@pytest.mark.req("OAUTH-08")
def test_an_endpoint_may_have_a_query_but_no_say_in_what_is_ours() -> None:
    odd = server(authorization_endpoint=f"{ISSUER}/authorize?tenant=a%20b&state=mine&client_id=evil&prompt=")
    found = query_of(begun(odd, scopes=()).url)
    assert (found["tenant"], found["prompt"], found["client_id"]) == ("a b", "", "app")
    assert "mine" not in found.values()
    assert "scope" not in found


@pytest.mark.parametrize("methods", [(), ("plain",), ("s256",)])
def test_a_server_that_does_not_offer_pkce_is_refused(methods: tuple[str, ...]) -> None:
    with pytest.raises(ToolAuthError, match="PKCE") as refused:
        begun(server(code_challenge_methods=methods))
    assert refused.value.error_code == "oauth_no_pkce"


@pytest.mark.parametrize("url", ["javascript:alert(1)//https://x", "data:text/html,x", "vbscript:x", "file:///x"])
def test_no_browser_is_sent_to_a_url_that_runs_something(url: str) -> None:
    with pytest.raises(ToolPermissionError, match="only http and https"):
        begun(server(authorization_endpoint=url))


def test_a_server_without_a_page_for_people_is_refused() -> None:
    with pytest.raises(ToolAuthError, match="users cannot consent"):
        begun(server(authorization_endpoint=None))


@pytest.mark.req("OAUTH-25")
def test_a_browser_comes_back_over_tls_or_to_this_machine() -> None:
    with pytest.raises(ConfigError, match="https, or on this machine"):
        begun(caller=replace(CALLER, redirect_uri="http://app.example.org/cb"))
    assert begun(caller=replace(CALLER, redirect_uri="https://app.example.org/cb")).url
    assert begun(caller=replace(CALLER, redirect_uri="http://[::1]:9/cb")).url


def test_a_client_is_not_shown_to_another_issuer() -> None:
    with pytest.raises(ToolAuthError, match="belongs to"):
        begin_authorization(server(issuer="https://other.example.org"), public_client(), CALLER)


def test_neither_repr_tells_a_secret() -> None:
    request = begun(caller=replace(CALLER, browser="b1nding"))
    told_of_it = repr(request)
    kept = request.transaction
    for secret in (kept.state, verifier_of(kept), "b1nding"):
        assert secret not in told_of_it


def test_the_code_that_came_back_is_redeemed_with_the_verifier_and_the_resource() -> None:
    transaction = begun().transaction
    script = Script(told({"access_token": "a", "token_type": "bearer", "expires_in": 60, "refresh_token": "r"}))
    flow = finish_authorization(
        transaction, callback(transaction), browser=browser_binding("cookie"), clock=at(NOW + 5)
    )
    found = script.play(flow)
    assert script.form == {
        "grant_type": "authorization_code",
        "code": "c0de",
        "redirect_uri": REDIRECT,
        "code_verifier": verifier_of(transaction),
        "resource": MCP,
        "client_id": "app",
    }
    assert script.asks[0].documents == server().documents
    assert found.access_token == Secret("a")
    assert (found.expires_at, found.scopes, found.issuer) == (NOW + 65, ("read", "offline_access"), ISSUER)


@pytest.mark.req("OAUTH-25")
@pytest.mark.parametrize("state", ["", "another", "é"])
def test_a_callback_with_another_state_is_refused(state: str) -> None:
    transaction = begun().transaction
    with pytest.raises(ToolAuthError, match="Invalid or expired OAuth state"):
        read_callback(transaction, callback(transaction, state=state), clock=at(NOW))


def test_a_state_from_yesterday_is_refused() -> None:
    transaction = begun().transaction
    with pytest.raises(ToolAuthError, match="OAuth request expired"):
        read_callback(transaction, callback(transaction), browser=CALLER.browser, clock=at(NOW + 86400))


@pytest.mark.parametrize("browser", ["", browser_binding("another cookie"), "cookie"])
def test_a_callback_in_another_browser_is_refused(browser: str) -> None:
    transaction = begun().transaction
    with pytest.raises(ToolAuthError, match="another browser") as refused:
        read_callback(transaction, callback(transaction), browser=browser, clock=at(NOW))
    assert refused.value.error_code == "oauth_browser"


def test_two_tabs_of_one_browser_finish_each_its_own_sign_in() -> None:
    first, second = begun().transaction, begun().transaction
    assert read_callback(second, callback(second, code="2"), browser=CALLER.browser, clock=at(NOW)) == "2"
    assert read_callback(first, callback(first, code="1"), browser=CALLER.browser, clock=at(NOW)) == "1"
    with pytest.raises(ToolAuthError, match="Invalid or expired"):
        read_callback(first, callback(second), browser=CALLER.browser, clock=at(NOW))


@pytest.mark.parametrize(
    ("advertised", "iss", "fine"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example.com", False),
        (True, f"{ISSUER}/", False),
        (True, "https://ID.example.org", False),
        (False, ISSUER, True),
        (False, None, True),
        (False, "https://evil.example.com", False),
    ],
)
def test_the_issuer_of_a_callback_is_compared_letter_by_letter(advertised: bool, iss: str | None, fine: bool) -> None:
    transaction = begun(server(iss_parameter=advertised), caller=SignInContext(redirect_uri=REDIRECT)).transaction
    parameters = {name: value for name, value in (callback(transaction) | {"iss": iss}).items() if value is not None}
    if fine:
        assert read_callback(transaction, parameters, clock=at(NOW)) == "c0de"
        return
    with pytest.raises(ToolAuthError, match="is not from") as refused:
        read_callback(transaction, parameters, clock=at(NOW))
    assert refused.value.error_code == "oauth_issuer_mismatch"


def test_an_issuer_that_no_one_told_us_cannot_be_compared() -> None:
    transaction = begun(server(issuer_known=False), caller=SignInContext(redirect_uri=REDIRECT)).transaction
    assert read_callback(transaction, callback(transaction, iss="https://real.example"), clock=at(NOW)) == "c0de"


def test_a_person_who_says_no_is_heard() -> None:
    transaction = begun(caller=SignInContext(redirect_uri=REDIRECT)).transaction
    said = {"state": transaction.state, "error": "access_denied", "error_description": "not today"}
    with pytest.raises(ToolAuthError, match=r"declined: not today\. Nothing was connected") as refused:
        read_callback(transaction, said, clock=at(NOW))
    assert refused.value.error_code == "oauth_denied"


def test_an_error_is_reported_in_one_short_line() -> None:
    transaction = begun(caller=SignInContext(redirect_uri=REDIRECT)).transaction
    said = {"state": transaction.state, "error": "server_error", "error_description": "x\n\x1b[2J" + "y" * 1000}
    with pytest.raises(ToolAuthError, match=r"^OAuth error: x \[2Jy+…$") as refused:
        read_callback(transaction, said, clock=at(NOW))
    assert len(str(refused.value)) < 250


def test_an_error_of_another_issuer_is_not_shown() -> None:
    transaction = begun(caller=SignInContext(redirect_uri=REDIRECT)).transaction
    said = {"state": transaction.state, "iss": "https://evil.example.com", "error": "x", "error_description": "call me"}
    with pytest.raises(ToolAuthError, match="is not from") as refused:
        read_callback(transaction, said, clock=at(NOW))
    assert "call me" not in str(refused.value)


def test_a_callback_without_a_code_is_refused() -> None:
    transaction = begun(caller=SignInContext(redirect_uri=REDIRECT)).transaction
    with pytest.raises(ToolAuthError, match="contains no code"):
        read_callback(transaction, {"state": transaction.state}, clock=at(NOW))


def test_the_parameters_of_a_callback_stand_there_once() -> None:
    expected = {"code": "a b", "state": "s", "iss": "https://x/"}
    assert callback_parameters(f"{REDIRECT}?code=a+b&state=s&iss=https%3A%2F%2Fx%2F") == expected
    assert callback_parameters("code=a%20b&state=s&iss=https://x/") == expected
    with pytest.raises(ToolAuthError, match="repeated"):
        callback_parameters("code=a&code=b&state=s")


def known(*scopes: str) -> ResourceMetadata:
    return ResourceMetadata(resource=MCP, authorization_servers=(ISSUER,), scopes_supported=scopes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ()),
        ({"resource": known("a", "b")}, ("a", "b")),
        ({"resource": known("a", "b"), "wished": ("a",)}, ("a",)),
        ({"resource": known("a", "b"), "wished": ("a",), "challenged": ("c",)}, ("c",)),
        ({"resource": known("a"), "challenged": ()}, ()),
        ({"challenged": ("write",), "earlier": ("read", "write")}, ("read", "write")),
        ({"wished": ("a",), "server": server(scopes_supported=("offline_access",))}, ("a", "offline_access")),
        ({"server": server(scopes_supported=("offline_access",))}, ()),
        ({"wished": ("a",), "server": server(scopes_supported=("a",))}, ("a",)),
        ({"wished": ("a",), "earlier": ("offline_access",), "server": server()}, ("a",)),
    ],
)
def test_scopes_are_those_challenged_else_wished_else_supported(given: Any, expected: tuple[str, ...]) -> None:
    assert select_scopes(**given) == expected
