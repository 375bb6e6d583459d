"""Auth objects of call templates, and what they present with a request."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.web.encoding import UnsendableError, sendable_header
from toolpost.web.presentation import NOTHING, Presentation
from toolpost.web.tokens import ClientGrant, ClientTokens

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.web.sending import Send
    from toolpost.web.tokens import Token


class _Object(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class ApiKeyAuth(_Object):
    """A key under a name; a bearer token is one in the header Authorization."""

    auth_type: Literal["api_key"]
    api_key: str = Field(min_length=1, repr=False)
    var_name: str = Field(default="X-Api-Key", min_length=1)
    location: Literal["header", "query", "cookie"] = "header"


class BasicAuth(_Object):
    """A name and a password."""

    auth_type: Literal["basic"]
    username: str
    password: str = Field(repr=False)


class OAuth2Auth(_Object):
    """A client that gets tokens with credentials of its own (RFC 6749 section 4.4)."""

    auth_type: Literal["oauth2"]
    token_url: str = Field(min_length=1)
    client_id: str
    client_secret: str = Field(repr=False)
    scope: str | None = None


AuthObject = Annotated[ApiKeyAuth | BasicAuth | OAuth2Auth, Field(discriminator="auth_type")]


class TemplateTokens:
    """The tokens that templates ask for; it remembers of which clients the secret is only taken in a header."""

    def __init__(self, send: Send) -> None:
        self._tokens = ClientTokens(send)
        self._by_header: set[OAuth2Auth] = set()

    async def token(self, auth: OAuth2Auth) -> Token:
        """A token; the secret goes in the body, and where that is refused in a header, as the format's client does."""
        if auth not in self._by_header:
            with suppress(ToolAuthError):
                return await self._tokens.token(_grant(auth, "post"))
        token = await self._tokens.token(_grant(auth, "basic"))
        self._by_header.add(auth)
        return token

    def forget(self, value: str) -> None:
        """Do not use this token again."""
        self._tokens.forget(value)

    async def close(self) -> None:
        """Stop asking."""
        await self._tokens.close()


async def present(
    auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, credential: Credential, tokens: TemplateTokens
) -> Presentation:
    """What goes with a call: what its template asks for, and the source's own credential, which comes before that."""
    if auth is None and not credential.headers:
        return NOTHING
    own = _as_it_is(credential)
    asked = await _asked(auth, tokens)
    if own is NOTHING or asked is NOTHING:
        return asked if own is NOTHING else own
    taken = {name.lower() for name, _ in own.headers}
    kept = tuple(pair for pair in asked.headers if pair[0].lower() not in taken)
    tokens_left = asked.tokens if kept == asked.headers else ()
    return own.joined(asked._replace(headers=kept, tokens=tokens_left))


def static_headers(auth: ApiKeyAuth | BasicAuth | OAuth2Auth) -> dict[str, str] | None:
    """The auth as headers that stay the same; None where it takes more than that."""
    match auth:
        case BasicAuth():
            return {"Authorization": _basic(auth)}
        case ApiKeyAuth(location="header"):
            return {auth.var_name: auth.api_key}
        case _:
            return None


async def _asked(auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, tokens: TemplateTokens) -> Presentation:
    match auth:
        case None:
            return NOTHING
        case ApiKeyAuth():
            return _placed(auth)
        case BasicAuth():
            return Presentation(headers=(("Authorization", _basic(auth)),))
        case OAuth2Auth():
            token = await tokens.token(auth)
            return Presentation(headers=(("Authorization", f"{token.kind} {token.value}"),), tokens=(token.value,))


def _placed(auth: ApiKeyAuth) -> Presentation:
    pair = ((auth.var_name, auth.api_key),)
    match auth.location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            try:
                sendable_header(auth.api_key)
            except (UnsendableError, UnicodeEncodeError):
                raise ConfigError(f"the API key for {auth.var_name!r} holds what a header cannot carry.") from None
            return Presentation(headers=pair)


def _basic(auth: BasicAuth) -> str:
    return f"Basic {base64.b64encode(f'{auth.username}:{auth.password}'.encode()).decode()}"


def _grant(auth: OAuth2Auth, method: Literal["basic", "post"]) -> ClientGrant:
    return ClientGrant(
        scheme=auth.client_id,
        token_url=auth.token_url,
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        scope=auth.scope or "",
        method=method,
    )


def _as_it_is(credential: Credential) -> Presentation:
    if not credential.headers:
        return NOTHING
    cookies = [value.partition("=") for name, value in credential.headers.items() if name.lower() == "cookie"]
    return Presentation(
        headers=tuple((name, value) for name, value in credential.headers.items() if name.lower() != "cookie"),
        cookies=tuple((name, value) for name, _, value in cookies),
    )
