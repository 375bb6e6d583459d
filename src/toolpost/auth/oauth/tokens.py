"""Token sets, and requests to a token endpoint."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from toolpost.auth.oauth.client import Client, authenticate_client
from toolpost.auth.oauth.flow import (
    ACCEPT_JSON,
    Clock,
    Flow,
    FlowRequest,
    FlowResponse,
    json_object,
    parse_problem,
    presentable,
    refusal_error,
    secrets_in,
)
from toolpost.auth.oauth.jose import DpopKey, dpop_nonce
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.secret import Secret, revealed
from toolpost.contracts.errors import ToolAuthError
from toolpost.wire.messages import Pairs

TokenType = Literal["Bearer", "DPoP"]

_SKEW_S = 30.0
_SKEW_SHARE = 0.1
_LONGEST_LIFE_S = 10 * 365 * 86400.0
_SENDABLE = re.compile(r"[!-~]{1,65536}")
# Slack writes whom a token is for where its type belongs.
_BEARERS = frozenset({"", "bearer", "bot", "user"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSet:
    """Tokens of one grant, for one resource at one issuer.

    `scopes` are those granted, `asked` those requested. A DPoP token is of no use without its `dpop_key`.
    """

    access_token: Secret
    token_type: TokenType = "Bearer"  # noqa: S105 - a word of RFC 6749
    refresh_token: Secret | None = None
    id_token: Secret | None = None
    scopes: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    expires_at: float | None = None
    received_at: float = 0.0
    issuer: str = ""
    client_id: str = ""
    resource: str | None = None
    dpop_key: Secret | None = None

    def is_fresh(self, now: float) -> bool:
        """Return whether the token is still valid for a while; clocks differ, so its last moments are not used."""
        if self.expires_at is None:
            return True
        life = self.expires_at - self.received_at
        return now < self.expires_at - min(_SKEW_S, life * _SKEW_SHARE)

    @property
    def secrets(self) -> set[str]:
        """All secrets of the token set."""
        held = (self.access_token, self.refresh_token, self.id_token, self.dpop_key)
        return revealed(secret for secret in held if secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What was requested from a token endpoint, as far as reading the response needs it."""

    issuer: str
    client_id: str
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    dpop_key: DpopKey | None = None
    began: float = 0.0
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def subject(self) -> str:
        """The endpoint, as errors name it."""
        return f"The token endpoint of {self.issuer!r}"


def read_tokens(reply: FlowResponse, request: TokenRequest) -> TokenSet:
    """Parse the tokens of a response; a ToolAuthError says what is in their place."""
    body = json_object(reply)
    if reply.status not in {200, 201} or body is None or parse_problem(reply).code:
        raise refusal_error(request.subject, reply, secrets=request.secrets)
    token_type = _type(body, request)
    scope = body.get("scope")
    return TokenSet(
        access_token=_token(body, request),
        token_type=token_type,
        refresh_token=_optional(body, "refresh_token"),
        id_token=_optional(body, "id_token"),
        scopes=tuple(dict.fromkeys(scope.split())) if isinstance(scope, str) else request.scopes,
        asked=request.scopes,
        expires_at=_end(body.get("expires_in"), request.began),
        received_at=request.began,
        issuer=request.issuer,
        client_id=request.client_id,
        resource=request.resource,
        dpop_key=request.dpop_key.private if token_type == "DPoP" and request.dpop_key else None,  # noqa: S105 - as above
    )


def request_headers(
    tokens: TokenSet, method: str, url: str, *, nonce: str = "", clock: Clock = time.time
) -> dict[str, str]:
    """Return the headers of one request with a token, and a fresh proof where it is bound to a key."""
    token = tokens.access_token.reveal()
    headers = {"Authorization": f"{tokens.token_type} {token}"}
    if tokens.dpop_key is not None:
        key = DpopKey(tokens.dpop_key)
        headers["DPoP"] = key.proof(method, url, now=clock(), access_token=token, nonce=nonce)
    return headers


def _token(body: dict[str, Any], request: TokenRequest) -> Secret:
    value = body.get("access_token")
    if not isinstance(value, str) or not value:
        raise ToolAuthError(f"{request.subject} answered without an access_token.", code="oauth_response")
    if not _SENDABLE.fullmatch(value):
        raise ToolAuthError(f"{request.subject} answered with a token that no header can carry.", code="oauth_response")
    return Secret(value)


def _type(body: dict[str, Any], request: TokenRequest) -> TokenType:
    """Parse the token type (RFC 6749 section 7.1: a token of an unknown type must not be used)."""
    written = body.get("token_type", "")
    kind = written.lower() if isinstance(written, str) else "?"
    if kind in _BEARERS:
        return "Bearer"
    if kind == "dpop" and request.dpop_key is not None:
        return "DPoP"
    named = presentable(str(written))
    raise ToolAuthError(
        f"{request.subject} gave a token of type {named!r}, which cannot be used.", code="oauth_response"
    )


def _optional(body: dict[str, Any], name: str) -> Secret | None:
    value = body.get(name)
    return Secret(value) if isinstance(value, str) and value else None


def _end(value: object, began: float) -> float | None:
    """Return when a token expires by our own clock; numbers come as texts too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        life = float(value)
    except (ValueError, OverflowError):
        return None
    return began + min(max(life, 0.0), _LONGEST_LIFE_S) if math.isfinite(life) else None


def post_form(
    url: str, server: ServerMetadata, client: Client, form: Pairs, *, clock: Clock, dpop_key: DpopKey | None = None
) -> Flow[FlowResponse]:
    """Post a form as this client, and once more if the server demands a DPoP nonce."""

    def ask(nonce: str) -> FlowRequest:
        headers, fields = authenticate_client(client, server, now=clock())
        if dpop_key is not None:
            headers = (*headers, ("DPoP", dpop_key.proof("POST", url, now=clock(), nonce=nonce)))
        return FlowRequest(
            method="POST",
            url=url,
            headers=(*ACCEPT_JSON, *headers),
            form=(*form, *fields),
            documents=server.documents,
        )

    reply = yield ask("")
    nonce = dpop_nonce(reply.headers)
    if dpop_key is not None and nonce and parse_problem(reply).code == "use_dpop_nonce":
        reply = yield ask(nonce)
    return reply


def request_tokens(
    server: ServerMetadata,
    client: Client,
    form: Pairs,
    *,
    clock: Clock,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
) -> Flow[TokenSet]:
    """Request tokens with a grant; the scopes are those requested now or before."""
    request = TokenRequest(
        issuer=server.issuer,
        client_id=client.id,
        resource=resource,
        scopes=scopes,
        dpop_key=dpop_key,
        began=clock(),
        secrets=(*secrets_in(form), *([client.secret.reveal()] if client.secret else [])),
    )
    asked = (*form, ("resource", resource)) if resource else form
    reply = yield from post_form(server.token_endpoint, server, client, asked, clock=clock, dpop_key=dpop_key)
    return read_tokens(reply, request)
