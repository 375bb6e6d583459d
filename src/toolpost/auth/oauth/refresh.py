"""A new access token without the person, and the end of a grant (RFC 6749 section 6, RFC 7009)."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from toolpost.auth.oauth.dpop import DpopKey
from toolpost.auth.oauth.endpoint import ask_endpoint
from toolpost.auth.oauth.refusals import problem_of, refusal_of, secrets_in, with_context
from toolpost.auth.oauth.tokens import TokenSet, TokenWish, read_tokens
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.auth.oauth.client import Client
    from toolpost.auth.oauth.flow import Clock, Flow, Reply
    from toolpost.auth.oauth.metadata import ServerMetadata
    from toolpost.auth.oauth.refusals import OAuthProblem
    from toolpost.wire.requests import Pairs

# GitHub and Slack have words of their own for it; OpenID's say that the person must be there (Core section 3.1.2.6).
_DEAD = frozenset(
    {
        "invalid_grant",
        "bad_refresh_token",
        "invalid_refresh_token",
        "interaction_required",
        "login_required",
        "consent_required",
    }
)
_ITS_NAME = re.compile(r"refresh[ _]token", re.IGNORECASE)


class RefreshedTokens(NamedTuple):
    """New tokens; the old refresh token may be dead, so these must be stored before they are used.

    `revoke` revokes the new tokens, should their account be gone by then.
    """

    tokens: TokenSet
    revoke: Callable[[], Awaitable[object]] | None = None


class GrantRevoked(NamedTuple):
    """The grant is over. Only the person can give a new one."""

    reason: str = ""


class RefreshUnknown(NamedTuple):
    """The request may have been served, but its answer was lost, and with it perhaps the next refresh token."""

    reason: str = ""


RefreshOutcome = RefreshedTokens | GrantRevoked | RefreshUnknown


def refresh(
    server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time
) -> Flow[RefreshOutcome]:
    """Renew tokens.

    What is raised had no effect: nothing was sent, or the server refused for a reason that is not the grant's.
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
    wish = _wish(server, client, tokens, form, clock())
    try:
        reply = yield from ask_endpoint(
            server.token_endpoint, server, client, form, clock=clock, dpop_key=wish.dpop_key
        )
    except (ToolConnectionError, ToolTimeoutError, ToolClientError) as lost:
        if isinstance(lost, ToolConnectionError) and not lost.sent:
            raise
        return RefreshUnknown(str(lost))
    return _outcome(reply, wish, tokens)


def revoke(server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time) -> Flow[bool]:
    """Tell the server that a grant is over; False where it did not say that it heard.

    The refresh token goes first: where it dies, the access token should die with it.
    """
    if server.revocation_endpoint is None:
        return False
    heard = True
    held = (("refresh_token", tokens.refresh_token), ("access_token", tokens.access_token))
    for hint, token in held:
        if token is None:
            continue
        form = (("token", token.reveal()), ("token_type_hint", hint))
        reply = yield from ask_endpoint(server.revocation_endpoint, server, client, form, clock=clock)
        # A server need not be able to revoke access tokens, which end by themselves.
        given_up = hint == "access_token" and problem_of(reply).code == "unsupported_token_type"
        heard = heard and (reply.status == 200 or given_up)
    return heard


def _wish(server: ServerMetadata, client: Client, tokens: TokenSet, form: Pairs, began: float) -> TokenWish:
    return TokenWish(
        issuer=server.issuer,
        client_id=client.id,
        resource=tokens.resource,
        scopes=tokens.scopes,
        dpop_key=DpopKey(tokens.dpop_key) if tokens.dpop_key else None,
        began=began,
        secrets=(*secrets_in(form), *([client.secret.reveal()] if client.secret else [])),
    )


def _is_dead(problem: OAuthProblem) -> bool:
    """Atlassian blames the client, and says in words that it is the token."""
    blamed = problem.code == "unauthorized_client" and _ITS_NAME.search(problem.description)
    return problem.code in _DEAD or bool(blamed)


def _outcome(reply: Reply, wish: TokenWish, old: TokenSet) -> RefreshOutcome:
    problem = problem_of(reply, secrets=wish.secrets)
    if _is_dead(problem):
        return GrantRevoked(problem.told)
    if (
        reply.status >= 500
    ):  # mostly the old token is as good as before; if it was used up, the next outcome is GrantRevoked
        raise ToolConnectionError(f"{wish.subject} fails now ({reply.status}). Try again later.", sent=False)
    if reply.status == 429:
        raise refusal_of(wish.subject, reply, secrets=wish.secrets)
    if 400 <= reply.status < 500 or problem.code:
        refused = refusal_of(wish.subject, reply, secrets=wish.secrets)
        raise with_context(refused, "The tokens could not be renewed; connecting the account again may help")
    try:
        new = read_tokens(reply, wish)
    except ToolError as unreadable:
        return RefreshUnknown(str(unreadable))
    kept = replace(
        new,
        refresh_token=new.refresh_token or old.refresh_token,
        id_token=new.id_token or old.id_token,
        asked=old.asked,
    )
    return RefreshedTokens(kept)
