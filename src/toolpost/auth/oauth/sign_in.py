"""Sign-in to a protected server: from the challenge of a 401 or 403 to tokens, in the order of MCP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct, field

from toolpost.auth.oauth.authorization import SignInContext, Transaction, begin_authorization, select_scopes
from toolpost.auth.oauth.challenges import AuthChallenge
from toolpost.auth.oauth.client import Client, ClientProfile, obtain_client
from toolpost.auth.oauth.flow import Clock, Flow, with_context
from toolpost.auth.oauth.grants import IdentityProvider, client_credentials, enterprise_tokens, jwt_bearer
from toolpost.auth.oauth.jose import DPOP_ALGORITHM, DpopKey
from toolpost.auth.oauth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    Trust,
    discover_server,
    find_resource,
    find_server,
    legacy_server,
    origin_of,
    resource_of,
)
from toolpost.auth.oauth.tokens import TokenSet
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.records import represent

_ANY_HOST = Trust()
_NO_CLIENTS: Mapping[str, Client] = {}


class Assertion(Struct, frozen=True, kw_only=True):
    """A signed assertion that authenticates a workload."""

    token: Secret


Grant: TypeAlias = Literal["code", "client"] | Assertion | IdentityProvider


class SignInPlan(Struct, frozen=True, kw_only=True):
    """How to sign in to one protected server, as configured by an operator.

    `grant` is `code` for the consent of a user, `client` for the program itself. `registered` is a client that the
    authorization server already knows. With `legacy`, a server without metadata is treated as one of MCP 2025-03-26.
    `server` replaces discovery. `resource` is the operator's identifier of the resource of the tokens (RFC 8707).
    """

    url: str
    profile: ClientProfile = field(default_factory=ClientProfile)
    trust: Trust = _ANY_HOST
    grant: Grant = "code"
    registered: Client | None = None
    issuer: str | None = None
    server: ServerMetadata | None = None
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    legacy: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether discovery is not needed: issuer and resource are configured.

        RFC 8707: a resource is an identifier, which need not be reachable.
        """
        return self.resource is not None and (self.issuer is not None or self.server is not None)


class DiscoveredIssuer(Struct, frozen=True, kw_only=True):
    """The authorization server of a protected server, and the resource of its tokens."""

    server: ServerMetadata
    resource: str
    metadata: ResourceMetadata | None = None


class TokenGrant(Struct, frozen=True, kw_only=True):
    """Tokens, with the server and client to store with them."""

    tokens: TokenSet
    client: Client
    server: ServerMetadata


class ConsentRedirect(Struct, frozen=True, kw_only=True):
    """A user must consent at the URL; store the transaction and the client until the callback."""

    url: str
    transaction: Transaction
    client: Client

    def __repr__(self) -> str:
        return represent(self, without=("url",))


def discover(
    plan: SignInPlan, challenge: AuthChallenge, *, known: Mapping[str, Client] = _NO_CLIENTS
) -> Flow[DiscoveredIssuer]:
    """Find the authorization server of a protected server; prefer one that knows the client."""
    if plan.resource is not None and plan.is_settled:
        server = plan.server or (yield from _find_unannounced(plan))
        return DiscoveredIssuer(server=server, resource=plan.resource)
    try:
        resource = yield from find_resource(plan.url, trust=plan.trust, metadata_url=challenge.resource_metadata)
    except ToolError as failed:
        raise with_context(failed, _describe_request(plan)) from None
    name = resource_of(plan.url) if resource is None else resource.resource
    if plan.server is not None:
        return DiscoveredIssuer(server=plan.server, resource=name, metadata=resource)
    if resource is None:
        server = yield from _find_unannounced(plan)
        return DiscoveredIssuer(server=server, resource=name)
    issuer = _choice(plan, resource, known)
    documents = () if plan.issuer else resource.documents
    server = yield from discover_server(issuer, trust=plan.trust, documents=documents)
    return DiscoveredIssuer(server=server, resource=name, metadata=resource)


def sign_in(
    plan: SignInPlan,
    challenge: AuthChallenge,
    caller: SignInContext,
    *,
    tokens: TokenSet | None = None,
    clients: Mapping[str, Client] = _NO_CLIENTS,
    clock: Clock = time.time,
) -> Flow[TokenGrant | ConsentRedirect]:
    """Answer a challenge: return tokens if no user is needed, else the redirect for consent.

    `tokens` are the rejected tokens; `clients` are those of earlier registrations, by issuer.
    """
    earlier = scopes_to_keep(challenge, tokens)
    discovered = yield from discover(plan, challenge, known=clients)
    server = discovered.server
    if tokens is not None and tokens.issuer != server.issuer:  # tokens and scopes of one issuer are invalid at another
        tokens, earlier = None, ()
    client = yield from obtain_client(
        server, plan.profile, registered=plan.registered, known=clients.get(server.issuer), clock=clock
    )
    scopes = select_scopes(
        challenged=challenge.scopes,
        wished=plan.scopes,
        resource=discovered.metadata,
        server=server if plan.grant == "code" else None,
        earlier=earlier,
    )
    key = _dpop_key(discovered, challenge, tokens)
    if plan.grant != "code":
        granted = yield from _request_unattended(plan.grant, discovered, client, scopes, key, clock)
        return TokenGrant(tokens=granted, client=client, server=server)
    request = begin_authorization(
        server, client, caller, resource=discovered.resource, scopes=scopes, dpop_key=key, clock=clock
    )
    return ConsentRedirect(url=request.url, transaction=request.transaction, client=client)


