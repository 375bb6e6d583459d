"""Session pool of a source: one session per credential, opened once for concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from toolpost.auth.credentials import fingerprint
from toolpost.contracts.calls import NO_CREDENTIAL, Credential
from toolpost.contracts.errors import ToolConnectionError, ToolError

S = TypeVar("S", bound="PooledSession")

_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 30.0
_MAX_WAIT_S = 1.0  # callers wait this long for the next connect; a longer backoff fails them immediately
_MAX_SESSIONS = 64


class PooledSession(Protocol):
    """A session with a server, opened with one credential."""

    @property
    def is_closed(self) -> bool:
        """Whether the next call needs another session."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether calls run on the session."""
        ...

    def use_credential(self, credential: Credential) -> bool:
        """Serve calls with this credential from now on; return False when that needs a new connection."""
        ...

    async def close_when_idle(self) -> None:
        """Close the session after the calls that run on it."""
        ...

    async def close(self) -> None:
        """Close the session; calls that run on it fail."""
        ...


class _PoolEntry(Generic[S]):
    """The session of one credential, with the state of its connects."""

    __slots__ = ("connecting", "error", "failures", "not_before", "session", "tried_headers", "used_at")

    def __init__(self) -> None:
        self.session: S | None = None
        self.connecting: asyncio.Task[S] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.error: ToolError | None = None
        self.tried_headers: Mapping[str, str] = {}
        self.used_at = 0.0


class SessionPool(Generic[S]):
    """Session pool with one session per credential; the session of `pinned` is never evicted.

    A renewed token keeps the credential's key: its session takes the token over, or a new session replaces it and
    the old one closes after its last call. Failed connects back off exponentially; calls in between fail fast.
    """

    def __init__(
        self, name: str, connect: Callable[[Credential], Awaitable[S]], *, pinned: Credential | None = None
    ) -> None:
        self._name = name
        self._connect = connect
        self._pinned = None if pinned is None else _key(pinned)
        self._entries: dict[str, _PoolEntry[S]] = {}
        self._closing: dict[asyncio.Task[None], S] = {}
        self._closed = False

    def __iter__(self) -> Iterator[S]:
        return iter([entry.session for entry in self._entries.values() if entry.session is not None])

    def find(self, credential: Credential) -> S | None:
        """Return the open session of a credential, if there is one."""
        entry = self._entries.get(_key(credential))
        if entry is None or (session := entry.session) is None:
            return None
        if session.is_closed or not session.use_credential(credential):
            return None
        entry.used_at = time.monotonic()
        return session

    async def get(self, credential: Credential) -> S:
        """Return the open session of a credential; connect first when there is none."""
        while (session := self.find(credential)) is None:
            if self._closed:
                raise self._closed_error()
            entry = self._entries.setdefault(_key(credential), _PoolEntry())
            if entry.connecting is None or entry.tried_headers == credential.headers:
                return await self._wait_for_connect(entry, credential)
            # A connect with another token; its failure does not affect this token.
            await asyncio.wait([entry.connecting])
        return session

    async def close(self) -> None:
        """Close every session, including those that are connecting; safe to call twice."""
        self._closed = True
        connecting = [entry.connecting for entry in self._entries.values() if entry.connecting is not None]
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        sessions, closing = [*self, *self._closing.values()], list(self._closing)
        self._entries.clear()
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
        for last in closing:
            last.cancel()
        await asyncio.gather(*closing, return_exceptions=True)

    async def _wait_for_connect(self, entry: _PoolEntry[S], credential: Credential) -> S:
        """Wait for a connect, which runs in a separate task: a cancelled caller must not cancel it for others."""
        if (connecting := entry.connecting) is None:
            wait_s = entry.not_before - time.monotonic() if entry.tried_headers == credential.headers else 0.0
            if wait_s > _MAX_WAIT_S and entry.error is not None:
                raise _copy_error(entry.error, wait_s)
            entry.tried_headers = credential.headers
            connecting = entry.connecting = asyncio.create_task(self._open(entry, credential, wait_s))
            connecting.add_done_callback(_retrieve_error)
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise self._closed_error()
        try:
            return connecting.result()
        except ToolError as error:
            raise _copy_error(error) from error

    async def _open(self, entry: _PoolEntry[S], credential: Credential, wait_s: float) -> S:
        try:
            await asyncio.sleep(max(0.0, wait_s))
            session = await self._connect(credential)
        except ToolError as error:
            entry.failures += 1
            entry.error = error
            backoff_s = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (entry.failures - 1))
            entry.not_before = time.monotonic() + backoff_s
            raise
        finally:
            entry.connecting = None
        self._discard(entry)
        entry.session, entry.failures, entry.error = session, 0, None
        entry.used_at = time.monotonic()
        self._evict_idle()
        return session

    def _discard(self, entry: _PoolEntry[S]) -> None:
        """Close an entry's session in the background, after its last call."""
        session, entry.session = entry.session, None
        if session is not None:
            closing = asyncio.create_task(session.close_when_idle())
            self._closing[closing] = session
            closing.add_done_callback(self._closing.pop)

    def _evict_idle(self) -> None:
        """Close the least recently used idle session when there are too many."""
        if len(self._entries) <= _MAX_SESSIONS:
            return
        idle = [key for key, entry in self._entries.items() if key != self._pinned and not _is_busy(entry)]
        if idle:
            self._discard(self._entries.pop(min(idle, key=lambda key: self._entries[key].used_at)))

    def _closed_error(self) -> ToolConnectionError:
        return ToolConnectionError(f"source {self._name!r} is closed", sent=False)


def _is_busy(entry: _PoolEntry[S]) -> bool:
    return entry.connecting is not None or (entry.session is not None and entry.session.is_busy)


def _key(credential: Credential) -> str:
    """Return the pool key of a credential; one without a key gets a fingerprint of its headers."""
    if credential.key != NO_CREDENTIAL.key or not credential.headers:
        return credential.key
    return f"headers:{fingerprint(credential.headers)}"


def _retrieve_error(done: asyncio.Task[S]) -> None:
    """Retrieve a task's error; asyncio would log it if no caller waits for it."""
    if not done.cancelled():
        done.exception()


def _copy_error(error: ToolError, wait_s: float = 0.0) -> ToolError:
    """Copy an error for another caller, which adds facts of its own call to it."""
    copied = error.copied()
    if isinstance(copied, ToolConnectionError):
        copied.sent = False
        copied.retry_after_s = wait_s or copied.retry_after_s
    return copied
