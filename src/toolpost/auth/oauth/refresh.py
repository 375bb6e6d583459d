"""Refresh and revocation of tokens."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import Clock, Flow, FlowResponse, parse_problem, refusal_error, with_context
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.tokens import TokenRequest, TokenSet, post_form, read_tokens
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError
from toolpost.wire.messages import Pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.auth.oauth.flow import OAuthProblem

# Codes of RFC 6749, of GitHub and of Slack, and those of OpenID Connect Core section 3.1.2.6 that require the user.
_REVOKED = frozenset(
    {
        "invalid_grant",
        "bad_refresh_token",
        "invalid_refresh_token",
        "interaction_required",
        "login_required",
        "consent_required",
    }
)
_REFRESH_TOKEN = re.compile(r"refresh[ _]token", re.IGNORECASE)


class RefreshedTokens(NamedTuple):
    """New tokens. Store them before use, because the old refresh token may be invalid now.

    `revoke` revokes the new tokens if their account no longer exists.
    """

    tokens: TokenSet
    revoke: Callable[[], Awaitable[object]] | None = None


class GrantRevoked(NamedTuple):
    """The grant was revoked or has expired. Only the user can give a new one."""

    reason: str = ""


class RefreshUnknown(NamedTuple):
    """The response was lost, and possibly the next refresh token with it."""

    reason: str = ""


RefreshOutcome: TypeAlias = RefreshedTokens | GrantRevoked | RefreshUnknown


def refresh(
    server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time
) -> Flow[RefreshOutcome]:
    """Refresh tokens.

    If this raises, the refresh token is still valid: nothing was sent, or the server rejected something else.
    """
    if tokens.refresh_token is None:
        return GrantRevoked("there is no refresh token")
    if tokens.issuer != server.issuer or client.issuer not in {None, server.issuer}:
        raise ToolAuthError(
            f"The tokens belong to {tokens.issuer!r}, not to {server.issuer!r}.", code="oauth_issuer_changed"
        )
    form: Pairs = (("grant_type", "refresh_token"), ("refresh_token", tokens.refresh_token.reveal()))
    if tokens.resource:
        form = (*form, ("resource", tokens.resource))
    dpop_key = DpopKey(tokens.dpop_key) if tokens.dpop_key else None
    request = TokenRequest.of(
        server, client, form, began=clock(), resource=tokens.resource, scopes=tokens.scopes, dpop_key=dpop_key
    )
    try:
        reply = yield from post_form(server.token_endpoint, server, client, form, clock=clock, dpop_key=dpop_key)
    except (ToolConnectionError, ToolTimeoutError, ToolClientError) as lost:
        if isinstance(lost, ToolConnectionError) and not lost.sent:
            raise
        return RefreshUnknown(str(lost))
    return _outcome(reply, request, tokens)


def revoke(server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time) -> Flow[bool]:
    """Revoke a grant; return False if the server did not confirm.

    The refresh token is revoked first, because that should also revoke the access token.
    """
    if server.revocation_endpoint is None:
        return False
    revoked = True
    pairs = (("refresh_token", tokens.refresh_token), ("access_token", tokens.access_token))
    for hint, token in pairs:
        if token is None:
            continue
        form = (("token", token.reveal()), ("token_type_hint", hint))
        reply = yield from post_form(server.revocation_endpoint, server, client, form, clock=clock)
        # A server need not support the revocation of access tokens, because they expire.
        is_unsupported = hint == "access_token" and parse_problem(reply).code == "unsupported_token_type"
        revoked = revoked and (reply.status == 200 or is_unsupported)
    return revoked


def _is_revoked(problem: OAuthProblem) -> bool:
    """Return whether the refresh token is invalid; Atlassian reports this as an error of the client."""
    blamed = problem.code == "unauthorized_client" and _REFRESH_TOKEN.search(problem.description)
    return problem.code in _REVOKED or bool(blamed)


def _outcome(reply: FlowResponse, request: TokenRequest, old: TokenSet) -> RefreshOutcome:
    problem = parse_problem(reply, secrets=request.secrets)
    if _is_revoked(problem):
        return GrantRevoked(problem.message)
    # Usually the old token is still valid; if not, the next outcome is GrantRevoked.
    if reply.status >= 500:
        raise ToolConnectionError(f"{request.subject} failed with status {reply.status}. Retry later.", sent=False)
    if reply.status == 429:
        raise refusal_error(request.subject, reply, secrets=request.secrets)
    if 400 <= reply.status < 500 or problem.code:
        refused = refusal_error(request.subject, reply, secrets=request.secrets)
        raise with_context(refused, "The tokens could not be refreshed; connecting the account again may help")
    try:
        new = read_tokens(reply, request)
    except ToolError as unreadable:
        return RefreshUnknown(str(unreadable))
    tokens = replace(
        new,
        refresh_token=new.refresh_token or old.refresh_token,
        id_token=new.id_token or old.id_token,
        asked=old.asked,
    )
    return RefreshedTokens(tokens)
