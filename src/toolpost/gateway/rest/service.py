"""What operations of the REST interface share: the Toolbox, the feed of events, and calls that nobody waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from toolpost.contracts.outcomes import Outcome
from toolpost.gateway.source_changes import FROM_SIBLING, ChangedSources
from toolpost.toolbox.views import SelectedTools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from starlette.types import Scope

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.spec import ToolSpec
    from toolpost.gateway.event_feed import EventFeed
    from toolpost.gateway.siblings import Siblings
    from toolpost.gateway.views import View
    from toolpost.toolbox.box import Toolbox


_LAST_S = 5.0  # for calls to notice that they were cancelled


def _nothing(_spec: ToolSpec) -> bool:
    return False


class RestService:
    """The open parts behind the operations; `siblings` are the other workers of the gateway.

    They were told of `changed_sources` before this one was started.
    """

    def __init__(
        self,
        box: Toolbox,
        feed: EventFeed,
        view: Callable[[], View],
        *,
        public_url: str,
        siblings: Siblings | None = None,
        changed_sources: ChangedSources | None = None,
    ) -> None:
        self.box = box
        self.siblings = siblings
        self._view = view
        self._all = SelectedTools(box, {})
        self._none = SelectedTools(box, {"where": _nothing})
        self.feed = feed
        self.public_url = public_url
        self._calls = set[asyncio.Task[Outcome]]()
        self.uploads = Counter[str]()  # bytes of files that are being uploaded, by caller
        self.changed_sources = changed_sources or ChangedSources()

    def tools_for(self, caller: Caller) -> SelectedTools:
        """Return the tools that a caller sees: all, or those of the view at `/mcp` if it can do no more than call."""
        if not caller.scopes <= {"call"}:
            return self._all
        view = self._view()
        return view.tools if view.is_for(str(caller.principal)) else self._none

    @property
    def is_stopping(self) -> bool:
        """Whether the gateway takes no new calls any more."""
        return self.feed.is_closed

    async def ask_siblings(self, scope: Scope, method: str, target: str, value: Any = None) -> list[Any]:
        """Pass a request on to the other workers, unless one of them sent it, and return what they answer."""
        if self.siblings is None or scope.get(FROM_SIBLING):
            return []
        return await self.siblings.ask(method, target, value)

    def start_call(self, call: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        """Run a call beside the request that asked for it."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Read the log for listeners; at the end park or cancel the calls that still run."""
        async with self.feed.following(self.box.store.events):
            try:
                yield
            finally:
                await self.box.router.park(within_s=0)
                if self._calls:
                    await asyncio.wait(self._calls, timeout=_LAST_S)
