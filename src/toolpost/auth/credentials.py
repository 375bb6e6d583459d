"""Credentials from the configuration of a source, and the choice of the credential for a call."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from toolpost.auth.variables import VariableFiller
from toolpost.contracts.calls import NO_CREDENTIAL, AuthorizedCall, Credential, PermittedCall
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.sources import CredentialProvider, RenewingProvider
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import is_secret_header, is_secret_name
from toolpost.wire.targets import parse_target

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig

ORIGIN = "origin"
"""Key of `auth_config`: the only origin that the credential is sent to."""
_log = logging.getLogger("toolpost.auth")
_SECRET_TOO = frozenset({"assertion", "discovery", "id_token"})
_INSIDE = re.compile(r"(?:[?&;\s-](?P<name>[A-Za-z][\w.-]*)(?:=|\s+)|://[^\s/@:]*:(?=[^\s/@]+@))(?P<secret>[^\s&;#@]+)")
_NOTHING: frozenset[str] = frozenset()


def static_credential(config: ExternalToolConfig) -> Credential:
    """Return the credential that all callers of a source share; none for OAuth of users."""
    headers = _headers(config)
    if not headers:
        return NO_CREDENTIAL
    bound = config.auth_config.get(ORIGIN)
    origin = parse_target(str(bound)).origin if bound else ""
    return Credential(f"static:{fingerprint(headers)}", headers, origin=origin)


def credential_headers(config: ExternalToolConfig) -> list[str]:
    """Return the names of the headers with secrets that every request of a source has, without their values."""
    own = [name for name, value in config.headers.items() if is_secret_header(name, value)]
    if config.auth_type is AuthType.OAUTH2_USER:
        return [*own, "Authorization"]
    return [*own, *_headers(config)]


def discovery_credential(config: ExternalToolConfig) -> Credential:
    """Return the credential that lists the tools of an OAuth source: `auth_config.discovery`, else none."""
    discovery: object = config.auth_config.get("discovery")
    if not discovery:
        return NO_CREDENTIAL
    token = discovery.get("token") if is_object(discovery) else discovery
    headers = {"Authorization": f"Bearer {token}"}
    return Credential(f"discovery:{fingerprint(headers)}", headers)


def fingerprint(headers: Mapping[str, str]) -> str:
    """Return a hash that identifies headers without their secrets."""
    text = "\0".join(f"{name}\0{value}" for name, value in sorted(headers.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _headers(config: ExternalToolConfig) -> dict[str, str]:
    options = config.auth_config
    match config.auth_type:
        case AuthType.API_KEY:
            return {str(options.get("header", "X-API-Key")): str(options["api_key"])}
        case AuthType.BEARER:
            return {"Authorization": f"Bearer {options['token']}"}
        case AuthType.COOKIE:
            return {"Cookie": f"{options.get('name', 'session')}={options['value']}"}
        case AuthType.BASIC:
            pair = f"{options['username']}:{options['password']}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        case AuthType.NONE | AuthType.OAUTH2_USER:
            return {}


def with_environment(config: ExternalToolConfig, environ: Mapping[str, str] | None = None) -> ExternalToolConfig:
    """Return the configuration with every `${VAR}` substituted; raise ToolAuthError if one is not set."""
    filler, filled = _filled(config, os.environ if environ is None else environ)
    for name in filler.missing:
        _log.warning("environment variable %r is not set; source %r cannot be used without it", name, config.name)
        raise ToolAuthError(f"Missing required environment variable '{name}' for ToolNode '{config.name}'")
    return filled


def _filled(config: ExternalToolConfig, environ: Mapping[str, str]) -> tuple[VariableFiller, ExternalToolConfig]:
    filler = VariableFiller(environ)
    return filler, filler.fill_model(config, without=("connection",) if is_inline(config) else ())


def is_inline(config: ExternalToolConfig) -> bool:
    """Return whether the connection is a whole manual in JSON; `${VAR}` in it belongs to the manual."""
    return config.connection.lstrip()[:1] in ("{", "[")


def secrets_of(config: ExternalToolConfig, *credentials: Credential) -> set[str]:
    """Return the secrets of a source to redact: keys, tokens and all other credentials."""
    configured = _auth_secrets(config.auth_config, all_of_it=config.auth_type is not AuthType.OAUTH2_USER)
    sent = {
        part
        for credential in (static_credential(config), *credentials)
        for value in credential.headers.values()
        for part in (value, value.rpartition(" ")[2])
    }
    return {secret for secret in (*named_secrets(config), *configured, *sent) if secret}


def named_secrets(config: ExternalToolConfig) -> frozenset[str]:
    """Return the keys and tokens anywhere in the configuration of a source.

    User names are excluded, because results may contain them for other reasons.
    """
    settings = {**config.env, **config.headers}
    named = {value for name, value in settings.items() if is_secret_name(name)}
    named |= {value for name, value in config.headers.items() if is_secret_header(name, value)}
    named |= set(_auth_secrets(config.auth_config, all_of_it=False))
    options = list(_strings("", config.options))
    named |= {value for name, value in options if is_secret_name(name)}
    texts = [config.connection, config.base_url or "", *(value for _, value in options), *settings.values()]
    inside = {match["secret"] for text in texts for match in _INSIDE.finditer(text) if _is_secret(match)}
    return frozenset(secret for secret in named | inside if secret)


def _strings(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the strings of a value at any depth, with the name of the member that contains each."""
    if isinstance(value, str):
        yield name, value
    elif is_object(value):
        for key, inner in value.items():
            yield from _strings(key, inner)
    elif is_array(value):
        for inner in value:
            yield from _strings(name, inner)


