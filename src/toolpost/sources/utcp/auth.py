"""Models of the auth objects in call templates, and the credentials that they add to a request."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.web.client_credentials import ClientGrant, ClientTokens
from toolpost.web.encoding import UnsendableError, check_header_value
from toolpost.web.requests import NOTHING, Presentation, present_headers

if TYPE_CHECKING:
    from toolpost.contracts.calls import Credential
    from toolpost.web.client_credentials import ClientToken
    from toolpost.web.requests import Send


class _AuthModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class ApiKeyAuth(_AuthModel):
    """An API key in a header, query parameter or cookie; a bearer token is a key in the header Authorization."""

    auth_type: Literal["api_key"]
    api_key: str = Field(min_length=1, repr=False)
    var_name: str = Field(default="X-Api-Key", min_length=1)
    location: Literal["header", "query", "cookie"] = "header"


class BasicAuth(_AuthModel):
    """HTTP basic authentication."""

    auth_type: Literal["basic"]
    username: str
    password: str = Field(repr=False)


class OAuth2Auth(_AuthModel):
    """Client credentials grant (RFC 6749 section 4.4)."""

    auth_type: Literal["oauth2"]
    token_url: str = Field(min_length=1)
    client_id: str
    client_secret: str = Field(repr=False)
    scope: str | None = None


AuthObject = Annotated[ApiKeyAuth | BasicAuth | OAuth2Auth, Field(discriminator="auth_type")]


class TemplateTokens:
    """Token cache of templates; remembers the clients whose secret is only accepted in a header."""

    def __init__(self, send: Send) -> None:
        self._tokens = ClientTokens(send)
        self._by_header: set[OAuth2Auth] = set()

    async def token(self, auth: OAuth2Auth) -> ClientToken:
        """Request a token with the secret in the body, then in a header, as the reference client does."""
        if auth not in self._by_header:
            with suppress(ToolAuthError):
                return await self._tokens.token(_grant(auth, "post"))
        token = await self._tokens.token(_grant(auth, "basic"))
        self._by_header.add(auth)
        return token

    def forget(self, value: str) -> None:
        """Remove a token from the cache."""
        self._tokens.forget(value)

    async def close(self) -> None:
        """Cancel token requests."""
        await self._tokens.close()


async def present_credentials(
    auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, credential: Credential, tokens: TemplateTokens
) -> Presentation:
    """Combine the source's credential with the template's auth; the source's headers take precedence."""
    if auth is None and not credential.headers:
        return NOTHING
    own = present_headers(credential)
    template = await _template_presentation(auth, tokens)
    if own is NOTHING or template is NOTHING:
        return template if own is NOTHING else own
    taken = {name.lower() for name, _ in own.headers}
    kept = tuple(pair for pair in template.headers if pair[0].lower() not in taken)
    tokens_left = template.tokens if kept == template.headers else ()
    return own.joined(template._replace(headers=kept, tokens=tokens_left))


def static_headers(auth: ApiKeyAuth | BasicAuth | OAuth2Auth) -> dict[str, str] | None:
    """Return the auth as static headers, None where it needs a token or another location."""
    match auth:
        case BasicAuth():
            return {"Authorization": _basic_header(auth)}
        case ApiKeyAuth(location="header"):
            return {auth.var_name: auth.api_key}
        case _:
            return None


async def _template_presentation(
    auth: ApiKeyAuth | BasicAuth | OAuth2Auth | None, tokens: TemplateTokens
) -> Presentation:
    match auth:
        case None:
            return NOTHING
        case ApiKeyAuth():
            return _api_key_presentation(auth)
        case BasicAuth():
            return Presentation(headers=(("Authorization", _basic_header(auth)),))
        case OAuth2Auth():
            token = await tokens.token(auth)
            return Presentation(headers=(("Authorization", f"{token.kind} {token.value}"),), tokens=(token.value,))


def _api_key_presentation(auth: ApiKeyAuth) -> Presentation:
    pair = ((auth.var_name, auth.api_key),)
    match auth.location:
        case "query":
            return Presentation(query=pair)
        case "cookie":
            return Presentation(cookies=pair)
        case "header":
            try:
                check_header_value(auth.api_key)
            except (UnsendableError, UnicodeEncodeError):
                raise ConfigError(f"the API key for {auth.var_name!r} holds what a header cannot carry.") from None
            return Presentation(headers=pair)


def _basic_header(auth: BasicAuth) -> str:
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
