"""Identify callers by their bearer: the operator's token of the data folder, a key, or a token of the issuer."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolpost.auth.caller_tokens import CallerTokens, claim_at, role_names
from toolpost.auth.keys import refuse_dangling, write_private
from toolpost.contracts.callers import (
    KEY_ID,
    KEY_PREFIX,
    OPERATOR_ID,
    SCOPES,
    Caller,
    CallerKey,
    CallerScope,
    check_key_scopes,
)
from toolpost.contracts.errors import ToolAuthError
from toolpost.contracts.events import EventCode
from toolpost.contracts.principal import Principal, has_control

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from toolpost.configuration.settings import OidcSettings
    from toolpost.contracts.storage import CallerKeyStore
    from toolpost.toolbox.box import Toolbox

_NOT_KNOWN = "the bearer is not known here: it is wrong, revoked or expired"


def local_token(folder: Path) -> str:
    """Return the operator's token of a data folder, which only its owner can read; make one where there is none."""
    path = folder / "token"
    with suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    refuse_dangling(path)
    write_private(path, secrets.token_urlsafe(32).encode(), first=True)
    return path.read_text(encoding="ascii").strip()


def new_caller_key(
    name: str,
    principal: Principal,
    scopes: Collection[CallerScope],
    *,
    by: str,
    expires_in_s: float | None = None,
    interactive: bool = False,
) -> tuple[CallerKey, str]:
    """Create a key and return it with the text that the caller presents, which is never stored."""
    check_key_scopes(scopes, interactive=interactive)
    key_id, secret, now = secrets.token_hex(6), secrets.token_urlsafe(32), time.time()
    key = CallerKey(
        id=key_id,
        name=name,
        principal=principal,
        scopes=frozenset(scopes),
        digest=_digest(secret),
        created_at=now,
        created_by=by,
        expires_at=None if expires_in_s is None else now + expires_in_s,
        interactive=interactive,
    )
    return key, f"{KEY_PREFIX}{key_id}_{secret}"


async def create_caller_key(
    box: Toolbox,
    name: str,
    principal: Principal,
    scopes: Collection[CallerScope],
    *,
    by: str,
    expires_in_s: float | None = None,
    interactive: bool = False,
) -> tuple[CallerKey, str]:
    """Create a key, as `new_caller_key` does, and store it; the event is in the log before the key can be shown."""
    key, text = new_caller_key(name, principal, scopes, by=by, expires_in_s=expires_in_s, interactive=interactive)
    await box.store.caller_keys.add(key)
    box.router.emitter.emit_caller_key(EventCode.CALLER_KEY_CREATED, key, by=by)
    await box.store.events.flush()
    return key, text


async def revoke_caller_key(box: Toolbox, key_id: str, *, by: str) -> bool:
    """Remove a key of the tenant of `by`, with an event; return whether there was one."""
    keys, tenant = box.store.caller_keys, Principal.parse(by).tenant
    key = await keys.find(key_id)
    if not await keys.remove(key_id, tenant=tenant):
        return False
    if key is None:  # a row that somebody changed or added without toolpost, and that was refused
        return True
    box.router.emitter.emit_caller_key(EventCode.CALLER_KEY_REVOKED, key, by=by)
    await box.store.events.flush()
    return True


class Callers:
    """Find out who sends a request; ToolAuthError when that is nobody who is known.

    `operator` is for whom requests with the data folder's `token` are.
    """

    def __init__(
        self,
        *,
        operator: Principal,
        token: str,
        keys: CallerKeyStore,
        oidc: OidcSettings | None = None,
        tokens: CallerTokens | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.operator = Caller(OPERATOR_ID, operator, frozenset(SCOPES), interactive=True)
        self.token = token
        self._expected = token.encode()
        self._keys = keys
        self._oidc = oidc
        self._tokens = tokens
        self._clock = clock

    async def identify(self, bearer: str, *, is_local: bool) -> Caller:
        """Return the caller of a bearer; the operator's token counts only on this machine."""
        if hmac.compare_digest(bearer.encode(), self._expected):
            if is_local:
                return self.operator
            raise ToolAuthError("the operator's token is for this machine; create a key", code="invalid_token")
        if bearer.startswith(KEY_PREFIX):
            return await self._by_key(bearer)
        if self._tokens is not None and self._oidc is not None and bearer.count(".") == 2:
            return caller_of(await self._tokens.verify(bearer), self._oidc)
        raise ToolAuthError(_NOT_KNOWN, code="invalid_token")

    async def _by_key(self, bearer: str) -> Caller:
        key_id, _, secret = bearer.removeprefix(KEY_PREFIX).partition("_")
        key = await self._keys.find(key_id) if key_id.isascii() else None
        known = hmac.compare_digest(_digest(secret), b"" if key is None else key.digest)
        if key is None or not known or (key.expires_at is not None and key.expires_at <= self._clock()):
            raise ToolAuthError(_NOT_KNOWN, code="invalid_token")
        return Caller(f"{KEY_ID}{key.id}", key.principal, key.scopes, interactive=key.interactive)


def caller_of(claims: Mapping[str, Any], oidc: OidcSettings) -> Caller:
    """Return the caller that claims name; ToolAuthError where they name no user or no tenant."""
    user = claim_at(claims, oidc.user_claim)
    tenant = oidc.tenant if oidc.tenant_claim is None else claim_at(claims, oidc.tenant_claim)
    if not isinstance(user, str) or not isinstance(tenant, str) or ":" in tenant:
        raise ToolAuthError("the token does not say whose it is", code="invalid_token")
    try:
        principal = Principal.parse(f"{tenant}:{user}")
    except ValueError:
        raise ToolAuthError("the token does not say whose it is", code="invalid_token") from None
    roles = [oidc.roles[name] for name in role_names(claim_at(claims, oidc.roles_claim)) if name in oidc.roles]
    answers = (pattern for role in roles if "answer" in role.scopes for pattern in role.tools)
    scopes = frozenset[CallerScope]().union(*(role.scopes for role in roles))
    clients = {claims[name] for name in ("azp", "client_id") if isinstance(claims.get(name), str)}
    is_person = bool(clients) and clients <= set(oidc.person_clients)
    subject = claims.get("sub", user)
    if not isinstance(subject, str) or has_control(subject):
        raise ToolAuthError("the token does not say whose it is", code="invalid_token")
    name = f"{oidc.issuer} {subject}"
    return Caller(name, principal, scopes, tuple(dict.fromkeys(answers)), person=is_person)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
