"""Which credential an operation gets: the first of its alternatives that can be met, by the names of its schemes."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.schema.jsontypes import is_object
from toolpost.web.encoding import (
    UnsendableError,
    sendable_header,
)
from toolpost.web.presentation import NOTHING, Presentation
from toolpost.web.tokens import grant_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.sources.openapi.models import ApiOperation, SecurityRequirement, SecurityScheme
    from toolpost.web.tokens import ClientTokens

_INTERACTIVE = frozenset({"digest", "negotiate", "ntlm", "hoba", "mutual", "scram-sha-1", "scram-sha-256"})
_PAIRS = (("client_id", "client_secret"), ("username", "password"))


def environment_variable(source: str, scheme: str) -> str:
    """The environment variable that holds the value of a scheme."""
    return re.sub(r"[^A-Z0-9]", "_", f"TOOLPOST_{source}_{scheme}".upper())


def scheme_values(
    source: str, auth_config: Mapping[str, Any], schemes: Iterable[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """The values of schemes by name: from `auth_config.schemes`, else from the environment."""
    given: Any = auth_config.get("schemes") or {}
    if not is_object(given):
        raise ConfigError(f"auth_config.schemes of source {source!r} is a table: a scheme's name and its value.")
    known = list(schemes)
    if strangers := [name for name in given if name not in known]:
        names = ", ".join(map(repr, known)) or "none"
        raise ConfigError(f"auth_config.schemes of source {source!r}: no scheme {strangers[0]!r}; there are: {names}.")
    found = {name: _in_environment(environment_variable(source, name), environ) for name in known}
    return {name: value for name, value in {**found, **given}.items() if value}


def _in_environment(variable: str, environ: Mapping[str, str]) -> Any:
    for pair in _PAIRS:
        values = {key: environ.get(f"{variable}_{key.upper()}") for key in pair}
        if all(values.values()):
            return values
    return environ.get(variable)


class Credentials:
    """Presents what an operation asks for; `values` are those of `scheme_values`.

    `headers` are the operator's own, which go with every request: one that bears the name of a scheme's
    header is that scheme's credential, and nothing more has to be sent for it.
    """

    def __init__(
        self,
        schemes: Mapping[str, SecurityScheme],
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

    async def present(self, operation: ApiOperation, credential: Credential = NO_CREDENTIAL) -> Presentation:
        """What to send with an operation; ToolAuthError names what is missing and how to set it.

        `credential` is the source's plain one: it stands in for the first scheme it fits, and goes as
        it is where the document knows no schemes or none that it fits.
        """
        if not self._schemes:
            return _as_it_is(credential)
        # Where logging in is a choice (an empty alternative), a credential that is there is used.
        for needs in sorted(operation.security, key=lambda needs: not needs):
            found = await self._alternative(needs, credential)
            if found is not None:
                return found
        if not operation.security:
            return NOTHING
        if credential.headers and not self._fits_anywhere(operation, credential):
            return _as_it_is(credential)
        raise ToolAuthError(self._missing(operation))

    def forget(self, presented: Presentation) -> bool:
        """Whether there were tokens in it that can be had anew; they are not used again."""
        for token in presented.tokens:
            if self._tokens is not None:
                self._tokens.forget(token)
        return bool(presented.tokens)

    async def _alternative(self, needs: tuple[SecurityRequirement, ...], credential: Credential) -> Presentation | None:
        presented, plain = NOTHING, credential
        for need in needs:
            scheme = self._schemes.get(need.scheme)
            if scheme is None:
                return None
            found = await self._by_value(scheme, need)
            if found is None:
                found, plain = self._without_value(scheme, plain)
            if found is None:
                return None
            presented = found if presented is NOTHING else presented.joined(found)
        return presented

    def _without_value(self, scheme: SecurityScheme, plain: Credential) -> tuple[Presentation | None, Credential]:
        """The plain credential where it fits, else the operator's own header; and the plain one, if it is left."""
        met = _is_met(scheme, self._sent)
        if met and _header_of(scheme) not in map(str.lower, plain.headers):
            return NOTHING, plain
        found = _fitted(scheme, plain)
        if found is None and met:
            return NOTHING, plain
        return found, NO_CREDENTIAL

    async def _by_value(self, scheme: SecurityScheme, need: SecurityRequirement) -> Presentation | None:
        value = self._values.get(scheme.name)
        if not value or _unsupported(scheme):
            return None
        if scheme.type in ("oauth2", "openIdConnect") and is_object(value) and "client_id" in value:
            return await self._by_client(scheme, value, need)
        return _checked(scheme.name, _by_secret(scheme, value))

    async def _by_client(
        self, scheme: SecurityScheme, given: dict[str, Any], need: SecurityRequirement
    ) -> Presentation:
        if self._tokens is None:
            raise ConfigError(f"scheme {scheme.name!r} wants client credentials, but nothing can fetch tokens here.")
        if not given.get("client_secret"):
            raise ConfigError(f"auth_config.schemes.{scheme.name} has a client_id, and needs client_secret too.")
        flow: Any = scheme.flows.get("clientCredentials")
        url = scheme.token_url or (flow.get("tokenUrl") if is_object(flow) else None)
        token = await self._tokens.token(grant_of(scheme.name, url, given, need.scopes))
        return Presentation(headers=(("Authorization", f"{token.kind} {token.value}"),), tokens=(token.value,))

    def _fits_anywhere(self, operation: ApiOperation, credential: Credential) -> bool:
        named = {need.scheme for needs in operation.security for need in needs}
        schemes = [self._schemes[name] for name in named if name in self._schemes]
        return any(_fitted(scheme, credential) is not None for scheme in schemes)

    def _missing(self, operation: ApiOperation) -> str:
        alternatives = [" together with ".join(self._described(need.scheme) for need in n) for n in operation.security]
        names = list(dict.fromkeys(need.scheme for needs in operation.security for need in needs))
        name = next((name for name in names if name not in self._values), names[0])
        return (
            f"{operation.method.upper()} {operation.path} needs a credential for {', or '.join(alternatives)}. "
            f"Set auth_config.schemes.{name} of source {self._source!r}, "
            f"or the environment variable {environment_variable(self._source, name)}."
        )

    def _described(self, name: str) -> str:
        scheme = self._schemes.get(name)
        if scheme is None:
            return f"{name!r} (which the document does not explain)"
        return f"{name!r} ({_unsupported(scheme) or _kind(scheme)})"


