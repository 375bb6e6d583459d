"""Sign in to a protected server: from the challenge of a 401 or 403 to tokens, in the order of MCP."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct, field

from toolpost.auth.oauth.authorization import SignInContext, Transaction, begin_authorization, select_scopes
from toolpost.auth.oauth.client import Client, ClientProfile, obtain_client
from toolpost.auth.oauth.flow import Clock, Flow, with_context
from toolpost.auth.oauth.grants import IdentityProvider, TokenSet, client_credentials, enterprise_tokens, jwt_bearer
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
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ToolAuthError, ToolError
from toolpost.contracts.records import represent
from toolpost.wire.messages import Headers

_LONGEST = 16 * 1024
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - RFC 9110's word for a word
_PARAMETER = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|((?!=)[^\s",]+))', re.DOTALL)
_SCHEME = re.compile(rf"({_TOKEN})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_BETWEEN = re.compile(r"[\s,]*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ANYBODY = Trust()
_NOBODY_KNOWN: Mapping[str, Client] = {}


class Challenge(Struct, frozen=True, kw_only=True):
    """One challenge of a WWW-Authenticate field (RFC 9110 section 11.6.1).

    Names are in lower case; of two parameters with one name the first counts.
    """

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    token68: str = ""


class AuthChallenge(Struct, frozen=True, kw_only=True):
    """The tokens and scopes that a protected server demands (RFC 6750, RFC 9449).

    `scopes` are None where it did not say. `resource_metadata` is the URL of its metadata (RFC 9728).
    """

    status: int = 401
    dpop: bool = False
    bearer: bool = True
    error: str = ""
    scopes: tuple[str, ...] | None = None
    resource_metadata: str | None = None

    @property
    def wants_more_scopes(self) -> bool:
        """Whether the token was valid but lacks scopes."""
        return self.error == "insufficient_scope"


def parse_auth_challenge(status: int, headers: Headers) -> AuthChallenge:
    """Parse the challenge of a response; an empty one where no Bearer or DPoP challenge is there."""
    challenges = [
        one for one in parse_challenges(headers.get_all("www-authenticate")) if one.scheme in {"bearer", "dpop"}
    ]
    parameters: dict[str, str] = {}
    for challenge in challenges:
        parameters = {**challenge.parameters, **parameters}
    schemes = {challenge.scheme for challenge in challenges}
    scope = parameters.get("scope")
    return AuthChallenge(
        status=status,
        dpop="dpop" in schemes,
        bearer="bearer" in schemes or not schemes,
        error=parameters.get("error", ""),
        scopes=None if scope is None else tuple(dict.fromkeys(scope.split())),
        resource_metadata=parameters.get("resource_metadata") or None,
    )


def parse_challenges(values: Iterable[str]) -> tuple[Challenge, ...]:
    """Parse every challenge in order; what cannot be read ends its field."""
    return tuple(challenge for value in values for challenge in _field(value[:_LONGEST]))


def _field(text: str) -> Iterator[Challenge]:
    at = _skip(text, 0)
    while at < len(text) and (scheme := _SCHEME.match(text, at)):
        token68 = _TOKEN68.match(text, scheme.end())
        if token68 and _PARAMETER.match(text, scheme.end()) is None:
            at = _skip(text, token68.end())
            yield Challenge(scheme=scheme[1].lower(), token68=token68[0])
            continue
        parameters, at = _parameters(text, scheme.end())
        yield Challenge(scheme=scheme[1].lower(), parameters=parameters)


def _parameters(text: str, at: int) -> tuple[dict[str, str], int]:
    parameters: dict[str, str] = {}
    at = _skip(text, at)
    while parameter := _PARAMETER.match(text, at):
        name, quoted, plain = parameter.groups()
        parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at = _skip(text, parameter.end())
    return parameters, at


def _skip(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


class Assertion(Struct, frozen=True, kw_only=True):
    """A signed assertion that authenticates a workload."""

    token: Secret


Grant: TypeAlias = Literal["code", "client"] | Assertion | IdentityProvider


class SignInPlan(Struct, frozen=True, kw_only=True):
    """How to sign in to one protected server, as configured by an operator.

    `grant` is `code` for a person's consent, `client` for the program itself. `registered` is a client that the
    authorization server knows already. With `legacy` a server without any metadata is taken for one of MCP's revision
    2025-03-26. `server` takes the place of discovery. `resource` is what an operator calls the thing that tokens are
    for (RFC 8707).
    """

    url: str
    profile: ClientProfile = field(default_factory=ClientProfile)
    trust: Trust = _ANYBODY
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

        RFC 8707: a resource is an identifier, and nothing need answer there.
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
    """A person must consent at the URL; store the transaction and the client until the callback."""

    url: str
    transaction: Transaction
    client: Client

    def __repr__(self) -> str:
        return represent(self, without=("url",))


def discover(
    plan: SignInPlan, challenge: AuthChallenge, *, known: Mapping[str, Client] = _NOBODY_KNOWN
) -> Flow[DiscoveredIssuer]:
    """Find the authorization server of a protected server; of several, one that knows the client."""
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
    clients: Mapping[str, Client] = _NOBODY_KNOWN,
    clock: Clock = time.time,
) -> Flow[TokenGrant | ConsentRedirect]:
    """Answer a challenge: return tokens where no person is needed, else the redirect for consent.

    `tokens` are those that were refused; `clients` are those of earlier registrations, by issuer.
    """
    earlier = scopes_to_keep(challenge, tokens)
    discovered = yield from discover(plan, challenge, known=clients)
    server = discovered.server
    if tokens is not None and tokens.issuer != server.issuer:  # what one issuer knows means nothing to another
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
    """Return the scopes of earlier tokens; ToolAuthError when the challenged ones were requested and not granted."""
    if tokens is None:
        return ()
    if challenge.wants_more_scopes and set(challenge.scopes or ()) <= set(tokens.asked):
        scopes = " ".join(challenge.scopes or ()) or "more than it says"
        raise ToolAuthError(
            f"The server still refuses for lack of scope ({scopes}), which was asked for and not granted. "
            "Somebody with more rights must sign in, or be given them.",
            code="oauth_scope_refused",
            status_code=403,
        )
    return tuple(dict.fromkeys((*tokens.asked, *tokens.scopes)))


def _find_unannounced(plan: SignInPlan) -> Flow[ServerMetadata]:
    """Find the issuer of a server without metadata: the operator's, or the server itself as in 2025-03-26."""
    if plan.issuer is not None:
        return (yield from discover_server(plan.issuer, trust=plan.trust))
    origin = origin_of(plan.url)
    server = yield from find_server(origin, trust=plan.trust)
    if server is not None:
        return server
    if plan.legacy:
        return legacy_server(plan.url)
    silent = ToolAuthError(
        f"{origin!r} asks for a sign-in but does not say where (RFC 9728). "
        "Write the issuer of its tokens, or a token, into the source's auth_config.",
        code="oauth_metadata",
    )
    raise silent if plan.resource is None else with_context(silent, _describe_request(plan))