def _auth_secrets(table: dict[str, Any], *, all_of_it: bool) -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _auth_secrets(cast("dict[str, Any]", value), all_of_it=all_of_it)
        elif isinstance(value, str) and name != ORIGIN and (all_of_it or name in _SECRET_TOO or is_secret_name(name)):
            yield value


def _is_secret(match: re.Match[str]) -> bool:
    """Return whether a match is a secret: a password in a URL, or the value of a secret name."""
    return match["name"] is None or is_secret_name(match["name"])


def substituted(before: ExternalToolConfig, after: ExternalToolConfig, environ: Mapping[str, str]) -> set[str]:
    """Return the values that replaced variables."""
    return set() if before is after else _filled(before, environ)[0].used


class SourceAccess:
    """The credential of a source's calls, shared by all callers or one per user from a provider, and its secrets."""

    __slots__ = ("provider", "secrets", "shared")

    def __init__(self, provider: CredentialProvider | None = None) -> None:
        self.provider = provider
        self.shared = NO_CREDENTIAL
        self.secrets: frozenset[str] = _NOTHING  # additional secrets to redact in results

    async def authorize(self, call: PermittedCall) -> Credential | Question:
        """Return the credential of a call, or the question for it."""
        return self.shared if self.provider is None else await self.provider.credential(call)

    async def renewed(self, call: AuthorizedCall, refused: ToolError) -> Credential | Question | None:
        """Return another credential or a question after a rejection; None if neither helps."""
        return await self.provider.renewed(call, refused) if isinstance(self.provider, RenewingProvider) else None


class Authorizer:
    """The access of each source, by name; `providers` are those of the host application.

    Python tools run with the permissions of this process, so their calls have no credential.
    """

    def __init__(self, providers: Mapping[str, CredentialProvider] | None = None) -> None:
        self._providers = dict(providers or {})
        self._sources: dict[str, SourceAccess] = {}

    def new_access(self, source: str) -> SourceAccess:
        """Create the access of a source that is not in use yet."""
        return SourceAccess(self._providers.get(source))

    def install(self, source: str, access: SourceAccess) -> None:
        """Use this access for new calls; running calls keep theirs."""
        self._sources[source] = access

    def of(self, source: str) -> SourceAccess:
        """Return the access of a source."""
        access = self._sources.get(source)
        if access is None:
            access = self._sources[source] = self.new_access(source)
        return access
