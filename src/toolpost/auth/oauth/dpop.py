"""Tokens that only the holder of a key can use: proofs of possession (RFC 9449)."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from toolpost.auth.oauth.jose import new_key, public_part, signed, thumbprint_of

if TYPE_CHECKING:
    from toolpost.auth.secret import Secret
    from toolpost.wire.requests import Headers

ALGORITHM = "ES256"
_NONCE = re.compile(r"[!-~]{1,512}")


class DpopKey:
    """A private key of our own; `private` is what to keep of it, where secrets are kept."""

    __slots__ = ("private",)

    def __init__(self, private: Secret) -> None:
        self.private = private

    @classmethod
    def new(cls) -> DpopKey:
        """A fresh key."""
        return cls(new_key())

    def __repr__(self) -> str:
        return "DpopKey()"

    @property
    def thumbprint(self) -> str:
        """What a bound token names the key by."""
        return thumbprint_of(self.private, ALGORITHM)

    def proof(self, method: str, url: str, *, now: float, access_token: str | None = None, nonce: str = "") -> str:
        """The DPoP header for one request, never to be sent twice."""
        claims = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": re.split(r"[?#]", url, maxsplit=1)[0],
            "iat": int(now),
        }
        if access_token is not None:
            digest = hashlib.sha256(access_token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if nonce:
            claims["nonce"] = nonce
        header = {"typ": "dpop+jwt", "jwk": public_part(self.private, ALGORITHM)}
        return signed(claims, key=self.private, algorithm=ALGORITHM, header=header)


def nonce_in(headers: Headers) -> str:
    """The nonce that the next proof for this server must hold; empty where there is none."""
    told = headers.get("dpop-nonce") or ""
    return told if _NONCE.fullmatch(told) else ""
