"""What operations of the REST interface share: the Toolbox, the feed of events, and calls that nobody waits for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from toolpost.gateway.event_feed import EventFeed
    from toolpost.toolbox.box import Toolbox


class RestService:
    """The open parts behind the operations."""

    def __init__(self, box: Toolbox, feed: EventFeed, *, public_url: str, grace_s: float = 10.0) -> None:
        self.box = box
        self.feed = feed
        self.public_url = public_url
        self._grace_s = grace_s
        self._calls = set[asyncio.Task[Outcome]]()

    @property
    def is_stopping(self) -> bool:
        """Whether the gateway takes no new calls any more."""
        return self.feed.is_closed

    def start_call(self, call: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        """Run a call beside the request that asked for it."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read the log for listeners; at the end give calls some time, and cancel those that take longer."""
        async with self.feed.following(self.box.store.events):
            try:
                yield
            finally:
                if self._calls:
                    await asyncio.wait(self._calls, timeout=self._grace_s)
                left = list(self._calls)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
