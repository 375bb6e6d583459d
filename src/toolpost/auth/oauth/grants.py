"""Token sets, requests to a token endpoint, and the grants without a browser callback; refresh and revocation."""

from __future__ import annotations

import asyncio
import math
import re
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.oauth.client import DEVICE_GRANT, Client, authenticate_client
from toolpost.auth.oauth.flow import (
    ACCEPT_JSON,
    Clock,
    Flow,
    FlowRequest,
    FlowResponse,
    host_of,
    json_object,
    parse_problem,
    presentable,
    refusal_error,
    run_flow,
    secrets_in,
    with_context,
)
from toolpost.auth.oauth.jose import DpopKey, dpop_nonce
from toolpost.auth.oauth.metadata import ServerMetadata, Trust
from toolpost.auth.secret import Secret, revealed
from toolpost.contracts.errors import ToolAuthError, ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError
from toolpost.contracts.records import represent
from toolpost.schema.json_values import finite_number
from toolpost.wire.messages import Pairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.auth.oauth.flow import OAuthProblem
    from toolpost.wire.client import HttpClient


JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - a name of RFC 8693
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the same
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_INTERVAL_S = 5.0
_SLOWER_S = 5.0
_SLOWEST_S = 60.0
_LIFE_S = 600.0
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
TokenType = Literal["Bearer", "DPoP"]
_SKEW_S = 30.0
_SKEW_SHARE = 0.1
_LONGEST_LIFE_S = 10 * 365 * 86400.0
_SENDABLE = re.compile(r"[!-~]{1,65536}")
# Slack writes whom a token is for where its type belongs.
_BEARERS = frozenset({"", "bearer", "bot", "user"})


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
    """Request tokens with a signed assertion (RFC 7523) of a workload or a person of an enterprise.

    A refusal is final: the same assertion is not sent twice, and no other grant is tried in its place.
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
    statement = body.get("access_token")  # RFC 8693 section 2.2.1: whatever it is, it comes under this name
    if body.get("issued_token_type") != ID_JAG or not isinstance(statement, str) or not statement:
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
    """Request tokens with an assertion of an enterprise's identity provider, without a consent of their own."""
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
        message = f"The authorization server {server.issuer!r} has no sign-in by code. Sign in with a browser."
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
    """Poll once: return the tokens, or the grant to poll with next; ToolAuthError when declined or expired."""
    if clock() >= grant.expires:
        raise _over("nobody entered the code in time")
    form: Pairs = (("grant_type", DEVICE_GRANT), ("device_code", grant.device_code.reveal()))
    form = (*form, ("resource", grant.resource)) if grant.resource else form
    request = TokenRequest(
        issuer=grant.server.issuer,
        client_id=grant.client.id,
        resource=grant.resource,
        scopes=grant.scopes,
        began=clock(),
        secrets=secrets_in(form),
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
    """Poll at the server's interval until the person has answered or the code expired."""
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
            raise _over("nobody entered the code in time")
        case _ if reply.status == 429 or reply.status >= 500:
            return _later(grant)
        case _:
            return read_tokens(reply, request)


def _later(grant: DeviceGrant) -> DeviceGrant:
    """Double the interval after a lost answer (RFC 8628 section 3.5)."""
    return replace(grant, interval=max(grant.interval, min(grant.interval * 2, _SLOWEST_S)))


def _uris(body: dict[str, Any], server: ServerMetadata, trust: Trust) -> tuple[str, str | None]:
    """Return the verification URIs; Google writes `url` for `uri`."""
    plain = body.get("verification_uri") or body.get("verification_url")
    whole = body.get("verification_uri_complete")
    checked = trust.check(plain, name="verification_uri", documents=server.documents)
    if whole is None:
        return checked, None
    return checked, trust.check(whole, name="verification_uri_complete", documents=server.documents)


def _text(body: dict[str, Any], name: str, server: ServerMetadata) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise ToolAuthError(
            f"The device endpoint of {server.issuer!r} answered without a {name}.", code="oauth_response"
        )
    return value


def _number(value: object, otherwise: float) -> float:
    number = finite_number(value)
    return float(number) if number is not None and number > 0 else otherwise


def _over(reason: str) -> ToolAuthError:
    return ToolAuthError(f"The sign-in by code is over: {reason}. Start it again.", code="oauth_expired")


class RefreshedTokens(NamedTuple):
    """New tokens; the old refresh token may be dead, so these must be stored before they are used.

    `revoke` revokes the new tokens, should their account be gone by then.
    """

    tokens: TokenSet
    revoke: Callable[[], Awaitable[object]] | None = None


class GrantRevoked(NamedTuple):
    """The grant ended. Only the person can give a new one."""

    reason: str = ""


class RefreshUnknown(NamedTuple):
    """The request may have been served, but its answer was lost, and with it perhaps the next refresh token."""

    reason: str = ""


RefreshOutcome = RefreshedTokens | GrantRevoked | RefreshUnknown


def refresh(
    server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time
) -> Flow[RefreshOutcome]:
    """Refresh tokens.

    An error that is raised had no effect: nothing was sent, or the server refused for a reason that is not the grant's.
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
    request = _token_request(server, client, tokens, form, clock())
    try:
        reply = yield from post_form(
            server.token_endpoint, server, client, form, clock=clock, dpop_key=request.dpop_key
        )
    except (ToolConnectionError, ToolTimeoutError, ToolClientError) as lost:
        if isinstance(lost, ToolConnectionError) and not lost.sent:
            raise
        return RefreshUnknown(str(lost))
    return _outcome(reply, request, tokens)


def revoke(server: ServerMetadata, client: Client, tokens: TokenSet, *, clock: Clock = time.time) -> Flow[bool]:
    """Revoke a grant; False where the server did not confirm.

    The refresh token goes first: where it ends, the access token should end with it.
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
        # A server need not be able to revoke access tokens, which end by themselves.
        is_unsupported = hint == "access_token" and parse_problem(reply).code == "unsupported_token_type"
        revoked = revoked and (reply.status == 200 or is_unsupported)
    return revoked


def _token_request(server: ServerMetadata, client: Client, tokens: TokenSet, form: Pairs, began: float) -> TokenRequest:
    return TokenRequest(
        issuer=server.issuer,
        client_id=client.id,
        resource=tokens.resource,
        scopes=tokens.scopes,
        dpop_key=DpopKey(tokens.dpop_key) if tokens.dpop_key else None,
        began=began,
        secrets=(*secrets_in(form), *([client.secret.reveal()] if client.secret else [])),
    )


def _is_dead(problem: OAuthProblem) -> bool:
    """Return whether the refresh token ended; Atlassian blames the client and names the token in the description."""
    blamed = problem.code == "unauthorized_client" and _ITS_NAME.search(problem.description)
    return problem.code in _DEAD or bool(blamed)


def _outcome(reply: FlowResponse, request: TokenRequest, old: TokenSet) -> RefreshOutcome:
    problem = parse_problem(reply, secrets=request.secrets)
    if _is_dead(problem):
        return GrantRevoked(problem.message)
    # Mostly the old token is as good as before; if it was used up, the next outcome is GrantRevoked.
    if reply.status >= 500:
        raise ToolConnectionError(
            f"{request.subject} fails now ({reply.status}). It has a problem of its own, which may pass.", sent=False
        )
    if reply.status == 429:
        raise refusal_error(request.subject, reply, secrets=request.secrets)
    if 400 <= reply.status < 500 or problem.code:
        refused = refusal_error(request.subject, reply, secrets=request.secrets)
        raise with_context(refused, "The tokens could not be renewed; connecting the account again may help")
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


class TokenSet(Struct, frozen=True, kw_only=True):
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
        secrets = (self.access_token, self.refresh_token, self.id_token, self.dpop_key)
        return revealed(secret for secret in secrets if secret)


class TokenRequest(Struct, frozen=True, kw_only=True):
    """What was requested from a token endpoint, as far as reading the response needs it."""

    issuer: str
    client_id: str
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    dpop_key: DpopKey | None = None
    began: float = 0.0
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return represent(self, without=("secrets",))

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
    token_type = body.get("token_type", "")
    kind = token_type.lower() if isinstance(token_type, str) else "?"
    if kind in _BEARERS:
        return "Bearer"
    if kind == "dpop" and request.dpop_key is not None:
        return "DPoP"
    named = presentable(str(token_type))
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
    fields = (*form, ("resource", resource)) if resource else form
    reply = yield from post_form(server.token_endpoint, server, client, fields, clock=clock, dpop_key=dpop_key)
    return read_tokens(reply, request)
