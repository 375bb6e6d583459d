"""Credentials that stand in the configuration: a key, a token, a cookie, a name with its password."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.config import AuthType, TransportType
from toolpost.contracts.errors import ToolAuthError
from toolpost.schema.jsontypes import is_object
from toolpost.schema.secrets import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolpost.contracts.config import ExternalToolConfig

_FILLED = ("connection", "env", "cwd", "headers", "auth_config")
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_log = logging.getLogger("toolpost.auth")


def static_credential(config: ExternalToolConfig) -> Credential:
    """The credential that every caller of a source shares; none for sources that know each user by name."""
    headers = _headers(config)
    if not headers:
        return NO_CREDENTIAL
    return Credential(f"static:{fingerprint(headers)}", headers)


def discovery_credential(config: ExternalToolConfig) -> Credential:
    """What a source for people's own accounts lists its tools with: `auth_config.discovery`, else nothing."""
    given: object = config.auth_config.get("discovery")
    if not given:
        return NO_CREDENTIAL
    token = given.get("token") if is_object(given) else given
    headers = {"Authorization": f"Bearer {token}"}
    return Credential(f"discovery:{fingerprint(headers)}", headers)


def fingerprint(headers: Mapping[str, str]) -> str:
    """What tells credentials apart without telling them."""
    told = "\0".join(f"{name}\0{value}" for name, value in sorted(headers.items()))
    return hashlib.sha256(told.encode()).hexdigest()


def _headers(config: ExternalToolConfig) -> dict[str, str]:
    given = config.auth_config
    match config.auth_type:
        case AuthType.API_KEY:
            return {str(given.get("header", "X-API-Key")): str(given["api_key"])}
        case AuthType.BEARER:
            return {"Authorization": f"Bearer {given['token']}"}
        case AuthType.COOKIE:
            return {"Cookie": f"{given.get('name', 'session')}={given['value']}"}
        case AuthType.BASIC:
            pair = f"{given['username']}:{given['password']}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        case AuthType.NONE | AuthType.OAUTH2_USER:
            return {}


def with_environment(config: ExternalToolConfig, environ: Mapping[str, str] | None = None) -> ExternalToolConfig:
    """The configuration with every `${VAR}` filled in; ToolAuthError names the first one that is not set."""
    known = os.environ if environ is None else environ
    names = ("env", "cwd", "headers", "auth_config") if is_inline(config) else _FILLED
    filled = {key: _filled(getattr(config, key), config.name, known) for key in names}
    variables = _filled(config.utcp.variables, config.name, known)
    filled["utcp"] = config.utcp.model_copy(update={"variables": variables})
    signature = config.webhook.signature
    if signature is not None:
        signed = signature.model_copy(update={"secret": _filled(signature.secret, config.name, known)})
        filled["webhook"] = config.webhook.model_copy(update={"signature": signed})
    return config.model_copy(update=filled)


def is_inline(config: ExternalToolConfig) -> bool:
    """Whether the connection is a whole UTCP manual, whose `${VAR}` are the manual's own."""
    return config.transport is TransportType.UTCP and config.connection.lstrip()[:1] in ("{", "[")


def _filled(value: Any, source: str, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _variable(found[1], source, environ), value)
    if isinstance(value, dict):
        return {key: _filled(inner, source, environ) for key, inner in cast("dict[str, Any]", value).items()}
    return value


def _variable(name: str, source: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if value is None:
        _log.warning("environment variable %r is not set; source %r cannot be used without it", name, source)
        raise ToolAuthError(f"Missing required environment variable '{name}' for ToolNode '{source}'")
    return value


def secrets_of(config: ExternalToolConfig, *credentials: Credential) -> set[str]:
    """What must not be told of a source: keys and tokens, wherever in its configuration they stand."""
    given = {**config.env, **config.headers}
    named = {value for name, value in given.items() if is_secret_name(name)}
    named |= {value for name, value in config.auth_config.items() if isinstance(value, str) and _hides(config, name)}
    named |= {value for name, value in config.utcp.variables.items() if is_secret_name(name)}
    if config.webhook.signature is not None:
        named.add(config.webhook.signature.secret)
    sent = {
        part
        for credential in (static_credential(config), *credentials)
        for value in credential.headers.values()
        for part in (value, value.rpartition(" ")[2])
    }
    texts = [config.connection, *given.values()]
    inside = {found["secret"] for text in texts for found in _INSIDE.finditer(text) if _tells(found)}
    return {secret for secret in named | sent | inside if secret}


def _hides(config: ExternalToolConfig, name: str) -> bool:
    """Whether a value of `auth_config` is a secret; of people's accounts it mostly says where they sign in."""
    return config.auth_type is not AuthType.OAUTH2_USER or name in {"assertion", "discovery"} or is_secret_name(name)


def _secret_part(config: ExternalToolConfig) -> dict[str, Any]:
    """What of `auth_config` is secret; for people's own accounts it is mostly addresses and names."""
    given = config.auth_config
    if config.auth_type is not AuthType.OAUTH2_USER:
        return given
    return {name: value for name, value in given.items() if is_secret_name(name) or isinstance(value, dict)}


def _texts(value: Any) -> Iterator[str]:
    """Every text of a table, however deep it stands."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, Any]", value).values():
            yield from _texts(inner)


_INSIDE = re.compile(r"(?:[?&;\s-](?P<name>[A-Za-z][\w.-]*)(?:=|\s+)|://[^\s/@:]*:(?=[^\s/@]+@))(?P<secret>[^\s&;#@]+)")


def _tells(found: re.Match[str]) -> bool:
    """Whether what stands behind a name, or before the host of an address, is a secret."""
    return found["name"] is None or is_secret_name(found["name"])


def substituted(before: ExternalToolConfig, after: ExternalToolConfig, environ: Mapping[str, str]) -> set[str]:
    """The values that took the place of variables."""
    if before is after:
        return set()
    kept = [] if is_inline(before) else [before.connection]
    signature = before.webhook.signature
    kept += [] if signature is None else [signature.secret]
    text = json.dumps([*kept, before.env, before.headers, before.auth_config, before.utcp.variables], default=str)
    return {environ[name] for name in _VARIABLE.findall(text) if environ.get(name)}
