"""Consent on another device: a short code, and asking until it was entered (RFC 8628)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.endpoint import ask_endpoint
from toolpost.auth.oauth.flow import json_object
from toolpost.auth.oauth.metadata import ServerMetadata
from toolpost.auth.oauth.refusals import problem_of, refusal_of, secrets_in
from toolpost.auth.oauth.registration import DEVICE_GRANT
from toolpost.auth.oauth.tokens import TokenWish, read_tokens
from toolpost.auth.oauth.trust import Trust
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolTimeoutError

if TYPE_CHECKING:
    from toolpost.auth.oauth.flow import Clock, Flow, Reply
    from toolpost.auth.oauth.tokens import TokenSet
    from toolpost.wire.requests import Pairs

_INTERVAL_S = 5.0
_SLOWER_S = 5.0
_SLOWEST_S = 60.0
_LIFE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """A code that waits for its person: show `user_code` and `verification_uri`, then poll every `interval` seconds."""

    device_code: Secret
    user_code: str = field(repr=False)
    verification_uri: str
    verification_uri_complete: str | None = field(default=None, repr=False)
    interval: float = _INTERVAL_S
    expires: float
    server: ServerMetadata
    client: Client
    resource: str | None = None
    scopes: tuple[str, ...] = ()


def begin_device(
    server: ServerMetadata,
    client: Client,
    *,
    trust: Trust,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    clock: Clock = time.time,
) -> Flow[DeviceGrant]:
    """Ask for a code."""
    if server.device_authorization_endpoint is None:
        message = f"The authorization server {server.issuer!r} has no sign-in by code. Sign in with a browser."
        raise ToolAuthError(message, code="oauth_metadata")
    form: Pairs = (("scope", " ".join(scopes)),) if scopes else ()
    form = (*form, ("resource", resource)) if resource else form
    began = clock()
    reply = yield from ask_endpoint(server.device_authorization_endpoint, server, client, form, clock=clock)
    told = json_object(reply)
    if reply.status != 200 or told is None or problem_of(reply).code:
        raise refusal_of(f"The device endpoint of {server.issuer!r}", reply)
    uris = _uris(told, server, trust)
    return DeviceGrant(
        device_code=Secret(_text(told, "device_code", server)),
        user_code=_text(told, "user_code", server),
        verification_uri=uris[0],
        verification_uri_complete=uris[1],
        interval=min(_number(told.get("interval"), _INTERVAL_S), _SLOWEST_S),
        expires=began + _number(told.get("expires_in"), _LIFE_S),
        server=server,
        client=client,
        resource=resource,
        scopes=scopes,
    )


def poll_device(grant: DeviceGrant, *, clock: Clock = time.time) -> Flow[TokenSet | DeviceGrant]:
    """The tokens, or the grant to poll with next time; a ToolAuthError when the person said no or was too late."""
    if clock() >= grant.expires:
        raise _over("nobody entered the code in time")
    form: Pairs = (("grant_type", DEVICE_GRANT), ("device_code", grant.device_code.reveal()))
    form = (*form, ("resource", grant.resource)) if grant.resource else form
    wish = TokenWish(
        issuer=grant.server.issuer,
        client_id=grant.client.id,
        resource=grant.resource,
        scopes=grant.scopes,
        began=clock(),
        secrets=secrets_in(form),
    )
    try:
        reply = yield from ask_endpoint(grant.server.token_endpoint, grant.server, grant.client, form, clock=clock)
    except (ToolConnectionError, ToolTimeoutError):
        return _later(grant)
    return _polled(reply, grant, wish)


def _polled(reply: Reply, grant: DeviceGrant, wish: TokenWish) -> TokenSet | DeviceGrant:
    match problem_of(reply).code:
        case "authorization_pending":
            return grant
        case "slow_down":
            return replace(grant, interval=grant.interval + _SLOWER_S)
        case "access_denied":
            raise ToolAuthError("The sign-in was declined. Nothing was connected.", code="oauth_denied")
        case "expired_token":
            raise _over("nobody entered the code in time")
        case _ if reply.status == 429 or reply.status >= 500:
            return _later(grant)
        case _:
            return read_tokens(reply, wish)


def _later(grant: DeviceGrant) -> DeviceGrant:
    """RFC 8628 section 3.5: who was not heard comes back later, and later still; the code is as good as before."""
    return replace(grant, interval=max(grant.interval, min(grant.interval * 2, _SLOWEST_S)))


def _uris(told: dict[str, Any], server: ServerMetadata, trust: Trust) -> tuple[str, str | None]:
    """Google writes `url` for `uri`."""
    plain = told.get("verification_uri") or told.get("verification_url")
    whole = told.get("verification_uri_complete")
    checked = trust.check(plain, name="verification_uri", documents=server.documents)
    if whole is None:
        return checked, None
    return checked, trust.check(whole, name="verification_uri_complete", documents=server.documents)


def _text(told: dict[str, Any], name: str, server: ServerMetadata) -> str:
    value = told.get(name)
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise ToolAuthError(
            f"The device endpoint of {server.issuer!r} answered without a {name}.", code="oauth_response"
        )
    return value


def _number(value: object, otherwise: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    return float(value) if usable and isinstance(value, int | float) else otherwise


def _over(reason: str) -> ToolAuthError:
    return ToolAuthError(f"The sign-in by code is over: {reason}. Start it again.", code="oauth_expired")
