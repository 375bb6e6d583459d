"""Follow open sources: catalog updates, connection states, log messages, changed resources."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from toolpost.contracts.events import EventCode
from toolpost.policy.log_redaction import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.sources import SourceHealth, ToolSource
    from toolpost.contracts.spec import Tool
    from toolpost.policy.redaction import Redactor
    from toolpost.toolbox.catalog_exchange import CatalogExchange
    from toolpost.toolbox.source_factory import Emit
    from toolpost.toolbox.source_index import SourceIndex

ContentListener = Callable[[str, str | None], None]
_LEVELS = {"debug": 10, "info": 20, "notice": 20, "warning": 30, "error": 40}
_LONGEST_LOG = 4000


class SourceMonitor:
    """The listener of all live sources of one Toolbox; reports of removed and replaced sources are ignored."""

    def __init__(self, index: SourceIndex, exchange: CatalogExchange, redactor: Redactor, emit: Emit) -> None:
        self._index = index
        self._exchange = exchange
        self._redactor = redactor
        self._emit = emit
        self._content_listeners: list[ContentListener] = []
        self._reported: dict[str, tuple[str, str]] = {}  # the last state and its detail, by source

    async def tools_found(self, source: ToolSource, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Replace the tools of a source in the catalog."""
        managed = self._index.by_name.get(source.name)
        if managed is not None and managed.source is source:
            await self._exchange.refill(managed, tools, problems)

    def state_changed(self, source: ToolSource, state: SourceHealth) -> None:
        """Emit an event: a source came up or went down. A source that tries again may report the same failure."""
        detail, managed = self._redactor.redact(state.detail), self._index.by_name.get(source.name)
        if managed is None or managed.source is not source or self._reported.get(source.name) == (state.state, detail):
            return
        managed.note_state(is_up=state.state == "up")
        self.report(source.name, state.state, detail)

    def report(self, name: str, state: str, detail: str) -> None:
        """Emit an event with the state of a source, also if it is the state that was reported before."""
        self._reported[name] = (state, detail)
        code = EventCode.SOURCE_UP if state == "up" else EventCode.SOURCE_DOWN
        self._emit(name, code, {"state": state, "detail": detail})

    def logged(self, source: ToolSource, level: str, text: str) -> None:
        """Log and emit a log message of a source's server."""
        line = escape_controls(self._redactor.excerpt(text, _LONGEST_LOG))
        managed = self._index.by_name.get(source.name)
        transport = managed.config.transport if managed else "removed"
        log = logging.getLogger(f"toolpost.sources.{transport}")
        log.log(_LEVELS.get(level, logging.ERROR), "%s: %s", source.name, line)
        self._emit(source.name, EventCode.SOURCE_LOGGED, {"level": level, "text": line})

    def contents_changed(self, source: ToolSource) -> None:
        """Notify listeners that a source lists other resources or prompts."""
        for listener in list(self._content_listeners):
            listener(source.name, None)

    def resource_updated(self, source: ToolSource, uri: str) -> None:
        """Notify listeners that a resource of a source has changed."""
        for listener in list(self._content_listeners):
            listener(source.name, uri)

    def subscribe_contents(self, listener: ContentListener) -> Callable[[], None]:
        """Call a function when the resources or prompts of a source change; return the function that unsubscribes.

        The function gets the name of the source, and the URI of an updated resource or None if the lists changed.
        """
        self._content_listeners.append(listener)
        return partial(self._content_listeners.remove, listener)
