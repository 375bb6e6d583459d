"""Consent in a browser (OAuth 2.1): the authorization request, its callback, and the exchange of the code."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from toolpost.auth.oauth.client import Client
from toolpost.auth.oauth.flow import Clock, Flow, OAuthProblem, OAuthResponseError, presentable
from toolpost.auth.oauth.jose import DpopKey
from toolpost.auth.oauth.metadata import ResourceMetadata, ServerMetadata, is_loopback_url
from toolpost.auth.oauth.tokens import TokenSet, request_tokens
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.contracts.records import represent
from toolpost.wire.messages import Pairs
from toolpost.wire.targets import parse_target

TRANSACTION_TTL_S = 600.0
OFFLINE = "offline_access"


class SignInContext(Struct, frozen=True, kw_only=True):
    """The user of a sign-in, and the redirect URI of the browser.

    `browser` is the `browser_binding` of the starting browser's cookie; empty if the sign-in is bound by other means.
    """

    redirect_uri: str
    tenant: str = ""
    user: str = ""
    browser: str = ""
    provider: str = ""
    trace_id: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("browser",))


class Transaction(Struct, frozen=True, kw_only=True):
    """One sign-in in progress: everything that is needed to finish it, in any process, once."""

    state: str
    verifier: Secret | None
    server: ServerMetadata
    client: Client
    caller: SignInContext
    created: float
    expires: float
    resource: str | None = None
    scopes: tuple[str, ...] = ()
    dpop_key: Secret | None = None

    def __repr__(self) -> str:
        return represent(self, without=("state",))


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """The URL for the browser, and the transaction to store until the callback."""

    url: str
    transaction: Transaction

    def __repr__(self) -> str:
        return represent(self, without=("url",))


def begin_authorization(
    server: ServerMetadata,
    client: Client,
    caller: SignInContext,
    *,
    resource: str | None = None,
    scopes: tuple[str, ...] = (),
    dpop_key: DpopKey | None = None,
    pkce: bool = True,
    ttl_s: float = TRANSACTION_TTL_S,
    clock: Clock = time.time,
) -> AuthorizationRequest:
    """Start a sign-in; reject a server that does not support PKCE with S256."""
    endpoint = _endpoint(server)
    # MCP requires a secure redirect.
    if parse_target(caller.redirect_uri).scheme != "https" and not is_loopback_url(caller.redirect_uri):
        raise ConfigError("A redirect URI must be https, or on this machine.")
    if client.issuer not in {None, server.issuer}:
        raise ToolAuthError(f"The client {client.id!r} belongs to {client.issuer!r}, not to {server.issuer!r}.")
    now = clock()
    transaction = Transaction(
        state=secrets.token_urlsafe(32),
        verifier=Secret(secrets.token_urlsafe(48)) if pkce else None,
        server=server,
        client=client,
        caller=caller,
        created=now,
        expires=now + ttl_s,
        resource=resource,
        scopes=scopes,
        dpop_key=dpop_key.private if dpop_key else None,
    )
    return AuthorizationRequest(url=_with_query(endpoint, _parameters(transaction)), transaction=transaction)


def read_callback(
    transaction: Transaction, parameters: Mapping[str, str], *, browser: str = "", clock: Clock = time.time
) -> str:
    """Verify the parameters of a callback and return the code.

    The issuer is compared before any other parameter is used (RFC 9207 section 2.4).
    """
    if not hmac.compare_digest(transaction.state.encode(), parameters.get("state", "").encode()):
        raise ToolAuthError("Invalid or expired OAuth state", code="oauth_state")
    if clock() > transaction.expires:
        raise ToolAuthError("OAuth request expired. Start the sign-in again.", code="oauth_expired")
    bound = transaction.caller.browser
    if bound and not hmac.compare_digest(bound.encode(), browser.encode()):
        message = "The sign-in was started in another browser. Open the link again in this one."
        raise ToolAuthError(message, code="oauth_browser")
    _check_issuer(transaction.server, parameters.get("iss"))
    if "error" in parameters:
        raise _denial(parameters)
    code = parameters.get("code", "")
    if not code:
        raise ToolAuthError("The callback of the authorization server contains no code.", code="oauth_callback")
    return code


def exchange_code(transaction: Transaction, code: str, *, clock: Clock = time.time) -> Flow[TokenSet]:
    """Exchange a code for tokens; a code is valid once, so the request is never repeated."""
    form: Pairs = (
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", transaction.caller.redirect_uri),
    )
    if transaction.verifier is not None:
        form = (*form, ("code_verifier", transaction.verifier.reveal()))
    return request_tokens(
        transaction.server,
        transaction.client,
        form,
        clock=clock,
        resource=transaction.resource,
        scopes=transaction.scopes,
        dpop_key=DpopKey(transaction.dpop_key) if transaction.dpop_key else None,
    )


def callback_parameters(query: str) -> dict[str, str]:
    """Parse the parameters of a callback from its query or its URL; reject repeated ones."""
    address, _, rest = query.partition("?")
    is_url = "=" not in address  # otherwise the question mark is part of a value
    pairs = parse_qsl(rest if rest and is_url else query, keep_blank_values=True, max_num_fields=50)
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise ToolAuthError("The callback contains a repeated parameter.", code="oauth_callback")
    return parameters


def browser_binding(cookie: str) -> str:
    """Return the hash of a browser's cookie, which identifies the cookie but cannot recreate it."""
    return hashlib.sha256(cookie.encode()).hexdigest() if cookie else ""


