"""Tokens of callers: JWTs of one issuer (RFC 9068, OpenID Connect), verified with its published keys."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolpost.auth.oauth.flow import Flow, FlowRequest, json_object, run_flow
from toolpost.auth.oauth.metadata import Trust, discover_server
from toolpost.contracts.errors import ConfigError, ToolAuthError, ToolError
from toolpost.schema.json_values import is_array, is_object
from toolpost.wire.client import HttpClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import KeySet

    from toolpost.wire.network import NetworkPolicy

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
_LONGEST = 16 * 1024
_KEYS_S = 600.0  # keys are cached for this time
_AGAIN_S = 30.0  # a token with an unknown key causes a new fetch, at most this often
_LEEWAY_S = 60.0
_INVALID = "invalid_token"


class CallerTokens:
    """Verify tokens of an issuer for an audience; fetch its keys under the network policy."""

    def __init__(self, issuer: str, audience: str, *, network: NetworkPolicy) -> None:
        if find_spec("joserfc") is None:
            raise ConfigError("tokens of callers need the extra oauth: pip install 'toolpost[oauth]'")
        policy = network.for_source(issuer)
        self._issuer = issuer
        self._audience = audience
        self._trust = Trust(policy=policy)
        self._client = HttpClient(policy)
        self._keys: KeySet | None = None
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections to the issuer."""
        await self._client.close()

    async def verify(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token; raise ToolAuthError if it is forged, expired or for another audience."""
        if len(token) > _LONGEST:
            raise ToolAuthError("the token is too long", code=_INVALID)
        claims = await self._signed_claims(token)
        now = time.time()
        if claims.get("iss") != self._issuer:
            raise ToolAuthError("the token is of another issuer", code=_INVALID)
        if self._audience not in _texts(claims.get("aud")):
            raise ToolAuthError("the token is for another audience", code=_INVALID)
        if not _is_number(claims.get("exp")) or claims["exp"] + _LEEWAY_S <= now:
            raise ToolAuthError("the token has expired; get a new one", code=_INVALID)
        begins = claims.get("nbf")
        if begins is not None and (not _is_number(begins) or begins - _LEEWAY_S > now):
            raise ToolAuthError("the token is not valid yet", code=_INVALID)
        return claims

    async def _signed_claims(self, token: str) -> dict[str, Any]:
        """Return the claims if a key of the issuer signed them; fetch its keys again if they may have changed."""
        keys = await self._current_keys(older_s=_KEYS_S)
        claims = _decode(token, keys)
        if claims is None:
            current = await self._current_keys(older_s=_AGAIN_S)
            claims = None if current is keys else _decode(token, current)
        if claims is None:
            raise ToolAuthError("the token is not signed by its issuer", code=_INVALID)
        return claims

    async def _current_keys(self, *, older_s: float) -> KeySet:
        keys = self._fresh_keys(older_s)
        if keys is None:  # only callers that need new keys wait for them
            async with self._fetching:
                keys = self._fresh_keys(older_s)
                if keys is None:
                    keys = self._keys = await self._fetch_keys()
                    self._fetched_at = time.monotonic()
        return keys

    def _fresh_keys(self, older_s: float) -> KeySet | None:
        return None if time.monotonic() - self._fetched_at >= older_s else self._keys

    async def _fetch_keys(self) -> KeySet:
        from joserfc.errors import JoseError  # noqa: PLC0415 - an extra
        from joserfc.jwk import KeySet  # noqa: PLC0415 - the same

        try:
            return KeySet.import_key_set(await run_flow(self._key_flow(), self._client))  # type: ignore[arg-type]
        except (ValueError, TypeError, KeyError, JoseError):
            raise ToolAuthError(f"the keys of {self._issuer!r} cannot be read", code="issuer_keys") from None
        except ToolError as error:
            if self._keys is not None:
                return self._keys  # a temporary failure of the issuer does not reject callers
            raise ToolAuthError(f"the keys of the issuer cannot be fetched: {error}", code="issuer_keys") from error

    def _key_flow(self) -> Flow[dict[str, Any]]:
        server = yield from discover_server(self._issuer, trust=self._trust)
        if server.jwks_uri is None:
            raise ToolAuthError(f"the issuer {self._issuer!r} publishes no keys (jwks_uri)", code="issuer_keys")
        reply = yield FlowRequest(method="GET", url=server.jwks_uri, documents=server.documents)
        return json_object(reply) or {}


def _decode(token: str, keys: KeySet) -> dict[str, Any] | None:
    from joserfc import jwt  # noqa: PLC0415 - an extra
    from joserfc.errors import JoseError  # noqa: PLC0415 - the same

    try:
        return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)
    except (JoseError, ValueError, TypeError, KeyError):  # the last three for malformed tokens
        return None


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or a nested claim by its dotted path; None if it is missing."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if is_object(value) else None
    return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if is_array(value) else []


def role_names(value: Any) -> list[str]:
    """Return the roles of a claim: a list, or names separated by spaces."""
    return value.split() if isinstance(value, str) else _texts(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
