"""The device authorization grant (RFC 8628): request a code, and poll until the user has entered it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.oauth.client import DEVICE_GRANT, Client
from toolpost.auth.oauth.flow import Clock, Flow, FlowResponse, json_object, parse_problem, refusal_error, run_flow
from toolpost.auth.oauth.metadata import ServerMetadata, Trust
from toolpost.auth.oauth.tokens import TokenRequest, TokenSet, post_form, read_tokens
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolConnectionError, ToolTimeoutError
from toolpost.contracts.records import represent
from toolpost.schema.json_values import finite_number
from toolpost.wire.messages import Pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.wire.client import HttpClient

_INTERVAL_S = 5.0
_SLOWER_S = 5.0
_SLOWEST_S = 60.0
_LIFE_S = 600.0


class DeviceGrant(Struct, frozen=True, kw_only=True):
    """A device code: show `user_code` and `verification_uri`, then poll every `interval` seconds."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    interval: float = _INTERVAL_S
    expires: float
    server: ServerMetadata
    client: Client
    resource: str | None = None
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("user_code", "verification_uri_complete"))


def begin_device(
    server: ServerMetadata,
    client: Client,
    *,
    trust: Trust,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    clock: Clock = time.time,
) -> Flow[DeviceGrant]:
    """Request a device code."""
    if server.device_authorization_endpoint is None:
        message = f"The authorization server {server.issuer!r} does not support device codes. Sign in with a browser."
        raise ToolAuthError(message, code="oauth_metadata")
    form: Pairs = (("scope", " ".join(scopes)),) if scopes else ()
    form = (*form, ("resource", resource)) if resource else form
    began = clock()
    reply = yield from post_form(server.device_authorization_endpoint, server, client, form, clock=clock)
    body = json_object(reply)
    if reply.status != 200 or body is None or parse_problem(reply).code:
        raise refusal_error(f"The device endpoint of {server.issuer!r}", reply)
    uris = _uris(body, server, trust)
    return DeviceGrant(
        device_code=Secret(_text(body, "device_code", server)),
        user_code=_text(body, "user_code", server),
        verification_uri=uris[0],
        verification_uri_complete=uris[1],
        interval=min(_number(body.get("interval"), _INTERVAL_S), _SLOWEST_S),
        expires=began + _number(body.get("expires_in"), _LIFE_S),
        server=server,
        client=client,
        resource=resource,
        scopes=scopes,
    )


def poll_device(grant: DeviceGrant, *, clock: Clock = time.time) -> Flow[TokenSet | DeviceGrant]:
    """Poll once: return the tokens, or the grant for the next poll; raise ToolAuthError if declined or expired."""
    if clock() >= grant.expires:
        raise _expired()
    form: Pairs = (("grant_type", DEVICE_GRANT), ("device_code", grant.device_code.reveal()))
    form = (*form, ("resource", grant.resource)) if grant.resource else form
    request = TokenRequest.of(
        grant.server, grant.client, form, began=clock(), resource=grant.resource, scopes=grant.scopes
    )
    try:
        reply = yield from post_form(grant.server.token_endpoint, grant.server, grant.client, form, clock=clock)
    except (ToolConnectionError, ToolTimeoutError):
        return _later(grant)
    return _read_poll(reply, grant, request)


async def await_device(
    grant: DeviceGrant,
    client: HttpClient,
    *,
    clock: Clock = time.time,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> TokenSet:
    """Poll at the server's interval until the user has answered or the code expires."""
    while True:
        await sleep(grant.interval)
        polled = await run_flow(poll_device(grant, clock=clock), client)
        if not isinstance(polled, DeviceGrant):
            return polled
        grant = polled


def _read_poll(reply: FlowResponse, grant: DeviceGrant, request: TokenRequest) -> TokenSet | DeviceGrant:
    match parse_problem(reply).code:
        case "authorization_pending":
            return grant
        case "slow_down":
            return replace(grant, interval=grant.interval + _SLOWER_S)
        case "access_denied":
            raise ToolAuthError("The sign-in was declined. Nothing was connected.", code="oauth_denied")
        case "expired_token":
            raise _expired()
        case _ if reply.status == 429 or reply.status >= 500:
            return _later(grant)
        case _:
            return read_tokens(reply, request)


def _later(grant: DeviceGrant) -> DeviceGrant:
    """Double the interval after a lost response (RFC 8628 section 3.5)."""
    return replace(grant, interval=max(grant.interval, min(grant.interval * 2, _SLOWEST_S)))


def _uris(body: dict[str, Any], server: ServerMetadata, trust: Trust) -> tuple[str, str | None]:
    """Return the verification URIs; Google calls them `url` instead of `uri`."""
    plain = body.get("verification_uri") or body.get("verification_url")
    whole = body.get("verification_uri_complete")
    checked = trust.check(plain, name="verification_uri", documents=server.documents)
    if whole is None:
        return checked, None
    return checked, trust.check(whole, name="verification_uri_complete", documents=server.documents)


def _text(body: dict[str, Any], name: str, server: ServerMetadata) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise ToolAuthError(f"The device endpoint of {server.issuer!r} returned no {name}.", code="oauth_response")
    return value


def _number(value: object, otherwise: float) -> float:
    number = finite_number(value)
    return float(number) if number is not None and number > 0 else otherwise


def _expired() -> ToolAuthError:
    return ToolAuthError("The device code has expired. Start the sign-in again.", code="oauth_expired")
