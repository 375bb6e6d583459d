"""Tokens without a browser: for the client itself, and for what somebody else vouches for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.auth.oauth.endpoint import ask_endpoint, ask_tokens
from toolpost.auth.oauth.flow import json_object
from toolpost.auth.oauth.refusals import host_of, problem_of, refusal_of, secrets_in
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError

if TYPE_CHECKING:
    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.dpop import DpopKey
    from toolpost.auth.oauth.flow import Clock, Flow
    from toolpost.auth.oauth.metadata import ServerMetadata
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.wire.requests import Pairs

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name of RFC 8693
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the same
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProvider:
    """An enterprise's own server, which says for its people what they may reach; an operator wrote it down."""

    server: ServerMetadata
    client: Client
    id_token: Secret


def client_credentials(
    server: ServerMetadata,
    client: Client,
    *,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
    clock: Clock = time.time,
) -> Flow[TokenSet]:
    """Tokens for the client itself (RFC 6749 section 4.4)."""
    form = _scoped((("grant_type", "client_credentials"),), scopes)
    return ask_tokens(server, client, form, clock=clock, resource=resource, scopes=scopes, dpop_key=dpop_key)


def jwt_bearer(
    server: ServerMetadata,
    client: Client,
    assertion: Secret,
    *,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
    clock: Clock = time.time,
) -> Flow[TokenSet]:
    """Tokens for whom a signed statement speaks (RFC 7523): a workload, or a person of an enterprise.

    A refusal is final: the same statement is not shown twice, and no other grant is tried in its place.
    """
    form = _scoped((("grant_type", JWT_BEARER), ("assertion", assertion.reveal())), scopes)
    return ask_tokens(server, client, form, clock=clock, resource=resource, scopes=scopes, dpop_key=dpop_key)


def exchange_id_token(
    provider: IdentityProvider,
    *,
    audience: str,
    resource: str,
    scopes: tuple[str, ...] = (),
    clock: Clock = time.time,
) -> Flow[Secret]:
    """The statement (ID-JAG) that an identity provider makes for another issuer (RFC 8693)."""
    form = _scoped(
        (
            ("grant_type", TOKEN_EXCHANGE),
            ("requested_token_type", ID_JAG),
            ("audience", audience),
            ("resource", resource),
            ("subject_token", provider.id_token.reveal()),
            ("subject_token_type", ID_TOKEN),
        ),
        scopes,
    )
    subject = f"The identity provider {host_of(provider.server.token_endpoint)!r}"
    reply = yield from ask_endpoint(provider.server.token_endpoint, provider.server, provider.client, form, clock=clock)
    told = json_object(reply)
    if reply.status != 200 or told is None or problem_of(reply).code:
        raise refusal_of(subject, reply, secrets=secrets_in(form))
    statement = told.get("access_token")  # RFC 8693 section 2.2.1: whatever it is, it comes under this name
    if told.get("issued_token_type") != ID_JAG or not isinstance(statement, str) or not statement:
        raise ToolAuthError(f"{subject} answered without an ID-JAG.", code="oauth_response")
    return Secret(statement)


def enterprise_tokens(
    server: ServerMetadata,
    client: Client,
    provider: IdentityProvider,
    *,
    resource: str,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
    clock: Clock = time.time,
) -> Flow[TokenSet]:
    """Tokens that an enterprise's identity provider vouches for, without a consent of their own."""
    statement = yield from exchange_id_token(
        provider, audience=server.issuer, resource=resource, scopes=scopes, clock=clock
    )
    return (
        yield from jwt_bearer(
            server, client, statement, resource=resource, scopes=scopes, dpop_key=dpop_key, clock=clock
        )
    )


def _scoped(form: Pairs, scopes: tuple[str, ...]) -> Pairs:
    return (*form, ("scope", " ".join(scopes))) if scopes else form