def _by_secret(scheme: SecurityScheme, value: Any) -> Presentation:
    match scheme.type:
        case "apiKey":
            return _placed(scheme, _text(scheme.name, value, "value", "api_key", "key"))
        case "http" if scheme.scheme.lower() == "basic":
            pair = _basic(scheme.name, value)
            return Presentation(headers=(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),))
        case "http" if scheme.scheme.lower() != "bearer":
            return Presentation(headers=(("Authorization", f"{scheme.scheme} {_text(scheme.name, value, 'value')}"),))
        case _:
            token = _text(scheme.name, value, "token", "value")
            return Presentation(headers=(("Authorization", f"Bearer {token}"),))


def _placed(scheme: SecurityScheme, key: str) -> Presentation:
    pair = ((scheme.parameter, key),)
    match scheme.location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            return Presentation(headers=pair)


def _text(name: str, value: Any, *keys: str) -> str:
    found = next((value[key] for key in keys if key in value), None) if is_object(value) else value
    if isinstance(found, str) and found:
        return found
    raise ConfigError(f"auth_config.schemes.{name} wants a text, or a table with {' or '.join(keys)}.")


def _basic(name: str, value: Any) -> str:
    if is_object(value) and "username" in value:
        return f"{value['username']}:{value.get('password', '')}"
    if isinstance(value, str) and ":" in value:
        return value
    raise ConfigError(f"auth_config.schemes.{name} wants a table with username and password, or user:password.")


def _fitted(scheme: SecurityScheme, credential: Credential) -> Presentation | None:
    """The source's plain credential as this scheme wants it, if it is of its kind."""
    headers = {name.lower(): value for name, value in credential.headers.items()}
    word = headers.get("authorization", "").partition(" ")[0].lower()
    match scheme.type:
        case "http" if word and word == scheme.scheme.lower():
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "oauth2" | "openIdConnect" if word == "bearer":
            return Presentation(headers=(("Authorization", headers["authorization"]),))
        case "apiKey":
            key = _plain_key(scheme, headers)
            return None if key is None else _placed(scheme, key)
        case _:
            return None


def _plain_key(scheme: SecurityScheme, headers: Mapping[str, str]) -> str | None:
    if scheme.location == "header" and scheme.parameter.lower() in headers:
        return headers[scheme.parameter.lower()]
    if scheme.location == "cookie" and "cookie" in headers:
        return headers["cookie"].partition("=")[2]
    keys = [value for name, value in headers.items() if name not in ("authorization", "cookie")]
    return keys[0] if len(keys) == 1 else None


def _is_met(scheme: SecurityScheme, sent: Mapping[str, str]) -> bool:
    """Whether headers that are sent anyway hold what a scheme asks for."""
    if _unsupported(scheme) or not sent.get(_header_of(scheme)):
        return False
    if scheme.type != "apiKey" or scheme.location == "header":
        return True
    return scheme.parameter in {pair.partition("=")[0].strip() for pair in sent["cookie"].split(";")}


def _header_of(scheme: SecurityScheme) -> str:
    """The header that carries a scheme's credential, in small letters; empty for one that goes in the query."""
    if scheme.type != "apiKey":
        return "authorization"
    return {"header": scheme.parameter.lower(), "cookie": "cookie"}.get(scheme.location, "")


def _as_it_is(credential: Credential) -> Presentation:
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )


def _unsupported(scheme: SecurityScheme) -> str:
    """Why a scheme cannot be met by a value, if that is so."""
    if scheme.type == "mutualTLS":
        return "a client certificate, which is not supported"
    if scheme.type == "http" and scheme.scheme.lower() in _INTERACTIVE:
        return f"HTTP {scheme.scheme}, which is not supported"
    return ""


def _kind(scheme: SecurityScheme) -> str:
    match scheme.type:
        case "apiKey":
            return f"API key, {scheme.location} {scheme.parameter!r}"
        case "http":
            return f"HTTP {scheme.scheme}"
        case "oauth2":
            return "OAuth 2: an access token, or client_id and client_secret"
        case "openIdConnect" | "mutualTLS":
            return "OpenID Connect: an access token"


def _checked(name: str, presented: Presentation) -> Presentation:
    """A secret with a line break would end a header early; the message must not show it."""
    try:
        for _, value in presented.headers:
            sendable_header(value)
    except (UnsendableError, UnicodeEncodeError):
        raise ConfigError(f"auth_config.schemes.{name} holds a character that a header cannot carry.") from None
    return presented
