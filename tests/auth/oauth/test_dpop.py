"""Proofs of possession."""

import base64
import hashlib

import pytest
from joserfc import jwk, jws

from tests.auth.oauth.flows import ISSUER, NOW, Script, at, claims_of, public_client, server, told
from toolpost.auth.oauth.grants import client_credentials
from toolpost.auth.oauth.jose import DpopKey, dpop_nonce
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.contracts.errors import ToolAuthError
from toolpost.wire.messages import Headers

BOUND = told({"access_token": "t", "token_type": "DPoP"})
CHALLENGE = told({"error": "use_dpop_nonce"}, 400, DPoP_Nonce="n0nce")


def ask(script: Script, key: DpopKey) -> TokenSet:
    return script.play(client_credentials(server(), public_client(), dpop_key=key, clock=at(NOW)))


def test_a_proof_is_signed_by_the_key_that_it_shows_and_shows_no_more() -> None:
    key = DpopKey.new()
    proof = key.proof("POST", f"{ISSUER}/token?x=y#z", now=NOW, access_token="t")
    header, claims = claims_of(proof)
    assert set(header["jwk"]) == {"kty", "crv", "x", "y"}
    public = jwk.ECKey.import_key(header["jwk"])
    assert jws.deserialize_compact(proof, public, algorithms=["ES256"]).payload
    assert public.thumbprint() == key.thumbprint
    assert (claims["htm"], claims["htu"], claims["iat"]) == ("POST", f"{ISSUER}/token", NOW)
    assert claims["ath"] == base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).rstrip(b"=").decode()


def test_a_token_is_bound_to_the_key_that_asked_for_it() -> None:
    key = DpopKey.new()
    script = Script(BOUND)
    assert ask(script, key).dpop_key == key.private
    assert claims_of(dict(script.asks[0].headers)["DPoP"])[1].keys() == {"jti", "htm", "htu", "iat"}


def test_a_server_that_wants_a_nonce_gets_it_in_a_new_proof_once() -> None:
    script = Script(CHALLENGE, BOUND)
    ask(script, DpopKey.new())
    first, second = (claims_of(dict(sent.headers)["DPoP"])[1] for sent in script.asks)
    assert "nonce" not in first
    assert second["nonce"] == "n0nce"
    assert first["jti"] != second["jti"]


def test_a_server_that_is_never_content_is_not_asked_a_third_time() -> None:
    with pytest.raises(ToolAuthError, match="use_dpop_nonce"):
        ask(Script(CHALLENGE, CHALLENGE), DpopKey.new())


def test_a_server_that_binds_nothing_gives_a_plain_token() -> None:
    found = ask(Script(told({"access_token": "t", "token_type": "Bearer"})), DpopKey.new())
    assert (found.token_type, found.dpop_key) == ("Bearer", None)


def test_a_key_does_not_tell_itself() -> None:
    key = DpopKey.new()
    assert repr(key) == "DpopKey()"
    assert key.private.reveal() not in repr(DpopKey(key.private))


@pytest.mark.parametrize(("written", "read"), [("abc", "abc"), ("a b", ""), ("a" * 600, ""), ("é", ""), ("", "")])
def test_a_nonce_is_what_a_claim_can_hold(written: str, read: str) -> None:
    assert dpop_nonce(Headers((("dpop-nonce", written),))) == read
    assert dpop_nonce(Headers(())) == ""
