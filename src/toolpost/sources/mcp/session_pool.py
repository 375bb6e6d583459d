"""The sessions of one source: one for each credential, opened once however many ask, and again after they die."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from toolpost.auth.static import fingerprint
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ToolConnectionError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.sources.mcp.session import Link

_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 30.0
_PATIENCE_S = 1.0  # a caller waits this long for the next try; longer waits are refused at once
_MOST_SESSIONS = 64


class _Slot:
    """The place of one credential's session."""

    __slots__ = ("connecting", "error", "failures", "link", "not_before", "tried", "used")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.connecting: asyncio.Task[Link] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.error: ToolError | None = None
        self.tried: Mapping[str, str] = {}
        self.used = 0.0


class Links:
    """Gives out live sessions; while a server cannot be reached, asking again is refused for a growing while."""

    def __init__(self, make: Callable[[Credential], Link], name: str, *, lasting: Credential) -> None:
        self._make = make
        self._lasting = _key(lasting)
        self._name = name
        self._slots: dict[str, _Slot] = {}
        self._retiring: dict[Link, asyncio.Task[None]] = {}
        self._closed = False

    async def get(self, credential: Credential) -> Link:
        """The live session of a credential, connected now if need be; nobody else's call waits for it."""
        key = _key(credential)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _Slot()
        link = slot.link
        if link is None or link.dead or not self._renewed(link, credential):
            link = await self._connected(slot, credential)
            self._renewed(link, credential)  # it may have been connecting for somebody with an older token
        slot.used = time.monotonic()
        return link

    def _renewed(self, link: Link, credential: Credential) -> bool:
        """Whether the session can go on, with this token from now on."""
        if link.credential is credential or link.credential.headers == credential.headers:
            return True
        if link.renewable:
            link.renew(credential)
        return link.renewable

    async def _connected(self, slot: _Slot, credential: Credential) -> Link:
        """Connect in a task of its own, so that a caller who gives up does not undo it for the others."""
        if self._closed:
            raise ToolConnectionError(f"source {self._name!r} is closed", sent=False)
        if slot.connecting is None:
            wait = slot.not_before - time.monotonic() if slot.tried == credential.headers else 0.0
            if wait > _PATIENCE_S and slot.error is not None:
                raise _again(slot.error, wait)
            slot.connecting = asyncio.get_running_loop().create_task(self._connect(slot, credential, wait))
        try:
            return await asyncio.shield(slot.connecting)
        except ToolError as error:
            raise _again(error, 0.0) from error

    async def _connect(self, slot: _Slot, credential: Credential, wait: float) -> Link:
        slot.tried = credential.headers
        try:
            await asyncio.sleep(max(0.0, wait))
            self._retire(slot)
            link = self._make(credential)
            await link.open()
        except ToolError as error:
            slot.failures += 1
            slot.error = error
            wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (slot.failures - 1))
            slot.not_before = time.monotonic() + wait
            raise
        finally:
            slot.connecting = None
        slot.link, slot.failures, slot.error = link, 0, None
        slot.used = time.monotonic()
        self._make_room()
        return link

    def release(self, call_id: str) -> None:
        """Give up a held call that nobody will answer."""
        for slot in self._slots.values():
            if slot.link is not None:
                slot.link.turns.release(call_id)

    def _retire(self, slot: _Slot) -> None:
        """Let go of a dead session; nobody waits for that."""
        link, slot.link = slot.link, None
        if link is not None:
            task = self._retiring[link] = asyncio.get_running_loop().create_task(link.retire())
            task.add_done_callback(lambda _: self._retiring.pop(link, None))

    def _make_room(self) -> None:
        """Close the session that was idle for longest, when there are too many."""
        if len(self._slots) <= _MOST_SESSIONS:
            return
        idle = [key for key, slot in self._slots.items() if key != self._lasting and not _busy(slot)]
        if idle:
            self._retire(self._slots.pop(min(idle, key=lambda key: self._slots[key].used)))

    def live(self, credential: Credential) -> Link | None:
        """The session of a credential, if it is alive."""
        slot = self._slots.get(_key(credential))
        return slot.link if slot is not None and slot.link is not None and not slot.link.dead else None

    async def close(self) -> None:
        """Close every session, also those that are being made."""
        self._closed = True
        tasks = [slot.connecting for slot in self._slots.values() if slot.connecting is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links = [*(slot.link for slot in self._slots.values() if slot.link is not None), *self._retiring]
        retiring = list(self._retiring.values())
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)
        for last in retiring:
            last.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        self._slots.clear()


def _busy(slot: _Slot) -> bool:
    link = slot.link
    return slot.connecting is not None or (link is not None and bool(link.busy or link.turns))


def _key(credential: Credential) -> str:
    """What tells sessions apart; headers without a key of their own are told apart by what they say."""
    if credential.key != NO_CREDENTIAL.key or not credential.headers:
        return credential.key
    return f"headers:{fingerprint(credential.headers)}"


def _again(error: ToolError, wait_s: float) -> ToolError:
    """The same failure for one more caller; an exception object is raised once only."""
    message = error.message
    if not isinstance(error, ToolConnectionError):
        copy = type(error).__new__(type(error))
        ToolError.__init__(copy, message, status_code=error.status_code, category=error.category, cause=error)
        copy.retry_after_s, copy.challenges = error.retry_after_s, error.challenges
        return copy
    return ToolConnectionError(message, sent=False, retry_after_s=wait_s or None, cause=error)
