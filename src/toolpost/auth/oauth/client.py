"""OAuth clients: authentication, and registration by an operator, by document or dynamically (RFC 7591)."""

from __future__ import annotations

import base64
import secrets
import time
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from toolpost.auth.oauth.flow import Clock, Flow, FlowRequest, json_object, parse_problem, presentable, refusal_error
from toolpost.auth.oauth.jose import sign_jws
from toolpost.auth.oauth.metadata import ServerMetadata, is_loopback_url
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError, ToolAuthError
from toolpost.schema.json_values import is_array
from toolpost.wire.messages import Pairs
from toolpost.wire.targets import parse_target, split_url

AuthMethod = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
Origin = Literal["registered", "document", "dynamic"]

AUTH_METHODS: tuple[AuthMethod, ...] = ("private_key_jwt", "client_secret_basic", "client_secret_post", "none")

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_S = 300  # allows for clocks that differ
_BASIC: AuthMethod = "client_secret_basic"
_CODE_GRANTS = ("authorization_code", "refresh_token")
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class Client(Struct, frozen=True, kw_only=True):
    """An OAuth client at one issuer.

    `origin` is how it was registered: by an operator, by our client document (its ID is the URL), or dynamically. An
    operator's client without an issuer is bound to the first one that it is used with. Without an `auth_method`, one is
    chosen that the server supports.
    """

    id: str
    issuer: str | None = None
    secret: Secret | None = None
    auth_method: AuthMethod | None = None
    redirect_uris: tuple[str, ...] = ()
    private_key: Secret | None = None
    key_id: str = ""
    algorithm: str = "ES256"
    origin: Origin = "registered"
    secret_expires_at: float | None = None


def auth_method_of(client: Client, server: ServerMetadata) -> AuthMethod:
    """Return how a client authenticates: as configured, else in a way that the server supports."""
    if client.auth_method is not None:
        return client.auth_method
    if client.private_key is not None:
        return "private_key_jwt"
    if client.secret is None:
        return "none"
    taken = server.auth_methods or ("client_secret_basic",)  # RFC 8414 section 2: the default
    return "client_secret_post" if "client_secret_basic" not in taken and "client_secret_post" in taken else _BASIC


