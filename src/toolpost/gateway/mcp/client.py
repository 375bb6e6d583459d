"""The MCP client of one request as upstream servers see it: its capabilities, and the log messages it receives."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mcp_types import LOG_LEVEL_META_KEY, LoggingMessageNotification, LoggingMessageNotificationParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_MOST_LOGS = 1000


class RequestClient:
    """The client of one request; `log_level` is the level that a session-based client has set.

    A client that is not `interactive` answers no forms: upstream servers see a client without elicitation, and its
    responses sent in advance are dropped.
    """

    def __init__(
        self,
        ctx: Context,
        *,
        input_responses: Mapping[str, Any] | None,
        log_level: str,
        relays: bool,
        interactive: bool,
    ) -> None:
        self._ctx = ctx
        self._capabilities: Mapping[str, Any] | None = None
        self.interactive = interactive
        self.input_responses: Mapping[str, Any] = (input_responses or {}) if interactive else {}
        self.log_level = _wanted_level(ctx, log_level)
        self.relays = relays
        self.is_task = asyncio.Event()
        self._logs: deque[LoggingMessageNotificationParams] = deque(maxlen=_MOST_LOGS)
        self._sending: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared, as on the wire."""
        if self._capabilities is None:
            declared = client_capabilities(self._ctx)
            if not self.interactive:
                declared.pop("elicitation", None)
            self._capabilities = declared
        return self._capabilities

    def became_task(self) -> None:
        """Record that the upstream server runs the call in the background."""
        self.is_task.set()

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message of the upstream server if the client receives that level."""
        wanted = self.log_level
        if wanted is None or level not in LOG_LEVELS or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = {"level": level, "data": data, "logger": logger}
        self._logs.append(LoggingMessageNotificationParams.model_validate(params))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_logs())

    async def flush(self) -> None:
        """Wait until all log messages are sent: they must precede the result."""
        if self._sending is not None:
            await self._sending

    async def _send_logs(self) -> None:
        while self._logs:
            with suppress(Exception):  # the client may be gone
                message = LoggingMessageNotification(params=self._logs.popleft())
                await self._ctx.session.send_notification(message, related_request_id=self._ctx.request_id)


def client_capabilities(ctx: Context) -> dict[str, Any]:
    """Return the capabilities that the client of a request declared, as on the wire."""
    declared = ctx.session.client_capabilities
    return {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)


def _wanted_level(ctx: Context, level: str) -> str | None:
    """Return the least level that the client receives; a stateless client sets it per request, or gets none."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return level
    wanted: Any = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
    return wanted if wanted in LOG_LEVELS else None
