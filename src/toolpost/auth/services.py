"""Services that users sign in to, read from `auth_config` of a source with `auth_type: oauth2_user`.

The issuer is `issuer`, or `auth_url` and `token_url` (with `revocation_url`, and `device_url` for device codes), or a
known service named by `provider`. A server that publishes its issuer (RFC 9728) needs none of them. With `legacy`, a
server without metadata is its own issuer, as in MCP 2025-03-26.

Tokens are for `resource`, or for the address of the source. Beside an issuer or endpoints, `resource` is only an
identifier from which nothing is fetched. `scopes` are requested in addition to those that the server names. The client
is `client_id` with `client_secret` or `private_key` (`algorithm`, `key_id`) and `client_auth`, or the `document_url` of
our client document; without either, we register dynamically.

`grant` is the kind of grant. `code` is the consent of a user. The others need no user, and every caller acts as the
program: `client_credentials`; `jwt_bearer` with an `assertion` of the workload; `enterprise` with an
`identity_provider` (`token_url`, `client_id`, `client_secret`, `id_token`), which asserts the user in the id_token.

`provider` and `display_name` name the service, `discovery` is a token to list tools with, and `token_env` is the
variable from which a command reads its token. Write secrets as `env:NAME`, `file:PATH` or `keyring:SERVICE/NAME`. An
`assertion` and an `id_token` are read again for every sign-in, because they expire.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.oauth.client import AUTH_METHODS, Client, ClientProfile
from toolpost.auth.oauth.grants import IdentityProvider
from toolpost.auth.oauth.metadata import ServerMetadata, Trust, configured_server, origin_of, resource_of
from toolpost.auth.oauth.sign_in import Assertion, SignInPlan
from toolpost.auth.providers import KNOWN_PROVIDERS, with_known_endpoints
from toolpost.auth.secret import Secret, revealed, secret_from
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.nearest_names import did_you_mean
from toolpost.contracts.records import represent
from toolpost.schema.json_values import as_object, is_array, is_object
from toolpost.wire.network import NetworkPolicy

_URLS = ("issuer", "auth_url", "token_url", "revocation_url", "device_url")
_GRANTS = ("code", "client_credentials", "jwt_bearer", "enterprise")
_PROVIDER = frozenset({"token_url", "client_id", "client_secret", "id_token"})
_KNOWN = frozenset(
    {
        *_URLS,
        "resource",
        "grant",
        "assertion",
        "identity_provider",
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


class Service(Struct, frozen=True, kw_only=True):
    """A service with accounts: its names, its sign-in plan and network policy.

    Without discovery, tokens are requested for `resource` (RFC 8707).
    """

    provider: str
    display_name: str
    plan: SignInPlan
    network: NetworkPolicy
    resource: str | None = None
    read_assertion: Callable[[], Assertion | IdentityProvider] | None = None

    def __repr__(self) -> str:
        return represent(self, without=("read_assertion",))

    @property
    def attended(self) -> bool:
        """Whether a user must consent."""
        return self.plan.grant == "code"

    def current_plan(self) -> SignInPlan:
        """Return the plan with the current assertion or id_token."""
        return self.plan if self.read_assertion is None else replace(self.plan, grant=self.read_assertion())


def plan_secrets(plan: SignInPlan) -> set[str]:
    """Return the secrets of a plan, for redaction."""
    secrets: list[Secret | None] = []
    for client in (plan.registered, plan.grant.client if isinstance(plan.grant, IdentityProvider) else None):
        secrets += [] if client is None else [client.secret, client.private_key]
    match plan.grant:
        case Assertion(token=token) | IdentityProvider(id_token=token):
            secrets.append(token)
        case _:
            pass
    return revealed(one for one in secrets if one)


def service_of(
    config: ExternalToolConfig, *, network: NetworkPolicy, profile: ClientProfile, serves_metadata: bool
) -> Service:
    """Read `auth_config` of a source with `auth_type: oauth2_user`.

    With `serves_metadata`, a remote server publishes its issuer, and tokens are always for its address.
    """
    _refuse_unknown(config.name, config.auth_config)
    url = _url_of(config)
    options = dict(config.auth_config)
    if not (serves_metadata and url):
        options = with_known_endpoints(options, str(options.get("provider") or config.name))
    read_assertion = _assertion_reader(config.name, options)
    identity_provider = as_object(options.get("identity_provider"))
    urls = [url, *(str(options.get(key) or "") for key in _URLS), str(identity_provider.get("token_url") or "")]
    allowed = network.for_source(*dict.fromkeys(one for one in urls if one))
    plan = SignInPlan(
        url=url or str(options.get("auth_url") or options.get("issuer") or ""),
        profile=replace(profile, document_url=options.get("document_url") or profile.document_url),
        trust=Trust(policy=allowed),
        grant=_grant(config.name, options) if read_assertion is None else read_assertion(),
        registered=_client_of(config.name, options),
        issuer=options.get("issuer"),
        server=_server_of(options),
        resource=str(options["resource"]) if options.get("resource") else None,
        scopes=_scopes_of(options),
        legacy=bool(options.get("legacy", False)),
    )
    if not plan.url:
        raise ConfigError(
            f"source {config.name!r} uses accounts of users, but has no sign-in address: "
            "write issuer, or auth_url and token_url, or a known provider, into its auth_config; "
            f"known are: {', '.join(KNOWN_PROVIDERS)}"
        )
    provider = str(options.get("provider") or config.name)
    return Service(
        provider=provider,
        display_name=str(options.get("display_name") or provider),
        plan=plan,
        network=allowed,
        resource=_resource(config, serves_metadata=serves_metadata),
        read_assertion=read_assertion,
    )


def _refuse_unknown(name: str, config: dict[str, Any], known: frozenset[str] = _KNOWN, where: str = "") -> None:
    if unknown := sorted(config.keys() - known):
        near = did_you_mean(unknown[0], sorted(known))
        hint = f"{near} There are" if near else "there are"
        raise ConfigError(
            f"auth_config{where} of source {name!r} has no key {unknown[0]!r}; {hint}: {', '.join(sorted(known))}"
        )


def _grant(name: str, config: dict[str, Any]) -> Literal["code", "client"]:
    match config.get("grant", "code"):
        case "code":
            return "code"
        case "client_credentials":
            if not config.get("client_id"):
                raise ConfigError(f"auth_config of source {name!r} needs a client_id for the grant client_credentials")
            return "client"
        case other:
            raise ConfigError(f"auth_config.grant of source {name!r} is one of {', '.join(_GRANTS)}, not {other!r}")


def _assertion_reader(name: str, config: dict[str, Any]) -> Callable[[], Assertion | IdentityProvider] | None:
    """Return the function that reads the assertion or id_token at sign-in, for grants that need one."""
    kind = config.get("grant")
    for grant, key in (("jwt_bearer", "assertion"), ("enterprise", "identity_provider")):
        if (kind == grant) is not bool(config.get(key)):
            raise ConfigError(f"auth_config of source {name!r}: the grant {grant} and {key} belong together")
    if kind == "jwt_bearer":
        return lambda: Assertion(token=secret_from(str(config["assertion"]), allow_plain=True))
    if kind != "enterprise":
        return None
    value: object = config["identity_provider"]
    if not is_object(value) or not all(value.get(key) for key in ("token_url", "client_id", "id_token")):
        message = "must be an object with token_url, client_id and id_token"
        raise ConfigError(f"auth_config.identity_provider of source {name!r} {message}")
    _refuse_unknown(name, value, _PROVIDER, ".identity_provider")
    return partial(_identity_provider, value)


def _identity_provider(config: dict[str, Any]) -> IdentityProvider:
    url, secret = str(config["token_url"]), _secret(config.get("client_secret"))
    return IdentityProvider(
        server=ServerMetadata(issuer=origin_of(url), token_endpoint=url),
        client=Client(id=str(config["client_id"]), secret=secret),
        id_token=secret_from(str(config["id_token"]), allow_plain=True),
    )


def _resource(config: ExternalToolConfig, *, serves_metadata: bool) -> str | None:
    """Return the resource to request tokens for: always for MCP, else only if the operator names one."""
    named = config.auth_config.get("resource")
    if not named and serves_metadata and (url := _url_of(config)):
        return resource_of(url)
    return str(named) if named else None


def _url_of(config: ExternalToolConfig) -> str:
    """Return the URL of the tokens: the operator's resource, else the address of the source."""
    named = config.auth_config.get("resource") or config.base_url or config.connection
    return str(named) if str(named).startswith(("http://", "https://")) else ""


