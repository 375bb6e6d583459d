"""Credentials that call templates add to a request."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Literal

from toolpost.auth.oauth.client_tokens import ClientGrant, ClientToken, ClientTokens
from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.http.encoding import UnsendableError, check_header_value
from toolpost.sources.requests import NOTHING, Presentation, present_headers, present_key, present_token
from toolpost.sources.utcp.templates import ApiKeyAuth, BasicAuth, OAuth2Auth
from toolpost.wire.client import HttpClient


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
    headers = tuple(pair for pair in template.headers if pair[0].lower() not in taken)
    tokens_left = template.tokens if headers == template.headers else ()
    return own.joined(template._replace(headers=headers, tokens=tokens_left))


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
            return present_token(await tokens.token(auth))


def _api_key_presentation(auth: ApiKeyAuth) -> Presentation:
    if auth.location == "header":
        try:
            check_header_value(auth.api_key)
        except (UnsendableError, UnicodeEncodeError):
            raise ConfigError(
                f"the API key for {auth.var_name!r} contains a character that is not allowed in a header."
            ) from None
    return present_key(auth.location, auth.var_name, auth.api_key)


def _basic_header(auth: BasicAuth) -> str:
    return f"Basic {base64.b64encode(f'{auth.username}:{auth.password}'.encode()).decode()}"


class TemplateTokens:
    """Token cache of templates; remembers the clients with a secret that is accepted only in a header."""

    def __init__(self, client: HttpClient) -> None:
        self._tokens = ClientTokens(client)
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
        self._tokens.forget(value)

    async def close(self) -> None:
        await self._tokens.close()


def _grant(auth: OAuth2Auth, method: Literal["basic", "post"]) -> ClientGrant:
    return ClientGrant(
        label=auth.client_id,
        token_url=auth.token_url,
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        scope=auth.scope or "",
        method=method,
    )


def static_headers(auth: ApiKeyAuth | BasicAuth | OAuth2Auth) -> dict[str, str] | None:
    """Return the auth as static headers, None where it needs a token or another location."""
    match auth:
        case BasicAuth():
            return {"Authorization": _basic_header(auth)}
        case ApiKeyAuth(location="header"):
            return {auth.var_name: auth.api_key}
        case _:
            return None
