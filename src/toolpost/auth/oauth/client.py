"""A client as one authorization server knows it, and how it shows who it is there."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from toolpost.auth.oauth.jose import signed
from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.auth.oauth.metadata import ServerMetadata
    from toolpost.wire.requests import Pairs

AuthMethod = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
Origin = Literal["registered", "document", "dynamic"]

AUTH_METHODS: tuple[AuthMethod, ...] = ("private_key_jwt", "client_secret_basic", "client_secret_post", "none")

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_S = 300  # clocks differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What is known of us at one issuer, and only there.

    `origin` says how it came about: registered by an operator, a document of ours (its id is the URL), or dynamically.
    An operator's client without an issuer is bound to the first one that it is used with. Without an `auth_method` one
    is chosen that fits both sides.
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
    """How a client shows who it is: as it was told to, else in a way that the server takes."""
    if client.auth_method is not None:
        return client.auth_method
    if client.private_key is not None:
        return "private_key_jwt"
    if client.secret is None:
        return "none"
    taken = server.auth_methods or ("client_secret_basic",)  # RFC 8414 section 2: the default
    return "client_secret_post" if "client_secret_basic" not in taken and "client_secret_post" in taken else _BASIC


def authenticated(client: Client, server: ServerMetadata, *, now: float) -> tuple[Pairs, Pairs]:
    """The headers and the form fields that show who the client is (RFC 6749 section 2.3.1, RFC 7523)."""
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


_BASIC: AuthMethod = "client_secret_basic"


def _assertion(client: Client, server: ServerMetadata, now: float) -> str:
    """A statement of our own; it is meant for the issuer, so that no other server can use it."""
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
    return signed(claims, key=client.private_key, algorithm=client.algorithm, header=header)
