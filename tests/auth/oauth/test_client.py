"""Becoming a client: which way is taken, and what of an answer is believed."""

from typing import Any

import pytest

from tests.auth.oauth.flows import ISSUER, NOW, REDIRECT, Script, at, public_client, server, told
from toolpost.auth.oauth.client import Client, ClientProfile, document_client, obtain_client, register
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolServerError

PROFILE = ClientProfile(redirect_uris=(REDIRECT,))
PUBLISHED = ClientProfile(redirect_uris=(REDIRECT,), document_url="https://app.example.org/client.json")
OPEN = server(registration_endpoint=f"{ISSUER}/register", auth_methods=("none",))


def test_a_client_that_an_operator_registered_comes_first() -> None:
    ours = Client(id="ours", secret=Secret("s3cret"))
    everything = server(registration_endpoint=f"{ISSUER}/register", client_documents=True)
    found = Script().play(obtain_client(everything, PUBLISHED, registered=ours, known=public_client()))
    assert (found.id, found.issuer) == ("ours", ISSUER)


def test_a_client_of_another_issuer_is_an_error_and_its_secret_stays_here() -> None:
    ours = Client(id="ours", issuer="https://old.example.org", secret=Secret("s3cret"))
    with pytest.raises(ToolAuthError, match=r"registered with 'https://old\.example\.org'") as refused:
        Script().play(obtain_client(OPEN, PROFILE, registered=ours))
    assert refused.value.error_code == "oauth_issuer_changed"


def test_our_document_comes_before_registering() -> None:
    both = server(registration_endpoint=f"{ISSUER}/register", client_documents=True)
    found = Script().play(obtain_client(both, PUBLISHED))
    assert (found.id, found.auth_method, found.origin) == ("https://app.example.org/client.json", "none", "document")


def test_registering_is_what_remains() -> None:
    script = Script(told({"client_id": "new", "redirect_uris": [REDIRECT]}, 201))
    found = script.play(obtain_client(OPEN, PUBLISHED))
    assert found == public_client(id="new", origin="dynamic")
    (ask,) = script.asks
    assert (ask.method, ask.url, ask.documents) == ("POST", f"{ISSUER}/register", OPEN.documents)
    assert ask.json == {
        "client_name": "Toolpost",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }


def test_an_earlier_registration_is_used_again() -> None:
    known = public_client(id="before", origin="dynamic")
    assert Script().play(obtain_client(OPEN, PROFILE, known=known)) is known


@pytest.mark.parametrize(
    "changes",
    [{"issuer": "https://old.example.org"}, {"secret_expires_at": NOW}, {"redirect_uris": ()}],
    ids=["of another issuer", "expired", "with other redirects"],
)
def test_an_earlier_registration_that_no_longer_fits_is_made_again(changes: dict[str, Any]) -> None:
    known = public_client(id="before", **changes)
    script = Script(told({"client_id": "new"}, 201))
    assert script.play(obtain_client(OPEN, PROFILE, known=known, clock=at(NOW))).id == "new"


def test_a_server_that_registers_no_one_asks_for_an_operator() -> None:
    with pytest.raises(ConfigError, match="write its client_id"):
        Script().play(obtain_client(server(), PROFILE))


def test_a_site_asks_for_a_secret_and_a_program_on_a_desk_does_not() -> None:
    both = server(registration_endpoint=f"{ISSUER}/register", auth_methods=("none", "client_secret_post"))
    site = Script(told({"client_id": "x", "client_secret": "sh"}, 201))
    found = site.play(register(both, ClientProfile(redirect_uris=("https://app.example.org/cb",))))
    assert found.auth_method == "client_secret_post"
    assert found.secret == Secret("sh")
    assert site.asks[0].json["application_type"] == "web"
    desk = Script(told({"client_id": "x", "client_secret": "not wanted"}, 201))
    assert desk.play(register(both, PROFILE)).secret is None


def test_the_server_has_the_last_word_on_how_a_client_shows_itself() -> None:
    given = {"client_id": "x", "client_secret": "sh", "token_endpoint_auth_method": "client_secret_basic"}
    found = Script(told({**given, "client_secret_expires_at": 7}, 201)).play(register(OPEN, PROFILE))
    assert (found.auth_method, found.secret_expires_at) == ("client_secret_basic", 7.0)
    assert (
        Script(told({**given, "client_secret_expires_at": 0})).play(register(OPEN, PROFILE)).secret_expires_at is None
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({}, "returned no client_id"),
        ({"client_id": 7}, "returned no client_id"),
        ({"client_id": "a\nb"}, "returned no client_id"),
        ({"client_id": "x", "token_endpoint_auth_method": "tls_client_auth"}, "tls_client_auth"),
        ({"client_id": "x", "token_endpoint_auth_method": "private_key_jwt"}, "private_key_jwt"),
        ({"client_id": "x", "token_endpoint_auth_method": "client_secret_basic"}, "without its secret"),
        ({"client_id": "x", "redirect_uris": ["https://evil.example.com/cb"]}, "omitted one of our redirect URIs"),
        (b"<html>", "not a JSON object"),
    ],
)
def test_a_registration_that_is_of_no_use_is_refused(answer: Any, reason: str) -> None:
    with pytest.raises(ToolAuthError, match=reason):
        Script(told(answer, 201)).play(register(OPEN, PROFILE))


def test_a_refused_redirect_is_reported_with_the_servers_words_and_our_uris() -> None:
    answer = told({"error": "invalid_redirect_uri", "error_description": "no\x1b[31m loopback"}, 400)
    with pytest.raises(ToolAuthError, match=r"no \[31m loopback \(invalid_redirect_uri; redirect URIs: http://127"):
        Script(answer).play(register(OPEN, PROFILE))


def test_a_registration_endpoint_in_trouble_is_worth_another_try() -> None:
    with pytest.raises(ToolServerError) as failed:
        Script(told(b"", 503)).play(register(OPEN, PROFILE))
    assert failed.value.is_retryable


def test_a_server_that_takes_only_certificates_cannot_be_registered_with() -> None:
    with pytest.raises(ToolAuthError, match="tls_client_auth"):
        Script().play(register(server(auth_methods=("tls_client_auth",)), PROFILE))


@pytest.mark.parametrize(
    "url", ["http://app.example.org/client.json", "https://app.example.org/", "https://app.example.org"]
)
def test_our_document_must_be_published_over_tls_and_have_a_path(url: str) -> None:
    with pytest.raises(ConfigError, match="https and have a path"):
        document_client(server(), ClientProfile(document_url=url))