def scopes_to_keep(challenge: AuthChallenge, tokens: TokenSet | None) -> tuple[str, ...]:
    """Return the scopes of earlier tokens; raise ToolAuthError if the challenged ones were already requested."""
    if tokens is None:
        return ()
    if challenge.wants_more_scopes and set(challenge.scopes or ()) <= set(tokens.asked):
        scopes = " ".join(challenge.scopes or ()) or "not specified"
        raise ToolAuthError(
            f"The server rejects the token for lack of scope ({scopes}), which was requested but not granted. "
            "A user with more permissions must sign in.",
            code="oauth_scope_refused",
            status_code=403,
        )
    return tuple(dict.fromkeys((*tokens.asked, *tokens.scopes)))


def _find_unannounced(plan: SignInPlan) -> Flow[ServerMetadata]:
    """Find the issuer of a server without metadata: the operator's, or the server itself as in MCP 2025-03-26."""
    if plan.issuer is not None:
        return (yield from discover_server(plan.issuer, trust=plan.trust))
    origin = origin_of(plan.url)
    server = yield from find_server(origin, trust=plan.trust)
    if server is not None:
        return server
    if plan.legacy:
        return legacy_server(plan.url)
    silent = ToolAuthError(
        f"{origin!r} requires a sign-in but does not publish its issuer (RFC 9728). "
        "Write the issuer of its tokens, or a token, into the source's auth_config.",
        code="oauth_metadata",
    )
    raise silent if plan.resource is None else with_context(silent, _describe_request(plan))


def _describe_request(plan: SignInPlan) -> str:
    """Return a description of the request for metadata, for error messages."""
    if plan.url == plan.issuer:
        return f"Requested the resource of its tokens from the issuer {plan.issuer!r}"
    if plan.resource is None:
        return f"Requested the issuer of its tokens from {origin_of(plan.url)!r} (RFC 9728)"
    return (
        f"Requested the issuer of its tokens from auth_config.resource {plan.resource!r} (RFC 9728), because neither "
        "issuer nor auth_url and token_url are configured"
    )


def _choice(plan: SignInPlan, resource: ResourceMetadata, known: Mapping[str, Client]) -> str:
    offered = resource.authorization_servers
    if plan.issuer is None:
        registered = plan.registered.issuer if plan.registered else None
        return next((issuer for issuer in offered if issuer == registered or issuer in known), offered[0])
    if plan.issuer not in offered:
        raise ToolAuthError(
            f"The server accepts tokens from {', '.join(map(repr, offered[:3]))}, but the configuration names "
            f"{plan.issuer!r}. If the change is intended, change the configuration.",
            code="oauth_issuer_changed",
        )
    return plan.issuer


def _dpop_key(discovered: DiscoveredIssuer, challenge: AuthChallenge, tokens: TokenSet | None) -> DpopKey | None:
    """Return a DPoP key if tokens must be bound and the issuer supports it; reuse the earlier key, if any."""
    required = (discovered.metadata is not None and discovered.metadata.dpop_required) or not challenge.bearer
    if not required and not challenge.dpop:
        return None
    if DPOP_ALGORITHM in discovered.server.dpop_algorithms:
        return DpopKey(tokens.dpop_key) if tokens is not None and tokens.dpop_key else DpopKey.new()
    if not required:
        return None
    message = (
        f"The server requires tokens bound to a key (DPoP), but {discovered.server.issuer!r} does not support "
        f"{DPOP_ALGORITHM}."
    )
    raise ToolAuthError(message, code="oauth_metadata")


def _request_unattended(
    grant: Literal["client"] | Assertion | IdentityProvider,
    discovered: DiscoveredIssuer,
    client: Client,
    scopes: tuple[str, ...],
    key: DpopKey | None,
    clock: Clock,
) -> Flow[TokenSet]:
    server, resource = discovered.server, discovered.resource
    match grant:
        case "client":
            return client_credentials(server, client, resource=resource, scopes=scopes, dpop_key=key, clock=clock)
        case Assertion(token=token):
            return jwt_bearer(server, client, token, resource=resource, scopes=scopes, dpop_key=key, clock=clock)
        case IdentityProvider():
            return enterprise_tokens(server, client, grant, resource=resource, scopes=scopes, dpop_key=key, clock=clock)
        case _:
            assert_never(grant)
