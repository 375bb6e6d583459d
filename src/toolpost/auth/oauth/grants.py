"""Grants without a user: client credentials, signed assertions, and assertions of an enterprise's identity provider."""

from __future__ import annotations

import time

from msgspec import Struct

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import Clock, Flow, host_of, json_object, parse_problem, refusal_error, secrets_in
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.tokens import TokenSet, post_form, request_tokens
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError
from toolpost.wire.messages import Pairs

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name of RFC 8693
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the same
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class IdentityProvider(Struct, frozen=True, kw_only=True):
    """Identity provider of an enterprise, configured by an operator."""

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
    """Request tokens for the client itself (RFC 6749 section 4.4)."""
    form = _add_scopes((("grant_type", "client_credentials"),), scopes)
    return request_tokens(server, client, form, clock=clock, resource=resource, scopes=scopes, dpop_key=dpop_key)


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
    """Request tokens with a signed assertion (RFC 7523) of a workload or a user of an enterprise.

    A rejection is final: the assertion is not sent again, and no other grant is tried.
    """
    form = _add_scopes((("grant_type", JWT_BEARER), ("assertion", assertion.reveal())), scopes)
    return request_tokens(server, client, form, clock=clock, resource=resource, scopes=scopes, dpop_key=dpop_key)


def exchange_id_token(
    provider: IdentityProvider,
    *,
    audience: str,
    resource: str,
    scopes: tuple[str, ...] = (),
    clock: Clock = time.time,
) -> Flow[Secret]:
    """Exchange an id_token for an assertion (ID-JAG) of the identity provider for another issuer (RFC 8693)."""
    form = _add_scopes(
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
    reply = yield from post_form(provider.server.token_endpoint, provider.server, provider.client, form, clock=clock)
    body = json_object(reply)
    if reply.status != 200 or body is None or parse_problem(reply).code:
        raise refusal_error(subject, reply, secrets=secrets_in(form))
    statement = body.get("access_token")  # RFC 8693 section 2.2.1: the name of the issued token, of any type
    if body.get("issued_token_type") != ID_JAG or not isinstance(statement, str) or not statement:
        raise ToolAuthError(f"{subject} returned no ID-JAG.", code="oauth_response")
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
    """Request tokens with an assertion of an enterprise's identity provider, without consent of the user."""
    statement = yield from exchange_id_token(
        provider, audience=server.issuer, resource=resource, scopes=scopes, clock=clock
    )
    return (
        yield from jwt_bearer(
            server, client, statement, resource=resource, scopes=scopes, dpop_key=dpop_key, clock=clock
        )
    )


def _add_scopes(form: Pairs, scopes: tuple[str, ...]) -> Pairs:
    return (*form, ("scope", " ".join(scopes))) if scopes else form