def _server_of(config: dict[str, Any]) -> Any:
    endpoints = config.get("auth_url"), config.get("token_url")
    if not any(endpoints):
        return None
    if not all(endpoints):
        raise ConfigError("auth_config needs auth_url and token_url together, or issuer alone")
    return configured_server(
        authorization_endpoint=str(endpoints[0]),
        token_endpoint=str(endpoints[1]),
        issuer=config.get("issuer"),
        revocation_endpoint=str(config.get("revocation_url") or ""),
        device_endpoint=str(config.get("device_url") or ""),
    )


def _client_of(name: str, config: dict[str, Any]) -> Client | None:
    if not config.get("client_id"):
        if config.get("client_secret"):
            raise ConfigError(f"auth_config of source {name!r} has a client_secret, and needs client_id too")
        return None
    method = config.get("client_auth")
    if method is not None and method not in AUTH_METHODS:
        raise ConfigError(f"auth_config.client_auth of source {name!r} is one of: {', '.join(AUTH_METHODS)}")
    return Client(
        id=str(config["client_id"]),
        issuer=config.get("issuer"),
        secret=_secret(config.get("client_secret")),
        auth_method=method,
        private_key=_secret(config.get("private_key")),
        key_id=str(config.get("key_id") or ""),
        algorithm=str(config.get("algorithm") or "ES256"),
    )


def _secret(value: object) -> Secret | None:
    """Read a secret from a reference or a substituted value."""
    return secret_from(str(value), allow_plain=True) if value else None


def _scopes_of(config: dict[str, Any]) -> tuple[str, ...]:
    value: object = config.get("scopes") or ()
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(map(str, value)) if is_array(value) else ()
