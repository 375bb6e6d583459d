"""Tokens without a browser, and how a client shows who it is."""

import json
from base64 import b64decode
from typing import Any

import pytest
from joserfc import jwk, jws

from tests.auth.oauth.flows import ISSUER, MCP, NOW, Script, at, claims_of, public_client, server, told
from toolpost.auth.oauth.client import Client, auth_method_of
from toolpost.auth.oauth.grants import IdentityProvider, client_credentials, enterprise_tokens, jwt_bearer
from toolpost.auth.oauth.jose import new_private_key
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError, ToolAuthError

GOOD = {"access_token": "t", "token_type": "Bearer"}
IDP = IdentityProvider(
    server=ServerMetadata(issuer="https://idp.example.org", token_endpoint="https://idp.example.org/token"),
    client=Client(id="idp-app", auth_method="none"),
    id_token=Secret("who-i-am"),
)


def test_a_secret_travels_as_a_basic_header_with_both_halves_encoded() -> None:
    client = Client(id="a:b", issuer=ISSUER, secret=Secret("p w/ü%"))
    script = Script(told(GOOD))
    script.play(client_credentials(server(), client, clock=at(NOW)))
    sent = dict(script.asks[0].headers)["Authorization"].removeprefix("Basic ")
    assert b64decode(sent) == b"a%3Ab:p%20w%2F%C3%BC%25"
    assert script.form == {"grant_type": "client_credentials"}


@pytest.mark.parametrize(
    ("client", "offered", "expected"),
    [
        (Client(id="x", secret=Secret("s")), None, "client_secret_basic"),
        (Client(id="x", secret=Secret("s")), ("client_secret_post",), "client_secret_post"),
        (Client(id="x", secret=Secret("s")), ("client_secret_post", "client_secret_basic"), "client_secret_basic"),
        (Client(id="x", secret=Secret("s")), ("none",), "client_secret_basic"),
        (Client(id="x"), ("client_secret_basic",), "none"),
        (Client(id="x", private_key=Secret("k")), None, "private_key_jwt"),
        (Client(id="x", secret=Secret("s"), auth_method="client_secret_post"), None, "client_secret_post"),
    ],
)
def test_a_client_shows_itself_in_a_way_that_both_sides_know(client: Client, offered: Any, expected: str) -> None:
    assert auth_method_of(client, server(auth_methods=offered)) == expected


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
def test_a_client_without_what_it_must_show_is_a_mistake_of_the_configuration(method: Any) -> None:
    with pytest.raises(ConfigError, match="needs"):
        Script().play(client_credentials(server(), public_client(auth_method=method), clock=at(NOW)))


@pytest.mark.parametrize("form", ["jwk", "pem"])
def test_a_key_of_ours_signs_a_statement_for_the_issuer_alone(form: str) -> None:
    key = jwk.ECKey.generate_key("P-256", private=True)
    text = json.dumps(key.as_dict(private=True)) if form == "jwk" else key.as_pem(private=True).decode()
    client = Client(id="app", issuer=ISSUER, private_key=Secret(text), key_id="k1")
    script = Script(told(GOOD))
    script.play(client_credentials(server(), client, clock=at(NOW)))
    assertion = script.form["client_assertion"]
    assert jws.deserialize_compact(assertion, key, algorithms=["ES256"]).headers()["kid"] == "k1"
    claims = claims_of(assertion)[1]
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("app", "app", ISSUER)
    assert (claims["iat"], claims["exp"]) == (NOW, NOW + 300)
    assert script.form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert "client_secret" not in script.form


def test_no_statement_is_shown_twice() -> None:
    client = Client(id="app", issuer=ISSUER, private_key=new_private_key())
    scripts = [Script(told(GOOD)), Script(told(GOOD))]
    for script in scripts:
        script.play(client_credentials(server(), client, clock=at(NOW)))
    assert scripts[0].form["client_assertion"] != scripts[1].form["client_assertion"]


@pytest.mark.parametrize(
    ("key", "algorithm", "reason"),
    [
        ("not a key", "ES256", "cannot be read"),
        ('{"kty": "EC"}', "ES256", "cannot be read"),
        ('{"kty": "oct", "k": "c2VjcmV0"}', "ES256", "cannot be read"),
        ("{", "ES256", "cannot be read"),
        ("x", "HS256", "is not supported"),
        ("x", "none", "is not supported"),
    ],
)
def test_a_key_that_cannot_sign_is_reported_without_telling_it(key: str, algorithm: str, reason: str) -> None:
    client = Client(id="app", private_key=Secret(key), algorithm=algorithm)
    with pytest.raises(ConfigError, match=reason) as refused:
        Script().play(client_credentials(server(), client, clock=at(NOW)))
    assert "c2VjcmV0" not in str(refused.value)


def test_a_public_key_cannot_sign() -> None:
    public = json.dumps(jwk.ECKey.generate_key("P-256", private=True).as_dict(private=False))
    with pytest.raises(ConfigError, match="public one"):
        Script().play(client_credentials(server(), Client(id="a", private_key=Secret(public)), clock=at(NOW)))


def test_a_workload_shows_its_statement_once_and_no_other_grant_after_a_refusal() -> None:
    script = Script(told({"error": "unauthorized_client"}, 400))
    with pytest.raises(ToolAuthError, match="unauthorized_client"):
        script.play(jwt_bearer(server(), public_client(), Secret("jwt"), resource=MCP, clock=at(NOW)))
    assert script.form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "jwt",
        "resource": MCP,
        "client_id": "app",
    }


def test_an_enterprise_vouches_and_the_other_issuer_gives_the_tokens() -> None:
    client = Client(id="app", issuer=ISSUER, secret=Secret("s"))
    jag = told({"access_token": "jag", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"})
    script = Script(jag, told(GOOD))
    found = script.play(enterprise_tokens(server(), client, IDP, resource=MCP, scopes=("a",), clock=at(NOW)))
    assert found.access_token == Secret("t")
    assert script.urls == ["https://idp.example.org/token", f"{ISSUER}/token"]
    exchanged, redeemed = (dict(ask.form or ()) for ask in script.asks)
    assert exchanged == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": ISSUER,
        "resource": MCP,
        "subject_token": "who-i-am",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "a",
        "client_id": "idp-app",
    }
    assert (redeemed["assertion"], redeemed["scope"]) == ("jag", "a")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            told({"error": "invalid_grant", "error_description": "who-i-am has expired"}, 400),
            "OAuth error: … has expired",
        ),
        (
            told({"access_token": "x", "issued_token_type": "urn:ietf:params:oauth:token-type:jwt"}),
            "returned no ID-JAG",
        ),
        (told({"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}), "returned no ID-JAG"),
        (told(b"<html>"), "not a JSON object"),
    ],
)
def test_an_enterprise_that_does_not_vouch_is_the_end_of_it(answer: Any, reason: str) -> None:
    with pytest.raises(ToolAuthError, match=reason):
        Script(answer).play(enterprise_tokens(server(), public_client(), IDP, resource=MCP, clock=at(NOW)))
