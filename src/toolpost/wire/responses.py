"""An answer: its head at once, its body when asked for."""

from __future__ import annotations

import asyncio
from email.message import Message
from typing import TYPE_CHECKING, Self

from toolpost.wire.bodies import Body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from types import TracebackType

    from toolpost.wire.deadlines import Deadlines
    from toolpost.wire.steps import Step
    from toolpost.wire.transports import Incoming


_NO_BODY = frozenset({204, 304})


class Response:
    """The head of an answer and the way to its body.

    Read it, stream it or close it: until then it holds a connection.
    """

    __slots__ = ("_content", "_deadline", "_deadlines", "_incoming", "_limit", "_step", "headers", "status")

    def __init__(self, incoming: Incoming, step: Step, *, limit: int, deadline: float, deadlines: Deadlines) -> None:
        self.status = incoming.status
        self.headers = incoming.headers
        self._incoming = incoming
        self._step = step
        self._limit = limit
        self._deadline = deadline
        self._deadlines = deadlines
        self._content: bytes | None = None

    def __repr__(self) -> str:
        return f"Response({self.status})"

    @property
    def url(self) -> str:
        """The URL that answered, after all redirects."""
        return self._step.url

    @property
    def media_type(self) -> str:
        """The type and subtype of the body in lower case, without parameters; empty when the server did not say."""
        return (self.headers.get("content-type") or "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The character set that the server named."""
        written = Message()
        written["content-type"] = self.headers.get("content-type") or ""
        return written.get_content_charset()

    async def read(self) -> bytes:
        """The whole body, within the limit; a second call gives the same again."""
        if self._content is None:
            self._content = await self._body().read()
        return self._content

    def stream(self, *, share_of_time: float = 1.0) -> AsyncGenerator[bytes]:
        """The body piece by piece, within the limit and a share of the time that is left; for one reader, once."""
        now = asyncio.get_running_loop().time()
        self._deadline = now + (self._deadline - now) * share_of_time
        return self._body().stream()

    async def close(self) -> None:
        """Give the connection back, or up if some of the body was not read."""
        await self._incoming.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _body(self) -> Body:
        return Body(
            self._incoming,
            self._step,
            limit=self._limit,
            deadline=self._deadline,
            deadlines=self._deadlines,
            expected=self._step.method != "HEAD" and self.status not in _NO_BODY,
        )
