"""Credentials of callers: the operator's token of a data folder, and keys for agents, approvers and administrators."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from toolpost.auth.secret import secret_from
from toolpost.contracts.callers import KEY_ID, KEY_PREFIX, CallerKey, CallerScope, check_key_scopes
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.events import EventCode
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.principal import Principal
from toolpost.stores.durable_files import refuse_dangling, write_private

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from toolpost.toolbox.box import Toolbox

_SHORTEST_TOKEN = 32
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_SHORTEST_TOKEN},}}")  # what a bearer may contain (RFC 6750)


def new_caller_key(
    name: str,
    principal: Principal,
    scopes: Collection[CallerScope],
    *,
    by: str,
    expires_in_s: float | None = None,
    interactive: bool = False,
    person: bool = False,
) -> tuple[CallerKey, str]:
    """Create a key; return it with the bearer that the caller sends, which is never stored."""
    check_key_scopes(scopes, interactive=interactive, person=person)
    key_id, secret, now = IdMaker(secure=True).random_part(), secrets.token_urlsafe(32), time.time()
    key = CallerKey(
        id=key_id,
        name=name,
        principal=principal,
        scopes=frozenset(scopes),
        digest=hashlib.sha256(secret.encode()).digest(),
        created_at=now,
        created_by=by,
        expires_at=None if expires_in_s is None else now + expires_in_s,
        interactive=interactive,
        person=person,
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
    person: bool = False,
) -> tuple[CallerKey, str]:
    """Create and store a key like `new_caller_key`; its event is in the log before this returns."""
    key, text = new_caller_key(
        name, principal, scopes, by=by, expires_in_s=expires_in_s, interactive=interactive, person=person
    )
    await box.store.caller_keys.add(key)
    box.router.emitter.emit_caller_key(EventCode.CALLER_KEY_CREATED, key, by=by)
    await box.store.events.flush()
    return key, text


async def revoke_caller_key(box: Toolbox, key_id: str, *, by: str) -> bool:
    """Delete a key of the tenant of `by`, and end its console sessions; return whether the key existed."""
    keys, tenant = box.store.caller_keys, Principal.parse(by).tenant
    key = await keys.find(key_id)
    if not await keys.remove(key_id, tenant=tenant):
        return False
    await box.store.key_uses.remove(key_id)
    if key is None:  # the row was changed or added outside toolpost, so it cannot be read
        return True
    emitter, sessions = box.router.emitter, box.store.sessions
    emitter.emit_caller_key(EventCode.CALLER_KEY_REVOKED, key, by=by)
    for session in await sessions.list(tenant=tenant):
        if session.credential == f"{KEY_ID}{key.id}":
            await sessions.remove(session.id)
            emitter.emit_session(EventCode.SESSION_ENDED, session, reason="its key was revoked", by=by)
    await box.store.events.flush()
    return True


def local_token(folder: Path, reference: str | None = None) -> str:
    """Return the operator's token: that of the `reference`, or of the data folder, where it is created if missing."""
    if (token := find_local_token(folder, reference)) is not None:
        return token
    path = folder / "token"
    refuse_dangling(path)
    write_private(path, secrets.token_urlsafe(32).encode(), first=True)
    return path.read_text(encoding="ascii").strip()


def find_local_token(folder: Path, reference: str | None = None) -> str | None:
    """Return the operator's token; None if the data folder has none yet."""
    if reference is not None:
        return _token_from(reference)
    with suppress(FileNotFoundError):
        return (folder / "token").read_text(encoding="ascii").strip()
    return None


def _token_from(reference: str) -> str:
    try:
        token = secret_from(reference).reveal()
    except ConfigError as error:
        raise ConfigError(f"server.token: {error.message}", code=error.error_code, cause=error) from None
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"server.token: the token of {reference} must be {_SHORTEST_TOKEN} or more letters, digits and -._~+/=; "
            "`openssl rand -base64 32` prints one",
            code="secret_unreadable",
        )
    return token
