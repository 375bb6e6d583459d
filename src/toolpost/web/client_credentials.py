"""OAuth 2 client credentials grant (RFC 6749 section 4.4): cached access tokens, one request for concurrent callers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

from toolpost.contracts.errors import (
    ConfigError,
    ToolAuthError,
    ToolConnectionError,
    ToolNodeError,
    ToolTimeoutError,
    from_status,
)
from toolpost.contracts.records import represent
from toolpost.schema.json_values import as_object
from toolpost.web.content import parse_json
from toolpost.web.requests import (
    Pair,
    PlannedRequest,
    Send,
    UnsendableError,
    build_url,
    check_header_value,
    extract_reason,
    percent_encode,
    sanitize,
)
from toolpost.wire.messages import Response, parse_retry_after

_SKEW_S = 30.0
_SKEW_SHARE = 0.1


class ClientGrant(Struct, frozen=True, kw_only=True):
    """A client and the token that it requests; `method` says how it authenticates to the token endpoint."""

    scheme: str
    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    extra: tuple[Pair, ...] = ()
    method: Literal["basic", "post"] = "basic"

    def __repr__(self) -> str:
        return represent(self, without=("client_secret",))


class ClientToken(NamedTuple):
    """An access token; it expires when the monotonic clock is `ends`, infinite where the server did not say."""

    value: str
    kind: str
    ends: float

    def __repr__(self) -> str:
        return f"ClientToken(kind={self.kind!r})"


class ClientTokens:
    """Token cache of one source, by grant."""

    def __init__(self, send: Send, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._tokens: dict[ClientGrant, ClientToken] = {}
        self._coming: dict[ClientGrant, asyncio.Task[ClientToken]] = {}

    async def token(self, grant: ClientGrant) -> ClientToken:
        """Return a valid token; concurrent callers share one request, and its failure."""
        token = self._tokens.get(grant)
        if token is not None and token.ends > self._clock():
            return token
        coming = self._coming.get(grant)
        if coming is None:
            coming = self._coming[grant] = asyncio.create_task(self._fetch(grant))
            coming.add_done_callback(lambda done: self._store_token(grant, done))
        return await asyncio.shield(coming)  # a cancelled caller does not cancel it for the others

    def forget(self, value: str) -> None:
        """Drop a refused token; a newer token of the same grant stays."""
        self._tokens = {grant: token for grant, token in self._tokens.items() if token.value != value}

    async def close(self) -> None:
        """Cancel the requests that run."""
        coming = list(self._coming.values())
        for task in coming:
            task.cancel()
        for task in coming:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def _store_token(self, grant: ClientGrant, done: asyncio.Task[ClientToken]) -> None:
        self._coming.pop(grant, None)
        if not done.cancelled() and done.exception() is None:
            self._tokens[grant] = done.result()

    async def _fetch(self, grant: ClientGrant) -> ClientToken:
        began = self._clock()
        try:
            response = await self._send(build_token_request(grant))
        except (ToolConnectionError, ToolTimeoutError) as failed:  # nothing of the call itself was sent
            message = f"{_subject(grant)} gave no token: {failed}"
            raise ToolConnectionError(message, sent=False, category=failed.category, cause=failed) from failed
        if response.status != 200:
            raise _refusal(grant, response)
        return _token(grant, response, began)


def build_token_request(grant: ClientGrant) -> PlannedRequest:
    """Build the request for a token."""
    fields: list[Pair] = [("grant_type", "client_credentials"), *grant.extra]
    if grant.scope:
        fields.append(("scope", grant.scope))
    headers: list[Pair] = [("Accept", "application/json"), ("Content-Type", "application/x-www-form-urlencoded")]
    if grant.method == "post":
        fields += [("client_id", grant.client_id), ("client_secret", grant.client_secret)]
    else:  # RFC 6749 section 2.3.1: both halves are form-encoded before they are joined
        pair = f"{percent_encode(grant.client_id)}:{percent_encode(grant.client_secret)}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    target = build_url(grant.token_url, "/", lambda slot: slot.name)
    address = target.address if grant.token_url.partition("?")[0].endswith("/") else target.address.removesuffix("/")
    return PlannedRequest(
        method="POST", address=address, query=target.query, headers=tuple(headers), body=urlencode(fields).encode()
    )


def _token(grant: ClientGrant, response: Response, began: float) -> ClientToken:
    body = _object(response)
    value = body.get("access_token")
    if not isinstance(value, str) or not value:
        raise ToolAuthError(f"{_subject(grant)} answered without an access token; check its token_url.")
    try:
        check_header_value(value)
    except (UnsendableError, UnicodeEncodeError) as error:
        raise ToolAuthError(f"{_subject(grant)} answered with a token that no header can carry.") from error
    kind = str(body.get("token_type") or "Bearer")
    return ClientToken(value, "Bearer" if kind.lower() == "bearer" or not kind.isalnum() else kind, _end(body, began))


def _end(body: dict[str, Any], began: float) -> float:
    try:
        life = float(body.get("expires_in") or "inf")
    except (TypeError, ValueError):
        return float("inf")
    return began + life - min(_SKEW_S, life * _SKEW_SHARE)


def _object(response: Response) -> dict[str, Any]:
    try:
        body = parse_json(response.body)
    except ValueError:
        return {}
    return as_object(body)


def _refusal(grant: ClientGrant, response: Response) -> ToolNodeError:
    """Build the error of a refusal; RFC 6749 section 5.2 puts the code in `error`, and a 4xx is about the client."""
    code = _object(response).get("error")
    words = [code if isinstance(code, str) else "", extract_reason(response.headers, response.body)]
    text = ": ".join(dict.fromkeys(word for word in words if word)) or "no reason given"
    reason = sanitize(text, [grant.client_secret])
    message = f"{_subject(grant)} refused: status {response.status}, {reason}. Check its client_id and client_secret."
    if 400 <= response.status < 500 and response.status != 429:
        return ToolAuthError(message, status_code=401)
    error = from_status(response.status, message)
    error.retry_after_s = parse_retry_after(response.headers)
    return error


def _subject(grant: ClientGrant) -> str:
    return f"The token endpoint of {grant.scheme!r}"


def parse_grant(scheme: str, token_url: str | None, config: dict[str, Any], scopes: tuple[str, ...]) -> ClientGrant:
    """Parse the configuration of an OAuth client."""
    url = config.get("token_url") or token_url
    if not url:
        raise ConfigError(f"auth_config.schemes.{scheme} needs token_url: the document names none.")
    method = config.get("auth_method", "basic")
    if method not in ("basic", "post"):
        raise ConfigError(f"auth_config.schemes.{scheme}.auth_method is 'basic' or 'post', not {method!r}.")
    scope = config.get("scope", " ".join(scopes))
    extra = tuple((key, str(config[key])) for key in ("audience", "resource") if config.get(key))
    return ClientGrant(
        scheme=scheme,
        token_url=str(url),
        client_id=str(config["client_id"]),
        client_secret=str(config["client_secret"]),
        scope=scope if isinstance(scope, str) else " ".join(map(str, scope)),
        extra=extra,
        method=method,
    )