def select_scopes(
    *,
    challenged: tuple[str, ...] | None = None,
    wished: tuple[str, ...] = (),
    resource: ResourceMetadata | None = None,
    server: ServerMetadata | None = None,
    earlier: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the scopes to request: those of the challenge, else the operator's, else all that the resource names.

    Scopes of an `earlier` grant are kept. A refresh token is requested if the server has a scope for it, but never
    alone, because an empty list selects the server's default.
    """
    supported = resource.scopes_supported if resource is not None else None
    chosen = challenged if challenged is not None else wished or supported or ()
    scopes = dict.fromkeys(scope for scope in (*earlier, *chosen) if scope != OFFLINE)
    if OFFLINE in chosen or (scopes and server is not None and OFFLINE in (server.scopes_supported or ())):
        scopes[OFFLINE] = None
    return tuple(scopes)


def _endpoint(server: ServerMetadata) -> str:
    if server.authorization_endpoint is None:
        message = f"The authorization server {server.issuer!r} has no authorization_endpoint, so users cannot consent."
        raise ToolAuthError(message, code="oauth_metadata")
    if "S256" not in server.code_challenge_methods:
        raise ToolAuthError(
            f"The authorization server {server.issuer!r} does not support PKCE with S256, "
            "without which a code can be intercepted. Its operator must enable it.",
            code="oauth_no_pkce",
        )
    parse_target(server.authorization_endpoint)
    return server.authorization_endpoint


def _parameters(transaction: Transaction) -> dict[str, str]:
    parameters = {
        "response_type": "code",
        "client_id": transaction.client.id,
        "redirect_uri": transaction.caller.redirect_uri,
        "state": transaction.state,
    }
    if transaction.verifier is not None:
        digest = hashlib.sha256(transaction.verifier.reveal().encode()).digest()
        parameters["code_challenge"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        parameters["code_challenge_method"] = "S256"
    if transaction.scopes:
        parameters["scope"] = " ".join(transaction.scopes)
    if transaction.resource:
        parameters["resource"] = transaction.resource
    if OFFLINE in transaction.scopes:  # OpenID Core section 11: a refresh token requires this prompt
        parameters["prompt"] = "consent"
    if transaction.dpop_key:
        parameters["dpop_jkt"] = DpopKey(transaction.dpop_key).thumbprint
    return parameters


def _with_query(url: str, parameters: dict[str, str]) -> str:
    """Add parameters to a URL; replace those of the same name in its query."""
    parts = urlsplit(url)
    others = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in parameters]
    return urlunsplit(parts._replace(query=urlencode([*others, *parameters.items()]), fragment=""))


def _check_issuer(server: ServerMetadata, issuer: str | None) -> None:
    if issuer is None and not server.iss_parameter:
        return
    if issuer is not None and not server.issuer_known:
        return
    if issuer != server.issuer:
        raise ToolAuthError(
            f"The callback is not from {server.issuer!r}, where the sign-in was started. It is not used, "
            "because another server may have intercepted the sign-in.",
            code="oauth_issuer_mismatch",
        )


def _denial(parameters: Mapping[str, str]) -> ToolAuthError:
    problem = OAuthProblem(presentable(parameters["error"]), presentable(parameters.get("error_description", "")))
    cause = OAuthResponseError(problem)
    if problem.code == "access_denied":
        message = f"The sign-in was declined: {problem.message}. Nothing was connected."
        return ToolAuthError(message, code="oauth_denied", cause=cause)
    return ToolAuthError(f"OAuth error: {problem.message}", code="oauth_refused", cause=cause)
