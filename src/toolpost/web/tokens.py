"""Access tokens of OAuth 2 clients (RFC 6749 section 4.4): one request for all who wait, kept while they last."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlencode

from toolpost.contracts.adapt import from_status
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolConnectionError, ToolTimeoutError
from toolpost.schema.jsontypes import is_object
from toolpost.web.contents import parsed_json
from toolpost.web.encoding import (
    UnsendableError,
    percent,
    sendable_header,
)
from toolpost.web.failures import presentable, reason_of, retry_after
from toolpost.web.planned import PlannedRequest
from toolpost.web.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.errors import ToolNodeError
    from toolpost.web.encoding import Pair
    from toolpost.web.sending import Reply, Send

_SKEW_S = 30.0
_SKEW_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGrant:
    """A client and what it asks for; `method` says how it shows its secret to the token endpoint."""

    scheme: str
    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extra: tuple[Pair, ...] = ()
    method: Literal["basic", "post"] = "basic"


class Token(NamedTuple):
    """An access token; `ends` is by the monotonic clock, infinite where the server did not say."""

    value: str
    kind: str
    ends: float

    def __repr__(self) -> str:
        return f"Token(kind={self.kind!r})"


class ClientTokens:
    """The tokens of one source, by grant."""

    def __init__(self, send: Send, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._kept: dict[ClientGrant, Token] = {}
        self._coming: dict[ClientGrant, asyncio.Task[Token]] = {}

    async def token(self, grant: ClientGrant) -> Token:
        """A token that is good for a while; those who ask at the same time share one request, and its failure."""
        kept = self._kept.get(grant)
        if kept is not None and kept.ends > self._clock():
            return kept
        coming = self._coming.get(grant)
        if coming is None:
            coming = self._coming[grant] = asyncio.create_task(self._fetch(grant))
            coming.add_done_callback(lambda done: self._arrived(grant, done))
        return await asyncio.shield(coming)  # whoever gives up must not take it from the others

    def forget(self, value: str) -> None:
        """Do not use this token again; one that came in the meantime stays."""
        self._kept = {grant: token for grant, token in self._kept.items() if token.value != value}

    async def close(self) -> None:
        """Stop asking."""
        coming = list(self._coming.values())
        for task in coming:
            task.cancel()
        for task in coming:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    def _arrived(self, grant: ClientGrant, done: asyncio.Task[Token]) -> None:
        self._coming.pop(grant, None)
        if not done.cancelled() and done.exception() is None:
            self._kept[grant] = done.result()

    async def _fetch(self, grant: ClientGrant) -> Token:
        began = self._clock()
        try:
            reply = await self._send(token_request(grant))
        except (ToolConnectionError, ToolTimeoutError) as failed:  # nothing of the call itself was sent
            told = f"{_subject(grant)} gave no token: {failed}"
            raise ToolConnectionError(told, sent=False, category=failed.category, cause=failed) from failed
        if reply.status != 200:
            raise _refusal(grant, reply)
        return _token(grant, reply, began)


def token_request(grant: ClientGrant) -> PlannedRequest:
    """The request for a token."""
    fields: list[Pair] = [("grant_type", "client_credentials"), *grant.extra]
    if grant.scope:
        fields.append(("scope", grant.scope))
    headers: list[Pair] = [("Accept", "application/json"), ("Content-Type", "application/x-www-form-urlencoded")]
    if grant.method == "post":
        fields += [("client_id", grant.client_id), ("client_secret", grant.client_secret)]
    else:  # RFC 6749 section 2.3.1: both halves are form-encoded before they are joined
        pair = f"{percent(grant.client_id)}:{percent(grant.client_secret)}"
        headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    target = target_of(grant.token_url, "/", lambda slot: slot.name)
    address = target.address if grant.token_url.partition("?")[0].endswith("/") else target.address.removesuffix("/")
    return PlannedRequest(
        method="POST", address=address, query=target.query, headers=tuple(headers), body=urlencode(fields).encode()
    )


def _token(grant: ClientGrant, reply: Reply, began: float) -> Token:
    told = _object(reply)
    value = told.get("access_token")
    if not isinstance(value, str) or not value:
        raise ToolAuthError(f"{_subject(grant)} answered without an access token; check its token_url.")
    try:
        sendable_header(value)
    except (UnsendableError, UnicodeEncodeError) as error:
        raise ToolAuthError(f"{_subject(grant)} answered with a token that no header can carry.") from error
    kind = str(told.get("token_type") or "Bearer")
    return Token(value, "Bearer" if kind.lower() == "bearer" or not kind.isalnum() else kind, _end(told, began))


def _end(told: dict[str, Any], began: float) -> float:
    try:
        life = float(told.get("expires_in") or "inf")
    except (TypeError, ValueError):
        return float("inf")
    return began + life - min(_SKEW_S, life * _SKEW_SHARE)


def _object(reply: Reply) -> dict[str, Any]:
    try:
        told = parsed_json(reply.body)
    except ValueError:
        return {}
    return told if is_object(told) else {}


def _refusal(grant: ClientGrant, reply: Reply) -> ToolNodeError:
    """What the endpoint said; RFC 6749 section 5.2 puts the code in `error`, and a 4xx there is about the client."""
    code = _object(reply).get("error")
    words = [code if isinstance(code, str) else "", reason_of(reply.headers, reply.body)]
    said = ": ".join(dict.fromkeys(word for word in words if word)) or "no reason given"
    told = presentable(said, [grant.client_secret])
    message = f"{_subject(grant)} refused: status {reply.status}, {told}. Check its client_id and client_secret."
    if 400 <= reply.status < 500 and reply.status != 429:
        return ToolAuthError(message, status_code=401)
    error = from_status(reply.status, message)
    error.retry_after_s = retry_after(reply.headers, now=time.time())
    return error


def _subject(grant: ClientGrant) -> str:
    return f"The token endpoint of {grant.scheme!r}"


def grant_of(scheme: str, token_url: str | None, given: dict[str, Any], scopes: tuple[str, ...]) -> ClientGrant:
    """Read what the configuration says of an OAuth client."""
    url = given.get("token_url") or token_url
    if not url:
        raise ConfigError(f"auth_config.schemes.{scheme} needs token_url: the document names none.")
    method = given.get("auth_method", "basic")
    if method not in ("basic", "post"):
        raise ConfigError(f"auth_config.schemes.{scheme}.auth_method is 'basic' or 'post', not {method!r}.")
    scope = given.get("scope", " ".join(scopes))
    extra = tuple((key, str(given[key])) for key in ("audience", "resource") if given.get(key))
    return ClientGrant(
        scheme=scheme,
        token_url=str(url),
        client_id=str(given["client_id"]),
        client_secret=str(given["client_secret"]),
        scope=scope if isinstance(scope, str) else " ".join(map(str, scope)),
        extra=extra,
        method=method,
    )
