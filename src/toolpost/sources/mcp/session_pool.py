"""Session pool of one source: one session per credential, opened once for concurrent callers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from toolpost.auth.credentials import fingerprint
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ToolConnectionError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.sources.mcp.session import McpSession

_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 30.0
_MAX_WAIT_S = 1.0  # callers wait this long for the next connect; a longer backoff fails them at once
_MAX_SESSIONS = 64


class _PoolEntry:
    """The session of one credential, with the state of its connects."""

    __slots__ = ("connecting", "error", "failures", "not_before", "session", "tried_headers", "used_at")

    def __init__(self) -> None:
        self.session: McpSession | None = None
        self.connecting: asyncio.Task[McpSession] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.error: ToolError | None = None
        self.tried_headers: Mapping[str, str] = {}
        self.used_at = 0.0


class McpSessionPool:
    """Session pool with one session per credential.

    Failed connects back off exponentially; calls in between fail fast. `pinned` is never evicted.
    """

    def __init__(self, make: Callable[[Credential], McpSession], name: str, *, pinned: Credential) -> None:
        self._make = make
        self._pinned = _key(pinned)
        self._name = name
        self._entries: dict[str, _PoolEntry] = {}
        self._closing: dict[McpSession, asyncio.Task[None]] = {}
        self._closed = False

    async def get(self, credential: Credential) -> McpSession:
        """Return the live session of a credential; connect first when there is none."""
        key = _key(credential)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _PoolEntry()
        session = entry.session
        if session is None or session.is_closed or not self._update_credential(session, credential):
            session = await self._wait_for_connect(entry, credential)
            self._update_credential(session, credential)  # the connect may have begun with an older token
        entry.used_at = time.monotonic()
        return session

    def _update_credential(self, session: McpSession, credential: Credential) -> bool:
        """Set the credential's token on a session; False when the session needs a new connection for that."""
        if session.credential is credential or session.credential.headers == credential.headers:
            return True
        if session.accepts_new_token:
            session.set_credential(credential)
        return session.accepts_new_token

    async def _wait_for_connect(self, entry: _PoolEntry, credential: Credential) -> McpSession:
        """Wait for a connect that runs in its own task, so that a cancelled caller does not cancel it for others."""
        if self._closed:
            raise ToolConnectionError(f"source {self._name!r} is closed", sent=False)
        if entry.connecting is None:
            wait = entry.not_before - time.monotonic() if entry.tried_headers == credential.headers else 0.0
            if wait > _MAX_WAIT_S and entry.error is not None:
                raise _copy_error(entry.error, wait)
            entry.connecting = asyncio.get_running_loop().create_task(self._connect(entry, credential, wait))
        try:
            return await asyncio.shield(entry.connecting)
        except ToolError as error:
            raise _copy_error(error, 0.0) from error

    async def _connect(self, entry: _PoolEntry, credential: Credential, wait: float) -> McpSession:
        entry.tried_headers = credential.headers
        try:
            await asyncio.sleep(max(0.0, wait))
            self._discard(entry)
            session = self._make(credential)
            await session.open()
        except ToolError as error:
            entry.failures += 1
            entry.error = error
            wait = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (entry.failures - 1))
            entry.not_before = time.monotonic() + wait
            raise
        finally:
            entry.connecting = None
        entry.session, entry.failures, entry.error = session, 0, None
        entry.used_at = time.monotonic()
        self._evict_idle()
        return session

    def release(self, call_id: str) -> None:
        """Cancel a held call that will get no answer."""
        for entry in self._entries.values():
            if entry.session is not None:
                entry.session.calls.release(call_id)

    def _discard(self, entry: _PoolEntry) -> None:
        """Close an entry's session in the background."""
        session, entry.session = entry.session, None
        if session is not None:
            task = self._closing[session] = asyncio.get_running_loop().create_task(session.close_when_idle())
            task.add_done_callback(lambda _: self._closing.pop(session, None))

    def _evict_idle(self) -> None:
        """Close the least recently used idle session when there are too many."""
        if len(self._entries) <= _MAX_SESSIONS:
            return
        idle = [key for key, entry in self._entries.items() if key != self._pinned and not _busy(entry)]
        if idle:
            self._discard(self._entries.pop(min(idle, key=lambda key: self._entries[key].used_at)))

    def find_live(self, credential: Credential) -> McpSession | None:
        """Return the session of a credential if it is open."""
        entry = self._entries.get(_key(credential))
        return (
            entry.session if entry is not None and entry.session is not None and not entry.session.is_closed else None
        )

    async def close(self) -> None:
        """Close every session, including those that are connecting."""
        self._closed = True
        tasks = [entry.connecting for entry in self._entries.values() if entry.connecting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sessions = [*(entry.session for entry in self._entries.values() if entry.session is not None), *self._closing]
        retiring = list(self._closing.values())
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        for last in retiring:
            last.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        self._entries.clear()


def _busy(entry: _PoolEntry) -> bool:
    session = entry.session
    return entry.connecting is not None or (session is not None and bool(session.busy or session.calls))


def _key(credential: Credential) -> str:
    """Return the pool key of a credential; one without a key gets a fingerprint of its headers."""
    if credential.key != NO_CREDENTIAL.key or not credential.headers:
        return credential.key
    return f"headers:{fingerprint(credential.headers)}"


def _copy_error(error: ToolError, wait_s: float) -> ToolError:
    """Copy an error for one more caller; an exception object is raised only once."""
    message = error.message
    if not isinstance(error, ToolConnectionError):
        copy = type(error).__new__(type(error))
        ToolError.__init__(copy, message, status_code=error.status_code, category=error.category, cause=error)
        copy.retry_after_s, copy.challenges = error.retry_after_s, error.challenges
        return copy
    return ToolConnectionError(message, sent=False, retry_after_s=wait_s or None, cause=error)
