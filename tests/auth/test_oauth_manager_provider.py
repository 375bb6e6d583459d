"""The whole way of a call, with an authorization server that nobody here wrote."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.auth.grants import store_of
from tests.auth.oauth.flows import claims_of
from tests.auth.oauth.provider import Browser, provider
from tests.patient_settings import PatientSettings
from tests.sources.mcp.programs import mirror
from toolpost import Completed, ExternalToolConfig, Toolbox
from toolpost.auth.managed_credentials import ManagedCredentials
from toolpost.auth.oauth_manager import OAuthCallbackError, OAuthManager, OAuthProviderConfig
from toolpost.auth.pending_sign_ins import EncryptedSignIns
from toolpost.auth.token_stores import VaultTokenStore
from toolpost.policy.secret_shapes import MASK

pytestmark = pytest.mark.programs

REDIRECT = "http://127.0.0.1:7777/callback"
CLIENT: dict[str, Any] = {
    "client_id": "web",
    "client_secret": "canary-client-secret",
    "token_endpoint_auth_method": "client_secret_post",
    "application_type": "native",
    "redirect_uris": [REDIRECT],
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(CLIENT) as url:
        yield url


def service(issuer: str) -> OAuthProviderConfig:
    return OAuthProviderConfig(
        "github",
        "GitHub",
        f"{issuer}/auth",
        f"{issuer}/token",
        "web",
        "canary-client-secret",
        REDIRECT,
        ["openid", "tools.read"],
        issuer=issuer,
    )


async def test_a_paused_call_continues_once_its_user_has_signed_in(issuer: str, tmp_path: Path) -> None:
    async with store_of("sqlite", tmp_path, time.time) as store:
        how: dict[str, Any] = {"token_store": VaultTokenStore(store.tokens), "pending": EncryptedSignIns(store.tokens)}
        here, there = [OAuthManager({"github": service(issuer)}, **how) for _ in range(2)]
        with mirror() as url:
            source = ExternalToolConfig(
                name="github", transport="mcp", connection=url, auth_type="oauth2_user", trust=True
            )
            settings = PatientSettings(data_dir=None, sources=[source])
            async with Toolbox(settings=settings, credentials={"github": ManagedCredentials(here, "github")}) as box:
                paused: Any = await box.call("github.headers", {}, user="acme:ann")
                back = await Browser(REDIRECT).visit(paused.question.payload["auth_url"])
                who = await there.handle_callback(back["code"], back["state"], iss=back["iss"], user_id="acme:ann")
                done = await box.answer(paused.pending_id, by=who[0])
        token = await here.get_token("acme:ann", "github")
    assert who == ("acme:ann", paused.run_id)
    assert isinstance(done, Completed)
    assert done.content["authorization"] == f"Bearer {MASK}"
    assert done.content["digest"] == hashlib.sha256(f"Bearer {token}".encode()).hexdigest()
    assert claims_of(str(token))[1]["sub"] == "alice"


async def test_a_code_serves_once_and_a_no_is_a_no(issuer: str) -> None:
    oauth = OAuthManager({"github": service(issuer)})
    first = await oauth.get_auth_request("github", "ann", "t")
    back = await Browser(REDIRECT).visit(first["auth_url"])
    await oauth.handle_callback(back["code"], back["state"])
    second = await oauth.get_auth_request("github", "bob", "t")
    with pytest.raises(OAuthCallbackError, match="OAuth error: grant request is invalid"):
        await oauth.handle_callback(back["code"], second["state"])
    third = await oauth.get_auth_request("github", "bob", "t")
    denied = await Browser(REDIRECT, says_yes=False).visit(third["auth_url"])
    with pytest.raises(OAuthCallbackError) as raised:
        await oauth.handle_callback(
            "", denied["state"], error=denied["error"], error_description=denied["error_description"]
        )
    assert raised.value.cause == "denied"
    assert await oauth.get_token("bob", "github") is None
