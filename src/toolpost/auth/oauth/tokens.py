"""Token sets, requests to a token endpoint, and parsing of its responses."""

from __future__ import annotations

import math
import re
import time
from typing import Any, Literal, Self

from msgspec import Struct

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
from toolpost.contracts.records import represent
from toolpost.wire.messages import Pairs

TokenType = Literal["Bearer", "DPoP"]
_SKEW_S = 30.0
_SKEW_SHARE = 0.1
_LONGEST_LIFE_S = 10 * 365 * 86400.0
_SENDABLE = re.compile(r"[!-~]{1,65536}")
# Slack returns the token's owner as its type.
_BEARERS = frozenset({"", "bearer", "bot", "user"})


class TokenSet(Struct, frozen=True, kw_only=True):
    """Tokens of one grant, for one resource at one issuer.

    `scopes` are those granted, `asked` those requested. A DPoP token needs its `dpop_key`.
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
        """Return whether the token is usable, with a margin before it expires."""
        if self.expires_at is None:
            return True
        return now < usable_until(self.expires_at, self.received_at)

    @property
    def secrets(self) -> set[str]:
        """All secrets of the token set."""
        secrets = (self.access_token, self.refresh_token, self.id_token, self.dpop_key)
        return revealed(secret for secret in secrets if secret)


class TokenRequest(Struct, frozen=True, kw_only=True):
    """Facts about a token request that are needed to parse its response."""

    issuer: str
    client_id: str
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    dpop_key: DpopKey | None = None
    began: float = 0.0
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        server: ServerMetadata,
        client: Client,
        form: Pairs,
        *,
        began: float,
        resource: str | None,
        scopes: tuple[str, ...],
        dpop_key: DpopKey | None = None,
    ) -> Self:
        """Return the facts about a request of this client with this form."""
        return cls(
            issuer=server.issuer,
            client_id=client.id,
            resource=resource,
            scopes=scopes,
            dpop_key=dpop_key,
            began=began,
            secrets=(*secrets_in(form), *([client.secret.reveal()] if client.secret else [])),
        )

    def __repr__(self) -> str:
        return represent(self, without=("secrets",))

    @property
    def subject(self) -> str:
        """The endpoint, as errors name it."""
        return f"The token endpoint of {self.issuer!r}"


def read_tokens(reply: FlowResponse, request: TokenRequest) -> TokenSet:
    """Parse the tokens of a response; raise ToolAuthError if it has none."""
    body = json_object(reply)
    if reply.status not in {200, 201} or body is None or parse_problem(reply).code:
        raise refusal_error(request.subject, reply, secrets=request.secrets)
    token_type = _type(body, request)
    scope = body.get("scope")
    return TokenSet(
        access_token=parse_access_token(body, request.subject),
        token_type=token_type,
        refresh_token=_optional(body, "refresh_token"),
        id_token=_optional(body, "id_token"),
        scopes=tuple(dict.fromkeys(scope.split())) if isinstance(scope, str) else request.scopes,
        asked=request.scopes,
        expires_at=parse_expiry(body.get("expires_in"), request.began),
        received_at=request.began,
        issuer=request.issuer,
        client_id=request.client_id,
        resource=request.resource,
        dpop_key=request.dpop_key.private if token_type == "DPoP" and request.dpop_key else None,  # noqa: S105 - as above
    )


def request_headers(
    tokens: TokenSet, method: str, url: str, *, nonce: str = "", clock: Clock = time.time
) -> dict[str, str]:
    """Return the headers of one request with a token, including a fresh proof for a DPoP token."""
    token = tokens.access_token.reveal()
    headers = {"Authorization": f"{tokens.token_type} {token}"}
    if tokens.dpop_key is not None:
        key = DpopKey(tokens.dpop_key)
        headers["DPoP"] = key.proof(method, url, now=clock(), access_token=token, nonce=nonce)
    return headers


def parse_access_token(body: dict[str, Any], subject: str) -> Secret:
    """Return the access token of a response; ToolAuthError if there is none, or if a header cannot contain it."""
    value = body.get("access_token")
    if not isinstance(value, str) or not value:
        raise ToolAuthError(f"{subject} returned no access_token.", code="oauth_response")
    if not _SENDABLE.fullmatch(value):
        raise ToolAuthError(f"{subject} returned a token that cannot be sent in a header.", code="oauth_response")
    return Secret(value)


def _type(body: dict[str, Any], request: TokenRequest) -> TokenType:
    """Parse the token type (RFC 6749 section 7.1: a token of an unknown type must not be used)."""
    token_type = body.get("token_type", "")
    kind = token_type.lower() if isinstance(token_type, str) else "?"
    if kind in _BEARERS:
        return "Bearer"
    if kind == "dpop" and request.dpop_key is not None:
        return "DPoP"
    named = presentable(str(token_type))
    raise ToolAuthError(f"{request.subject} returned a token of the unsupported type {named!r}.", code="oauth_response")


def _optional(body: dict[str, Any], name: str) -> Secret | None:
    value = body.get(name)
    return Secret(value) if isinstance(value, str) and value else None


def parse_expiry(value: object, began: float) -> float | None:
    """Return when a token expires by our clock; some servers send the seconds as a string."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        life = float(value)
    except (ValueError, OverflowError):
        return None
    return began + min(max(life, 0.0), _LONGEST_LIFE_S) if math.isfinite(life) else None


def usable_until(expires_at: float, received_at: float) -> float:
    """Return until when a token is used; the margin allows for clocks that differ."""
    return expires_at - min(_SKEW_S, (expires_at - received_at) * _SKEW_SHARE)


def post_form(
    url: str, server: ServerMetadata, client: Client, form: Pairs, *, clock: Clock, dpop_key: DpopKey | None = None
) -> Flow[FlowResponse]:
    """Post a form as this client; repeat it if the server requires a DPoP nonce."""

    def signed(nonce: str) -> FlowRequest:
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

    reply = yield signed("")
    nonce = dpop_nonce(reply.headers)
    if dpop_key is not None and nonce and parse_problem(reply).code == "use_dpop_nonce":
        reply = yield signed(nonce)
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
    """Request tokens with a grant."""
    request = TokenRequest.of(server, client, form, began=clock(), resource=resource, scopes=scopes, dpop_key=dpop_key)
    fields = (*form, ("resource", resource)) if resource else form
    reply = yield from post_form(server.token_endpoint, server, client, fields, clock=clock, dpop_key=dpop_key)
    return read_tokens(reply, request)
