"""What a server says between answers: that its tools changed, what it logs, what it asks."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from mcp_types import (
    Implementation,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.sources import SourceHealth, SourceListener, ToolSource
    from toolpost.contracts.tool import Tool
    from toolpost.sources.mcp.calls import Calls
    from toolpost.sources.mcp.lending import Lending
    from toolpost.sources.mcp.session import Link

_LIST_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)
_LOGS_PER_WINDOW = 100
_WINDOW_S = 10.0
_LONGEST_LOG = 1 << 20  # whoever hears of it shortens it further


class Hearing:
    """Makes the callbacks of every session, and passes on what matters to whoever keeps the catalog."""

    def __init__(self, source: ToolSource, lending: Lending, calls: Calls) -> None:
        self._source = source
        self._lending = lending
        self._calls = calls
        self._window = 0.0
        self._heard = 0
        self.listener: SourceListener | None = None
        self.changed = asyncio.Event()

    def callbacks(self, link: Link) -> dict[str, Any]:
        """What a session is made with."""
        made: dict[str, Any] = {
            "client_info": Implementation(name="toolpost", version=version("toolpost")),
            "message_handler": self._message,
            "logging_callback": self._logged,
            "log_level": "info",
            **self._lending.callbacks(),
        }
        if self._calls.elicitation:
            made["elicitation_callback"] = partial(self._calls.elicited, link)
        return made

    async def _message(self, message: Any) -> None:
        if isinstance(message, _LIST_CHANGES):
            self.changed.set()

    async def _logged(self, params: Any) -> None:
        """Pass a log line on, but no flood of them."""
        now = time.monotonic()
        if now - self._window > _WINDOW_S:
            self._window, self._heard = now, 0
        self._heard += 1
        if self._heard > _LOGS_PER_WINDOW:
            return
        if self.listener is not None:
            self.listener.logged(self._source, str(params.level), str(params.data)[:_LONGEST_LOG])

    async def found(self, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        """Tell which tools there are from now on."""
        if self.listener is not None:
            await self.listener.tools_found(self._source, tools, problems)

    def health(self, health: SourceHealth) -> None:
        """Tell how the connection is doing."""
        if self.listener is not None:
            self.listener.state_changed(self._source, health)
