"""The held connections of one source: one for each credential, opened once however many ask."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, NamedTuple

from toolpost.auth.credentials import fingerprint
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ToolConnectionError, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.sources.websocket.session import WebSocketSession

    _Key = tuple[str, str]

_MAX_SESSIONS = 64


class _Held(NamedTuple):
    """A connection, and what was presented when it was made."""

    presented: Mapping[str, str]
    session: WebSocketSession


class WebSocketSessionPool:
    """Gives out live connections; one that broke is replaced when the next call wants it.

    A connection is who it was opened as. Whoever presents something new, such as a renewed token, gets a new one,
    and the old one is closed when the calls on it are done.
    """

    def __init__(self, name: str, connect: Callable[[Credential], Awaitable[WebSocketSession]]) -> None:
        self._name = name
        self._connect = connect
        self._held: dict[str, _Held] = {}
        self._opening: dict[_Key, asyncio.Task[WebSocketSession]] = {}
        self._retiring: dict[asyncio.Task[None], WebSocketSession] = {}
        self._closed = False

    def known(self, credential: Credential) -> WebSocketSession | None:
        """The live connection of a credential, if there is one."""
        headers = credential.headers
        held = self._held.get(_who(credential) if headers else credential.key)
        return None if held is None or held.presented != headers or held.session.closed else held.session

    async def opened(self, credential: Credential) -> WebSocketSession:
        """The connection of a credential, made now; whoever gives up does not undo it for the others."""
        if self._closed:
            raise self._gone()
        key = _who(credential), fingerprint(credential.headers)
        if (opening := self._opening.get(key)) is None:
            opening = self._opening[key] = asyncio.create_task(self._open(credential))
            opening.add_done_callback(lambda done: self._forget(key, done))
        await asyncio.wait([opening])
        if opening.cancelled():
            raise self._gone()
        try:
            return opening.result()
        except ToolError as error:
            raise copy.copy(error) from None  # each call tells its own name in it

    async def close(self) -> None:
        """Close them all; safe to call twice."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        sessions = [held.session for held in self._held.values()] + list(self._retiring.values())
        self._held = {}
        await asyncio.gather(*(session.close() for session in sessions))
        await asyncio.gather(*self._retiring)

    async def _open(self, credential: Credential) -> WebSocketSession:
        who, session = _who(credential), await self._connect(credential)
        old, self._held[who] = self._held.pop(who, None), _Held(dict(credential.headers), session)
        for other in (old, self._spare()):
            if other is not None:
                self._retire(other.session)
        return session

    def _retire(self, session: WebSocketSession) -> None:
        retiring = asyncio.create_task(session.retire())
        self._retiring[retiring] = session
        retiring.add_done_callback(self._retiring.pop)

    def _spare(self) -> _Held | None:
        """One to give up when there are too many: the oldest that no call waits for."""
        if len(self._held) <= _MAX_SESSIONS:
            return None
        idle = [who for who, held in list(self._held.items())[:-1] if not held.session.busy]
        return self._held.pop(idle[0]) if idle else None

    def _forget(self, key: _Key, done: asyncio.Task[WebSocketSession]) -> None:
        del self._opening[key]
        if not done.cancelled():
            done.exception()  # taken, so that nobody is told of a failure for which nobody waits any more

    def _gone(self) -> ToolConnectionError:
        return ToolConnectionError(f"source {self._name!r} is closed", sent=False)


def _who(credential: Credential) -> str:
    """What tells people apart: their key, or what they present where nobody gave them one."""
    key, headers = credential.key, credential.headers
    return fingerprint(headers) if headers and key == NO_CREDENTIAL.key else key
