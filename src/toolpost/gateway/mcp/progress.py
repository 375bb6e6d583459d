"""Progress of calls, relayed from the events of a Toolbox to the MCP requests that made them.

This module does not import the SDK: a gateway relays progress from its start, but loads MCP at the first request.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import EventCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from mcp.server.context import ServerRequestContext

    from toolpost.contracts.events import RunEvent

    Context = ServerRequestContext[Any, Any]


class ProgressRelay:
    """Event sink that passes the progress of calls to the requests that made them, by run."""

    def __init__(self) -> None:
        self._runs: dict[str, _Progress] = {}

    def emit(self, event: RunEvent) -> None:
        run = self._runs.get(event.call.run_id) if event.code is EventCode.SUBAGENT_ACTION else None
        if run is not None:
            run.report(event.payload)

    @asynccontextmanager
    async def to_client(self, run_id: str, ctx: Context) -> AsyncGenerator[None]:
        """Send the progress of a run to the client of a request, completely before the result."""
        progress = self._runs[run_id] = _Progress(ctx)
        try:
            yield
        finally:
            del self._runs[run_id]
            await progress.finish()


class _Progress:
    """Progress of one run; the sending task starts with the first report, because most calls make none."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._reports: asyncio.Queue[Mapping[str, Any] | None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._is_reported = False

    def report(self, facts: Mapping[str, Any] | None) -> None:
        """Queue a report; plain functions report from their thread."""
        self._is_reported = True
        self._loop.call_soon_threadsafe(self._put, facts)

    def _put(self, facts: Mapping[str, Any] | None) -> None:
        if self._reports is None:
            self._reports = asyncio.Queue()
            self._sending = self._loop.create_task(_send_progress(self._reports, self._ctx))
        self._reports.put_nowait(facts)

    async def finish(self) -> None:
        """Wait until all reports are sent."""
        if self._is_reported:
            self.report(None)
            await asyncio.sleep(0)  # until the reports are in the queue
            if self._sending is not None:
                await self._sending


async def _send_progress(queue: asyncio.Queue[Mapping[str, Any] | None], ctx: Context) -> None:
    """Send progress until None arrives; MCP requires that it always increases, which fractions need not."""
    last = 0.0
    while (facts := await queue.get()) is not None:
        fraction = facts.get("fraction")
        last = last + 1e-6 if fraction is None else max(last + 1e-6, float(fraction))
        total = None if fraction is None else 1.0
        with suppress(Exception):  # the client may be gone
            await ctx.session.report_progress(last, total, str(facts.get("text") or "") or None)
