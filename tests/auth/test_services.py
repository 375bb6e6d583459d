"""`auth_config` of sources for people's own accounts: what an operator can write, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from toolpost.auth.oauth.client import ClientProfile
from toolpost.auth.oauth.grants import IdentityProvider
from toolpost.auth.oauth.sign_in import Assertion
from toolpost.auth.secret import Secret
from toolpost.auth.services import Service, plan_secrets, service_of
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType, TransportType
from toolpost.wire.network import NetworkPolicy

PROVIDER = {"token_url": "https://idp.example/token", "client_id": "us", "id_token": "who-i-am"}


def service(transport: TransportType = TransportType.MCP, **auth_config: Any) -> Service:
    config = ExternalToolConfig(
        name="web",
        transport=transport,
        connection="https://mcp.example/mcp",
        auth_type=AuthType.OAUTH2_USER,
        auth_config=auth_config,
    )
    serves_metadata = transport is TransportType.MCP
    return service_of(config, network=NetworkPolicy(), profile=ClientProfile(), serves_metadata=serves_metadata)


def test_without_a_word_a_person_consents_and_the_server_says_the_rest() -> None:
    found = service()
    assert (found.provider, found.attended, found.plan.url) == ("web", True, "https://mcp.example/mcp")
    assert (found.plan.registered, found.plan.issuer, found.plan.legacy) == (None, None, False)


def test_a_resource_is_named_to_mcp_servers_and_to_others_only_where_an_operator_says_so() -> None:
    assert service().resource == "https://mcp.example/mcp"
    assert service(TransportType.HTTP).resource is None
    assert service(TransportType.HTTP, resource="https://api.example").resource == "https://api.example"


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"grant": "client_credentials", "client_id": "robot"}, str),
        ({"grant": "jwt_bearer", "assertion": "a-statement"}, Assertion),
        ({"grant": "enterprise", "identity_provider": PROVIDER}, IdentityProvider),
    ],
    ids=["client_credentials", "jwt_bearer", "enterprise"],
)
def test_grants_that_need_no_person(written: dict[str, Any], kind: type) -> None:
    found = service(**written)
    assert not found.attended
    assert isinstance(found.plan.grant, kind)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"sope": "x"}, "has no key 'sope'"),
        ({"grant": "password"}, "is one of code, client_credentials, jwt_bearer, enterprise, not 'password'"),
        ({"grant": "client_credentials"}, "needs a client_id"),
        ({"grant": "jwt_bearer"}, "jwt_bearer and assertion belong together"),
        ({"assertion": "x"}, "jwt_bearer and assertion belong together"),
        ({"grant": "enterprise"}, "enterprise and identity_provider belong together"),
        ({"grant": "enterprise", "identity_provider": {"client_id": "us"}}, "token_url, client_id and id_token"),
        (
            {"grant": "enterprise", "identity_provider": {**PROVIDER, "x": 1}},
            "identity_provider of source 'web' has no",
        ),
        ({"client_secret": "x"}, "needs client_id too"),
        ({"auth_url": "https://x.example/a"}, "auth_url and token_url together"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_does_not_fit_is_refused_and_the_error_says_what_does(written: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        service(**written)


def test_a_statement_is_read_again_for_every_sign_in(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("monday")
    found = service(grant="jwt_bearer", assertion=f"file:{file}")
    file.write_text("tuesday")
    assert found.current_plan().grant == Assertion(token=Secret("tuesday"))


def test_the_secrets_of_a_plan_are_known_wherever_they_stand() -> None:
    provider = {**PROVIDER, "client_secret": "idp-secret"}
    plan = service(grant="enterprise", identity_provider=provider, client_id="us", client_secret="our-secret").plan
    assert plan_secrets(plan) == {"our-secret", "idp-secret", "who-i-am"}
    assert plan_secrets(service(grant="jwt_bearer", assertion="a-statement").plan) == {"a-statement"}
