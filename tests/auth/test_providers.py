"""Services whose endpoints are known by their name."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.patient_settings import PatientSettings
from toolpost import ConfigError, ExternalToolConfig, OAuthProviderConfig, Toolbox, get_preset
from toolpost.auth.providers import KNOWN_PROVIDERS
from toolpost.configuration.settings import AccountSettings
from toolpost.contracts.principal import Principal

ANN = Principal("acme", "ann")


def api(name: str = "work", **auth: Any) -> ExternalToolConfig:
    return ExternalToolConfig(
        name=name,
        transport="http",
        connection="https://api.example/openapi.json",
        auth_type="oauth2_user",
        auth_config={"client_id": "id-1", "client_secret": "s3cret-of-the-app", **auth},
    )


def toolbox(source: ExternalToolConfig) -> Toolbox:
    accounts = AccountSettings(redirect_uri="http://127.0.0.1:7777/callback")
    return Toolbox(settings=PatientSettings(data_dir=None, sources=[source], accounts=accounts))


async def sign_in_url(source: ExternalToolConfig) -> str:
    """Where a person is sent; nothing is fetched before."""
    async with toolbox(source) as box:
        (account,) = await box.accounts.states(ANN)
        begun: Any = await box.accounts.connect(account.provider, ANN)
    return str(begun.url)


def test_at_least_seven_services_are_known_and_all_of_them_over_tls() -> None:
    wanted = {"atlassian", "github", "gitlab", "google", "linear", "microsoft", "notion", "slack"}
    urls = [url for known in KNOWN_PROVIDERS.values() for url in known if url.startswith("http")]

    assert wanted <= KNOWN_PROVIDERS.keys()
    assert {urlsplit(url).scheme for url in urls} == {"https"}


@pytest.mark.parametrize("provider", sorted(KNOWN_PROVIDERS))
async def test_a_service_named_as_provider_needs_no_endpoints(provider: str) -> None:
    url = urlsplit(await sign_in_url(api(provider=provider)))
    known = urlsplit(KNOWN_PROVIDERS[provider].auth_url)
    query = parse_qs(url.query)

    assert url[:3] == known[:3]
    assert parse_qs(known.query).items() <= query.items()
    assert query["client_id"] == ["id-1"]
    assert query["code_challenge_method"] == ["S256"]
    assert "s3cret" not in url.geturl()


async def test_what_an_operator_writes_is_stronger_than_what_is_known() -> None:
    own = {
        "auth_url": "https://ghe.example/login/oauth/authorize",
        "token_url": "https://ghe.example/login/oauth/token",
    }

    assert (await sign_in_url(api(provider="github", **own))).startswith("https://ghe.example/")


async def test_a_service_that_is_not_known_is_reported_with_those_that_are() -> None:
    command = ExternalToolConfig(
        name="srv",
        transport="mcp",
        connection="some-server",
        auth_type="oauth2_user",
        auth_config={"token_env": "TOKEN", "provider": "nowhere", "client_id": "x"},
    )
    async with toolbox(command) as box:
        (state,) = box.report

    assert "has no sign-in address" in str(state.error)
    assert "github" in str(state.error)


def test_an_applications_own_manager_can_use_a_known_service() -> None:
    made = OAuthProviderConfig.known(
        "github", client_id="id-1", client_secret="env:X", redirect_uri="https://app.example/cb", scopes=["repo"]
    )

    assert (made.name, made.display_name) == ("github", "GitHub")
    assert made.auth_url == KNOWN_PROVIDERS["github"].auth_url
    with pytest.raises(ConfigError, match=r"'gthub'.*github"):
        OAuthProviderConfig.known("gthub", client_id="x", client_secret="", redirect_uri="https://app.example/cb")


def test_the_presets_of_seed_servers_keep_their_names_and_commands() -> None:
    github = get_preset("github")

    assert (github.connection, github.auth_type.value) == (
        "npx -y @modelcontextprotocol/server-github",
        "oauth2_user",
    )
