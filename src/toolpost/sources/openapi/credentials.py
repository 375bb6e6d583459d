"""Select the credentials of an operation by its security requirements."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

from toolpost.auth.oauth.client_tokens import ClientGrant, ClientTokens
from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.http.encoding import UnsendableError, check_header_value
from toolpost.schema.json_values import is_object
from toolpost.sources.openapi import models
from toolpost.sources.requests import NOTHING, Presentation, present_headers, present_key, present_token

_INTERACTIVE = frozenset({"digest", "negotiate", "ntlm", "hoba", "mutual", "scram-sha-1", "scram-sha-256"})
_PAIRS = (("client_id", "client_secret"), ("username", "password"))


class Credentials:
    """The credentials of operations; `values` come from `scheme_values`.

    `headers` are the configured headers of every request: one with the name of a scheme's header
    satisfies that scheme, and nothing is added for it.
    """

    def __init__(
        self,
        schemes: Mapping[str, models.SecurityScheme],
        values: Mapping[str, Any],
        *,
        source: str = "",
        tokens: ClientTokens | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._schemes = schemes
        self._values = values
        self._source = source
        self._tokens = tokens
        self._sent = {name.lower(): value for name, value in (headers or {}).items()}

    async def present(self, operation: models.ApiOperation, credential: Credential = NO_CREDENTIAL) -> Presentation:
        """Return the credentials to send; raise ToolAuthError naming the missing scheme and how to set it.

        `credential` is the source's plain one: it is used for the first scheme it fits, and sent
        unchanged if the document declares no scheme that it fits.
        """
        if not self._schemes:
            return present_headers(credential)
        # If authentication is optional (an empty alternative), a configured credential is still sent.
        for needs in sorted(operation.security, key=lambda needs: not needs):
            presentation = await self._alternative(needs, credential)
            if presentation is not None:
                return presentation
        if not operation.security:
            return NOTHING
        named = {need.scheme for needs in operation.security for need in needs}
        schemes = [self._schemes[name] for name in named if name in self._schemes]
        if credential.headers and all(_adapt(scheme, credential) is None for scheme in schemes):
            return present_headers(credential)
        raise ToolAuthError(self._missing(operation))

    def forget(self, presentation: Presentation) -> bool:
        """Discard the cached tokens of a presentation; return whether there were any."""
        for token in presentation.tokens:
            if self._tokens is not None:
                self._tokens.forget(token)
        return bool(presentation.tokens)

    async def _alternative(
        self, needs: tuple[models.SecurityRequirement, ...], credential: Credential
    ) -> Presentation | None:
        whole, plain = NOTHING, credential
        for need in needs:
            scheme = self._schemes.get(need.scheme)
            if scheme is None:
                return None
            presentation = await self._by_value(scheme, need)
            if presentation is None:
                presentation, plain = self._without_value(scheme, plain)
            if presentation is None:
                return None
            whole = presentation if whole is NOTHING else whole.joined(presentation)
        return whole

    def _without_value(
        self, scheme: models.SecurityScheme, plain: Credential
    ) -> tuple[Presentation | None, Credential]:
        """Use the plain credential if it fits, else a configured header; return it with the unused plain credential."""
        met = _is_satisfied(scheme, self._sent)
        if met and _header_of(scheme) not in map(str.lower, plain.headers):
            return NOTHING, plain
        presentation = _adapt(scheme, plain)
        if presentation is None and met:
            return NOTHING, plain
        return presentation, NO_CREDENTIAL

    async def _by_value(self, scheme: models.SecurityScheme, need: models.SecurityRequirement) -> Presentation | None:
        value = self._values.get(scheme.name)
        if not value or _explain_unsupported(scheme):
            return None
        if scheme.type in ("oauth2", "openIdConnect") and is_object(value) and "client_id" in value:
            return await self._by_client(scheme, value, need)
        return _check_presentation(scheme.name, _by_secret(scheme, value))

    async def _by_client(
        self, scheme: models.SecurityScheme, client: dict[str, Any], need: models.SecurityRequirement
    ) -> Presentation:
        if self._tokens is None:
            raise ConfigError(f"scheme {scheme.name!r} needs client credentials, but tokens cannot be requested here.")
        if not client.get("client_secret"):
            raise ConfigError(f"auth_config.schemes.{scheme.name} has a client_id and also needs a client_secret.")
        flow: Any = scheme.flows.get("clientCredentials")
        url = scheme.token_url or (flow.get("tokenUrl") if is_object(flow) else None)
        return present_token(await self._tokens.token(_grant(scheme.name, url, client, need.scopes)))

    def _missing(self, operation: models.ApiOperation) -> str:
        alternatives = [
            " together with ".join(self._describe_scheme(need.scheme) for need in n) for n in operation.security
        ]
        names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
        name = next((name for name in names if name not in self._values), names[0])
        return (
            f"{operation.method.upper()} {operation.path} needs a credential for {', or '.join(alternatives)}. "
            f"Set auth_config.schemes.{name} of source {self._source!r}, "
            f"or the environment variable {environment_variable(self._source, name)}."
        )

    def _describe_scheme(self, name: str) -> str:
        scheme = self._schemes.get(name)
        if scheme is None:
            return f"{name!r} (which the document does not explain)"
        return f"{name!r} ({_explain_unsupported(scheme) or _kind(scheme)})"


def _grant(name: str, token_url: str | None, config: dict[str, Any], scopes: tuple[str, ...]) -> ClientGrant:
    url = config.get("token_url") or token_url
    if not url:
        raise ConfigError(f"auth_config.schemes.{name} needs token_url: the document names none.")
    method = config.get("auth_method", "basic")
    if method not in ("basic", "post"):
        raise ConfigError(f"auth_config.schemes.{name}.auth_method is 'basic' or 'post', not {method!r}.")
    scope = config.get("scope", " ".join(scopes))
    return ClientGrant(
        label=name,
        token_url=str(url),
        client_id=str(config["client_id"]),
        client_secret=str(config["client_secret"]),
        scope=scope if isinstance(scope, str) else " ".join(map(str, scope)),
        extra=tuple((key, str(config[key])) for key in ("audience", "resource") if config.get(key)),
        method=method,
    )


def _by_secret(scheme: models.SecurityScheme, value: Any) -> Presentation:
    match scheme.type:
        case "apiKey":
            return present_key(
                scheme.location, scheme.parameter, _credential_text(scheme.name, value, "value", "api_key", "key")
            )
        case "http" if scheme.scheme.lower() == "basic":
            pair = _basic(scheme.name, value)
            return Presentation(headers=(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),))
        case "http" if scheme.scheme.lower() != "bearer":
            return Presentation(
                headers=(("Authorization", f"{scheme.scheme} {_credential_text(scheme.name, value, 'value')}"),)
            )
        case _:
            token = _credential_text(scheme.name, value, "token", "value")
            return Presentation(headers=(("Authorization", f"Bearer {token}"),))


def _credential_text(name: str, value: Any, *keys: str) -> str:
    text = next((value[key] for key in keys if key in value), None) if is_object(value) else value
    if isinstance(text, str) and text:
        return text
    raise ConfigError(f"auth_config.schemes.{name} must be a string, or a table with {' or '.join(keys)}.")


def _basic(name: str, value: Any) -> str:
    if is_object(value) and "username" in value:
        return f"{value['username']}:{value.get('password', '')}"
    if isinstance(value, str) and ":" in value:
        return value
    raise ConfigError(f"auth_config.schemes.{name} must be a table with username and password, or user:password.")


def _adapt(scheme: models.SecurityScheme, credential: Credential) -> Presentation | None:
    """Return the plain credential in the form of this scheme, or None if it does not fit."""
    headers = {name.lower(): value for name, value in credential.headers.items()}
    word = headers.get("authorization", "").partition(" ")[0].lower()
    match scheme.type:
        case "http" if word and word == scheme.scheme.lower():
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "oauth2" | "openIdConnect" if word == "bearer":
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "apiKey":
            key = _find_key(scheme, headers)
            return None if key is None else present_key(scheme.location, scheme.parameter, key)
        case _:
            return None


def _find_key(scheme: models.SecurityScheme, headers: Mapping[str, str]) -> str | None:
    if scheme.location == "header" and scheme.parameter.lower() in headers:
        return headers[scheme.parameter.lower()]
    if scheme.location == "cookie" and "cookie" in headers:
        return headers["cookie"].partition("=")[2]
    keys = [value for name, value in headers.items() if name not in ("authorization", "cookie")]
    return keys[0] if len(keys) == 1 else None


def _is_satisfied(scheme: models.SecurityScheme, sent: Mapping[str, str]) -> bool:
    if _explain_unsupported(scheme) or not sent.get(_header_of(scheme)):
        return False
    if scheme.type != "apiKey" or scheme.location == "header":
        return True
    return scheme.parameter in {pair.partition("=")[0].strip() for pair in sent["cookie"].split(";")}


def _header_of(scheme: models.SecurityScheme) -> str:
    """Return the lower-case header name of a scheme; empty for query schemes."""
    if scheme.type != "apiKey":
        return "authorization"
    return {"header": scheme.parameter.lower(), "cookie": "cookie"}.get(scheme.location, "")


def _explain_unsupported(scheme: models.SecurityScheme) -> str:
    if scheme.type == "mutualTLS":
        return "a client certificate, which is not supported"
    if scheme.type == "http" and scheme.scheme.lower() in _INTERACTIVE:
        return f"HTTP {scheme.scheme}, which is not supported"
    return ""


def _kind(scheme: models.SecurityScheme) -> str:
    match scheme.type:
        case "apiKey":
            return f"API key, {scheme.location} {scheme.parameter!r}"
        case "http":
            return f"HTTP {scheme.scheme}"
        case "oauth2":
            return "OAuth 2: an access token, or client_id and client_secret"
        case "openIdConnect" | "mutualTLS":
            return "OpenID Connect: an access token"


def _check_presentation(name: str, presentation: Presentation) -> Presentation:
    """Raise ConfigError, without the secret, if a value contains a character that is illegal in headers."""
    try:
        for _, value in presentation.headers:
            check_header_value(value)
    except (UnsendableError, UnicodeEncodeError):
        raise ConfigError(f"auth_config.schemes.{name} contains a character that is not allowed in a header.") from None
    return presentation


def scheme_values(
    source: str, auth_config: Mapping[str, Any], schemes: Iterable[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return scheme values by name, from `auth_config.schemes` or else the environment."""
    values: Any = auth_config.get("schemes") or {}
    if not is_object(values):
        raise ConfigError(f"auth_config.schemes of source {source!r} is a table: a scheme's name and its value.")
    scheme_names = list(schemes)
    if unknown := [name for name in values if name not in scheme_names]:
        names = ", ".join(map(repr, scheme_names)) or "none"
        raise ConfigError(f"auth_config.schemes of source {source!r}: no scheme {unknown[0]!r}; there are: {names}.")
    from_environment = {name: _read_environment(environment_variable(source, name), environ) for name in scheme_names}
    return {name: value for name, value in {**from_environment, **values}.items() if value}


def _read_environment(variable: str, environ: Mapping[str, str]) -> Any:
    for pair in _PAIRS:
        values = {key: environ.get(f"{variable}_{key.upper()}") for key in pair}
        if all(values.values()):
            return values
    return environ.get(variable)


def environment_variable(source: str, scheme: str) -> str:
    """Return the name of the environment variable with a scheme's value."""
    return re.sub(r"[^A-Z0-9]", "_", f"TOOLPOST_{source}_{scheme}".upper())
