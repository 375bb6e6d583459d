"""Signed tokens (RFC 7515), by joserfc: nothing here computes a signature itself."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolpost.auth.secret import Secret
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import Key

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


def signed(claims: Mapping[str, Any], *, key: Secret, algorithm: str, header: Mapping[str, Any]) -> str:
    """The claims in compact form, signed with a private key in PEM or as a JWK."""
    from joserfc import jws  # noqa: PLC0415 - 0.1 s, for the few who sign

    payload = json.dumps(claims, separators=(",", ":"))
    return jws.serialize_compact({"alg": algorithm, **header}, payload, _read(key, algorithm), algorithms=[algorithm])


def new_key() -> Secret:
    """A private key for ES256, as a JWK."""
    from joserfc.jwk import ECKey  # noqa: PLC0415 - as above

    return Secret(json.dumps(ECKey.generate_key("P-256", private=True).as_dict(private=True)))


def public_part(key: Secret, algorithm: str) -> dict[str, Any]:
    """The public half of a private key, as a JWK."""
    return dict(_read(key, algorithm).as_dict(private=False))


def thumbprint_of(key: Secret, algorithm: str) -> str:
    """What names a key (RFC 7638)."""
    return _read(key, algorithm).thumbprint()


@lru_cache(maxsize=16)
def _read(key: Secret, algorithm: str) -> Key:
    kind = _KINDS.get(algorithm)
    if kind is None:
        raise ConfigError(f"The signing algorithm {algorithm!r} cannot be used; choose one of {', '.join(_KINDS)}.")
    from joserfc.errors import JoseError  # noqa: PLC0415 - as above
    from joserfc.jwk import JWKRegistry  # noqa: PLC0415 - as above

    text = key.reveal().strip()
    try:
        read = JWKRegistry.import_key(json.loads(text) if text.startswith("{") else text, kind)
    except (ValueError, TypeError, KeyError, JoseError):
        raise ConfigError(
            f"The private key cannot be read as one for {algorithm}; it must be in PEM form or a JWK of kind {kind}."
        ) from None
    if not read.is_private:
        raise ConfigError(f"The key for {algorithm} is a public one; signing needs the private one.")
    return read
