"""What an operator wrote of the service that people sign in to for one source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.auth.oauth.client import AUTH_METHODS, Client
from toolpost.auth.oauth.handshake import SignIn
from toolpost.auth.oauth.metadata import configured_server
from toolpost.auth.oauth.registration import ClientProfile
from toolpost.auth.oauth.trust import Trust
from toolpost.auth.secret import Secret, secret_from
from toolpost.contracts.errors import ConfigError
from toolpost.schema.jsontypes import is_array

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.wire.network import NetworkPolicy

_URLS = ("issuer", "auth_url", "token_url", "revocation_url", "resource")
_KNOWN = frozenset(
    {
        *_URLS,
        "provider",
        "display_name",
        "client_id",
        "client_secret",
        "client_auth",
        "private_key",
        "key_id",
        "algorithm",
        "scopes",
        "document_url",
        "discovery",
        "token_env",
        "legacy",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service with accounts: its name for people, how to sign in, and for whom tokens are."""

    provider: str
    display_name: str
    plan: SignIn
    network: NetworkPolicy


def service_of(config: ExternalToolConfig, *, network: NetworkPolicy, profile: ClientProfile) -> Service:
    """Read `auth_config` of a source whose `auth_type` is `oauth2_user`."""
    given = config.auth_config
    _refuse_unknown(config.name, given)
    url = _url_of(config)
    written = [str(given[key]) for key in _URLS if given.get(key)]
    allowed = network.for_source(*dict.fromkeys([*([url] if url else []), *written]))
    plan = SignIn(
        url=url or str(given.get("auth_url") or given.get("issuer") or ""),
        profile=ClientProfile(
            name=profile.name,
            redirect_uris=profile.redirect_uris,
            document_url=given.get("document_url") or profile.document_url,
            uri=profile.uri,
            device=profile.device,
        ),
        trust=Trust(policy=allowed),
        registered=_client_of(config.name, given),
        issuer=given.get("issuer"),
        server=_server_of(given),
        scopes=_scopes_of(given),
        legacy=bool(given.get("legacy", False)),
    )
    if not plan.url:
        raise ConfigError(
            f"source {config.name!r} is for people's own accounts, but nothing says where they sign in: "
            "write issuer, or auth_url and token_url, into its auth_config"
        )
    provider = str(given.get("provider") or config.name)
    return Service(
        provider=provider,
        display_name=str(given.get("display_name") or provider),
        plan=plan,
        network=allowed,
    )


def _refuse_unknown(name: str, given: dict[str, Any]) -> None:
    if strangers := sorted(given.keys() - _KNOWN):
        raise ConfigError(
            f"auth_config of source {name!r} has no key {strangers[0]!r}; there are: {', '.join(sorted(_KNOWN))}"
        )


def _url_of(config: ExternalToolConfig) -> str:
    """What the tokens are for: what an operator says, else where the source is."""
    named = config.auth_config.get("resource") or config.base_url or config.connection
    return str(named) if str(named).startswith(("http://", "https://")) else ""


def _server_of(given: dict[str, Any]) -> Any:
    endpoints = given.get("auth_url"), given.get("token_url")
    if not any(endpoints):
        return None
    if not all(endpoints):
        raise ConfigError("auth_config needs auth_url and token_url together, or issuer alone")
    return configured_server(
        authorization_endpoint=str(endpoints[0]),
        token_endpoint=str(endpoints[1]),
        issuer=given.get("issuer"),
        revocation_endpoint=str(given.get("revocation_url") or ""),
    )


def _client_of(name: str, given: dict[str, Any]) -> Client | None:
    if not given.get("client_id"):
        if given.get("client_secret"):
            raise ConfigError(f"auth_config of source {name!r} has a client_secret, and needs client_id too")
        return None
    method = given.get("client_auth")
    if method is not None and method not in AUTH_METHODS:
        raise ConfigError(f"auth_config.client_auth of source {name!r} is one of: {', '.join(AUTH_METHODS)}")
    return Client(
        id=str(given["client_id"]),
        issuer=given.get("issuer"),
        secret=_secret(given.get("client_secret")),
        auth_method=method,
        private_key=_secret(given.get("private_key")),
        key_id=str(given.get("key_id") or ""),
        algorithm=str(given.get("algorithm") or "ES256"),
    )


def _secret(written: object) -> Secret | None:
    """A reference to a secret, or what a `${VAR}` of the configuration stood for."""
    return secret_from(str(written), allow_plain=True) if written else None


def _scopes_of(given: dict[str, Any]) -> tuple[str, ...]:
    written: object = given.get("scopes") or ()
    if isinstance(written, str):
        return tuple(written.split())
    return tuple(map(str, written)) if is_array(written) else ()