def authenticate_client(client: Client, server: ServerMetadata, *, now: float) -> tuple[Pairs, Pairs]:
    """Return the headers and form fields that authenticate a client (RFC 6749 section 2.3.1, RFC 7523)."""
    method = auth_method_of(client, server)
    name = ("client_id", client.id)
    if method == "none":
        return (), (name,)
    if method == "private_key_jwt":
        return (), (
            name,
            ("client_assertion_type", _ASSERTION_TYPE),
            ("client_assertion", _assertion(client, server, now)),
        )
    if not client.secret:
        raise ConfigError(f"The client {client.id!r} needs its client_secret for {method}.")
    if method == "client_secret_post":
        return (), (name, ("client_secret", client.secret.reveal()))
    pair = f"{quote(client.id, safe='')}:{quote(client.secret.reveal(), safe='')}"
    return (("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),), ()


def _assertion(client: Client, server: ServerMetadata, now: float) -> str:
    """Return a signed client assertion; its audience is the issuer, and no other server can use it."""
    if client.private_key is None:
        raise ConfigError(f"The client {client.id!r} needs a private key for private_key_jwt.")
    claims = {
        "iss": client.id,
        "sub": client.id,
        "aud": server.issuer,
        "jti": secrets.token_urlsafe(16),
        "iat": int(now),
        "exp": int(now) + _ASSERTION_S,
    }
    header = {"typ": "JWT"} | ({"kid": client.key_id} if client.key_id else {})
    return sign_jws(claims, key=client.private_key, algorithm=client.algorithm, header=header)


class ClientProfile(Struct, frozen=True, kw_only=True):
    """Metadata of this program as a client; `document_url` is the address of its client document, if any."""

    name: str = "Toolpost"
    redirect_uris: tuple[str, ...] = ()
    document_url: str | None = None
    uri: str = ""
    device: bool = False


def obtain_client(
    server: ServerMetadata,
    profile: ClientProfile,
    *,
    registered: Client | None = None,
    known: Client | None = None,
    clock: Clock = time.time,
) -> Flow[Client]:
    """Return a client for this server, in the order of MCP's revision 2026-07-28.

    `registered` is an operator's client, `known` one of an earlier registration. Neither is ever used with another
    issuer.
    """
    if registered is not None:
        return _bind(registered, server)
    if server.client_documents and profile.document_url is not None:
        return document_client(server, profile)
    if known is not None and _still_good(known, server, profile, clock()):
        return known
    if server.registration_endpoint is not None:
        return (yield from register(server, profile))
    raise ConfigError(
        f"The authorization server {server.issuer!r} does not support dynamic registration. "
        "Register one there and write its client_id (and client_secret) into the source's auth_config.",
        code="oauth_client_needed",
    )


def document_client(server: ServerMetadata, profile: ClientProfile) -> Client:
    """Return the client with the URL of its metadata document as its ID."""
    url = profile.document_url or ""
    if parse_target(url).scheme != "https" or split_url(url)[1] in {"", "/"}:
        raise ConfigError("The client's document_url must be https and have a path.")
    return Client(
        id=url, issuer=server.issuer, auth_method="none", redirect_uris=profile.redirect_uris, origin="document"
    )


def register(server: ServerMetadata, profile: ClientProfile) -> Flow[Client]:
    """Register a client dynamically (RFC 7591)."""
    method = _choose_method(server, profile)
    subject = f"The registration endpoint of {server.issuer!r}"
    reply = yield FlowRequest(
        method="POST",
        url=server.registration_endpoint or "",
        json=_describe(profile, method),
        documents=server.documents,
    )
    if reply.status not in {200, 201}:
        problem = parse_problem(reply)
        if reply.status < 500 and problem.code in {"invalid_redirect_uri", "invalid_client_metadata"}:
            uris = ", ".join(profile.redirect_uris)
            message = f"{subject} rejected this client: {problem.message} ({problem.code}; redirect URIs: {uris})."
            raise ToolAuthError(message, code="oauth_registration")
        raise refusal_error(subject, reply)
    registration = json_object(reply)
    if registration is None:
        raise refusal_error(subject, reply)
    return _parse_registration(registration, server, profile, method)


def _bind(client: Client, server: ServerMetadata) -> Client:
    if client.issuer is None:
        return replace(client, issuer=server.issuer)
    if client.issuer != server.issuer:
        raise ToolAuthError(
            f"The client {client.id!r} was registered with {client.issuer!r}, but the server now sends its users to "
            f"{server.issuer!r}. If that is intended, register there and change the configuration.",
            code="oauth_issuer_changed",
        )
    return client


def _still_good(client: Client, server: ServerMetadata, profile: ClientProfile, now: float) -> bool:
    expired = client.secret_expires_at is not None and client.secret_expires_at <= now
    missing = set(profile.redirect_uris) - set(client.redirect_uris)
    return client.issuer == server.issuer and not expired and not missing


def _describe(profile: ClientProfile, method: AuthMethod) -> dict[str, Any]:
    described: dict[str, Any] = {
        "client_name": profile.name,
        "redirect_uris": list(profile.redirect_uris),
        "grant_types": [*_CODE_GRANTS, *([DEVICE_GRANT] if profile.device else [])],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # OpenID registration defaults to `web`, which does not permit loopback redirects.
        "application_type": "native" if _is_native(profile) else "web",
    }
    return described | ({"client_uri": profile.uri} if profile.uri else {})


def _is_native(profile: ClientProfile) -> bool:
    return all(is_loopback_url(uri) for uri in profile.redirect_uris)


def _choose_method(server: ServerMetadata, profile: ClientProfile) -> AuthMethod:
    """Return the authentication method to register for (OAuth 2.1 section 2.1: a site should have a secret)."""
    taken = ("client_secret_basic",) if server.auth_methods is None else server.auth_methods
    secret: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post")
    liked: tuple[AuthMethod, ...] = ("none", *secret) if _is_native(profile) else (*secret, "none")
    for method in liked:
        if method in taken:
            return method
    message = (
        f"{server.issuer!r} accepts only {presentable(', '.join(taken))}, which dynamic registration does not support."
    )
    raise ToolAuthError(message, code="oauth_registration")


def _parse_registration(
    registration: dict[str, Any], server: ServerMetadata, profile: ClientProfile, requested_method: AuthMethod
) -> Client:
    subject = f"The registration endpoint of {server.issuer!r}"
    name, secret = registration.get("client_id"), registration.get("client_secret")
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise ToolAuthError(f"{subject} returned no client_id.", code="oauth_registration")
    method = registration.get("token_endpoint_auth_method", requested_method)
    if method not in AUTH_METHODS or method == "private_key_jwt":
        message = f"{subject} returned a client with the unsupported method {presentable(str(method))}."
        raise ToolAuthError(message, code="oauth_registration")
    client_secret = Secret(secret) if method != "none" and isinstance(secret, str) and secret else None
    if method != "none" and client_secret is None:
        raise ToolAuthError(f"{subject} returned a client without its secret.", code="oauth_registration")
    redirect_uris = registration.get("redirect_uris")
    if (
        is_array(redirect_uris)
        and redirect_uris
        and not set(profile.redirect_uris) <= {uri for uri in redirect_uris if isinstance(uri, str)}
    ):
        raise ToolAuthError(f"{subject} omitted one of our redirect URIs.", code="oauth_registration")
    return Client(
        id=name,
        issuer=server.issuer,
        secret=client_secret,
        auth_method=method,
        redirect_uris=profile.redirect_uris,
        origin="dynamic",
        secret_expires_at=_expiry(registration.get("client_secret_expires_at")) if client_secret else None,
    )


def _expiry(value: object) -> float | None:
    """Return when a secret expires (RFC 7591 section 3.2.1: zero means never)."""
    return float(value) if isinstance(value, int) and value > 0 else None
