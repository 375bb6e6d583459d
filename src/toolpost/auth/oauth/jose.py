"""Signed JSON tokens (RFC 7515), by joserfc, and DPoP proofs of possession (RFC 9449)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import Key

    from toolpost.wire.messages import Headers

_KINDS = {
    "ES256": "EC",
    "ES384": "EC",
    "ES512": "EC",
    "EdDSA": "OKP",
    "Ed25519": "OKP",
    "PS256": "RSA",
    "PS384": "RSA",
    "PS512": "RSA",
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
}
DPOP_ALGORITHM = "ES256"
_NONCE = re.compile(r"[!-~]{1,512}")


def sign_jws(claims: Mapping[str, Any], *, key: Secret, algorithm: str, header: Mapping[str, Any]) -> str:
    """Sign claims with a private key in PEM or JWK form and return the compact form."""
    from joserfc import jws  # noqa: PLC0415 - 0.1 s, for the few who sign

    payload = json.dumps(claims, separators=(",", ":"))
    return jws.serialize_compact({"alg": algorithm, **header}, payload, _read(key, algorithm), algorithms=[algorithm])


def new_private_key() -> Secret:
    """Create a private key for ES256, as a JWK."""
    from joserfc.jwk import ECKey  # noqa: PLC0415 - as above

    return Secret(json.dumps(ECKey.generate_key("P-256", private=True).as_dict(private=True)))


@lru_cache(maxsize=16)
def _read(key: Secret, algorithm: str) -> Key:
    kind = _KINDS.get(algorithm)
    if kind is None:
        raise ConfigError(f"The signing algorithm {algorithm!r} is not supported; choose one of {', '.join(_KINDS)}.")
    from joserfc.errors import JoseError  # noqa: PLC0415 - as above
    from joserfc.jwk import JWKRegistry  # noqa: PLC0415 - as above

    text = key.reveal().strip()
    try:
        private_key = JWKRegistry.import_key(json.loads(text) if text.startswith("{") else text, kind)
    except (ValueError, TypeError, KeyError, JoseError):
        raise ConfigError(
            f"The private key cannot be read as one for {algorithm}; it must be in PEM form or a JWK of kind {kind}."
        ) from None
    if not private_key.is_private:
        raise ConfigError(f"The key for {algorithm} is a public one; signing needs the private one.")
    return private_key


class DpopKey:
    """Private key for DPoP proofs; store `private` as a secret."""

    __slots__ = ("private",)

    def __init__(self, private: Secret) -> None:
        self.private = private

    @classmethod
    def new(cls) -> DpopKey:
        """Create a key."""
        return cls(new_private_key())

    def __repr__(self) -> str:
        return "DpopKey()"

    @property
    def thumbprint(self) -> str:
        """The thumbprint in a bound token."""
        return _read(self.private, DPOP_ALGORITHM).thumbprint()

    def proof(self, method: str, url: str, *, now: float, access_token: str | None = None, nonce: str = "") -> str:
        """Return the DPoP header for a single request."""
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
        jwk = _read(self.private, DPOP_ALGORITHM).as_dict(private=False)
        header = {"typ": "dpop+jwt", "jwk": dict(jwk)}
        return sign_jws(claims, key=self.private, algorithm=DPOP_ALGORITHM, header=header)


def dpop_nonce(headers: Headers) -> str:
    """Return the nonce for the next proof to this server, or an empty string."""
    nonce = headers.get("dpop-nonce") or ""
    return nonce if _NONCE.fullmatch(nonce) else ""
