"""An issuer that sends people on to another's sign-in gets nothing of what comes of it (RFC 9700 section 4.4)."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.auth.small_issuer import ANN, SmallIssuer, source
from tests.patient_settings import PatientSettings
from tests.toolbox.signing_in import Person, address, logged_in, served
from toolpost import ConfigError, OAuthManager, OAuthProviderConfig, Paused, Toolbox
from toolpost.auth.oauth_manager import OAuthCallbackError
from toolpost.configuration.settings import AccountSettings
from toolpost.toolbox.callback_app import callback_app


@pytest.fixture
async def honest() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


@pytest.fixture
async def evil() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


async def test_a_code_of_one_issuer_is_not_given_to_another(
    honest: SmallIssuer, evil: SmallIssuer, tmp_path: Path
) -> None:
    sources = [
        source("notes", honest, tmp_path, **honest.endpoints()),
        source("evil", evil, tmp_path, **evil.endpoints()),
    ]
    with address() as (url, listening):
        accounts = AccountSettings(public_url=url)
        settings = PatientSettings(data_dir=None, policy="exploratory", sources=sources, accounts=accounts)
        async with (
            Toolbox(settings=settings) as box,
            served(callback_app(box, identify=logged_in), listening),
            Person() as ann,
        ):
            asked = [await box.call(f"{name}.read", user=ANN) for name in ("notes", "evil")]
            links = [one.question.payload["auth_url"] for one in asked if isinstance(one, Paused)]
            sent = [(await ann.presses(await ann.opens(link))).headers["location"] for link in links]
            at_honest, at_evil = (dict(parse_qsl(urlsplit(one).query)) for one in sent)
            # The evil issuer sends Ann on to the honest one, which answers to the address that it knows for its client.
            mixed = {"state": at_evil["state"], "code": "of-the-honest-one"}
            refused = await ann.opens(f"{at_honest['redirect_uri']}?{urlencode(mixed)}")
            right = await ann.opens(f"{at_evil['redirect_uri']}?{urlencode({**mixed, 'code': 'its-own'})}")

    assert (at_honest["redirect_uri"], at_evil["redirect_uri"]) == (
        f"{url}/oauth/callback/notes",
        f"{url}/oauth/callback/evil",
    )
    assert (refused.status_code, "from another issuer" in refused.text) == (400, True)
    assert (right.status_code, [form["code"] for form in evil.forms]) == (200, ["its-own"])


def service(issuer: SmallIssuer, redirect_uri: str) -> OAuthProviderConfig:
    return OAuthProviderConfig(
        "any", "Any", f"{issuer.url}/authorize", f"{issuer.url}/token", "app", "canary-of-the-client", redirect_uri
    )


async def test_a_program_says_from_which_of_its_providers_a_code_came(honest: SmallIssuer, evil: SmallIssuer) -> None:
    places = [f"https://app.example/callback/{name}" for name in ("notes", "evil")]
    oauth = OAuthManager({"notes": service(honest, places[0]), "evil": service(evil, places[1])})
    state = (await oauth.get_auth_request("evil", "ann"))["state"]

    for came_from in ("notes", None):
        with pytest.raises(OAuthCallbackError) as refused:
            await oauth.handle_callback("of-the-honest-one", state, provider=came_from)
        assert refused.value.cause == "other_issuer"
    assert await oauth.handle_callback("its-own", state, provider="evil") == ("ann", "")
    assert [form["code"] for form in evil.forms] == ["its-own"]


def test_two_providers_may_not_share_a_redirect_uri(honest: SmallIssuer) -> None:
    shared = "https://app.example/callback"
    with pytest.raises(ConfigError, match="'evil' and 'notes' have the same redirect_uri"):
        OAuthManager({"notes": service(honest, shared), "evil": service(honest, shared)})
