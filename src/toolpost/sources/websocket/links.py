"""The held connections of one source: one for each credential, opened once however many ask."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING

from toolpost.auth.static import fingerprint
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.errors import ToolConnectionError, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.contracts.calls import Credential
    from toolpost.sources.websocket.link import Link

_MOST_LINKS = 64


class Links:
    """Gives out live connections; one that broke is replaced when the next call wants it."""

    def __init__(self, name: str, connect: Callable[[Credential], Awaitable[Link]]) -> None:
        self._name = name
        self._connect = connect
        self._links: dict[str, Link] = {}
        self._opening: dict[str, asyncio.Task[Link]] = {}
        self._closed = False

    def known(self, credential: Credential) -> Link | None:
        """The live connection of a credential, if there is one."""
        link = self._links.get(_key(credential))
        return None if link is None or link.closed else link

    async def opened(self, credential: Credential) -> Link:
        """The connection of a credential, made now; whoever gives up does not undo it for the others."""
        if self._closed:
            raise ToolConnectionError(f"source {self._name!r} is closed", sent=False)
        key = _key(credential)
        if (opening := self._opening.get(key)) is None:
            opening = self._opening[key] = asyncio.create_task(self._open(key, credential))
            opening.add_done_callback(lambda done: self._forget(key, done))
        try:
            return await asyncio.shield(opening)
        except ToolError as error:
            raise copy.copy(error) from None  # each call tells its own name in it

    async def close(self) -> None:
        """Close them all; safe to call twice."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        links, self._links = self._links, {}
        await asyncio.gather(*(link.close() for link in links.values()))

    async def _open(self, key: str, credential: Credential) -> Link:
        link = await self._connect(credential)
        old, self._links[key] = self._links.pop(key, None), link
        for other in (old, self._spare()):
            if other is not None:
                await other.close()
        return link

    def _spare(self) -> Link | None:
        """One to give up when there are too many: the oldest that no call waits for."""
        if len(self._links) <= _MOST_LINKS:
            return None
        idle = [key for key, link in list(self._links.items())[:-1] if not link.busy]
        return self._links.pop(idle[0]) if idle else None

    def _forget(self, key: str, done: asyncio.Task[Link]) -> None:
        del self._opening[key]
        if not done.cancelled():
            done.exception()  # taken, so that nobody is told of a failure for which nobody waits any more


def _key(credential: Credential) -> str:
    """What tells people apart: their key, or what they present where nobody gave them one."""
    key, headers = credential.key, credential.headers
    return fingerprint(headers) if headers and key == NO_CREDENTIAL.key else key