def _describe_request(plan: SignInPlan) -> str:
    """Return what the server was asked and why, for the message of an error."""
    if plan.url == plan.issuer:
        return f"The issuer {plan.issuer!r} was asked what its tokens are for"
    if plan.resource is None:
        return f"{origin_of(plan.url)!r} was asked who issues its tokens (RFC 9728)"
    return (
        f"auth_config.resource {plan.resource!r} was asked who issues its tokens (RFC 9728), for neither issuer nor "
        "auth_url and token_url are written beside it"
    )


def _choice(plan: SignInPlan, resource: ResourceMetadata, known: Mapping[str, Client]) -> str:
    offered = resource.authorization_servers
    if plan.issuer is None:
        registered = plan.registered.issuer if plan.registered else None
        return next((issuer for issuer in offered if issuer == registered or issuer in known), offered[0])
    if plan.issuer not in offered:
        raise ToolAuthError(
            f"The server takes tokens from {', '.join(map(repr, offered[:3]))}, but the configuration names "
            f"{plan.issuer!r}. If the change is right, change the configuration.",
            code="oauth_issuer_changed",
        )
    return plan.issuer


def _dpop_key(discovered: DiscoveredIssuer, challenge: AuthChallenge, tokens: TokenSet | None) -> DpopKey | None:
    """Return a DPoP key where tokens must be bound and the issuer can bind them; the earlier one, if any."""
    required = (discovered.metadata is not None and discovered.metadata.dpop_required) or not challenge.bearer
    if not required and not challenge.dpop:
        return None
    if DPOP_ALGORITHM in discovered.server.dpop_algorithms:
        return DpopKey(tokens.dpop_key) if tokens is not None and tokens.dpop_key else DpopKey.new()
    if not required:
        return None
    message = (
        f"The server wants tokens bound to a key (DPoP), but {discovered.server.issuer!r} does not bind them "
        f"by {DPOP_ALGORITHM}."
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
