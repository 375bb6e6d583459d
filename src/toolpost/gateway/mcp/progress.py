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

    from toolpost.contracts.events import RunEvent
    from toolpost.gateway.mcp.client import Context


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
        self._reports: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._is_reported = False

    def report(self, facts: Mapping[str, Any] | None) -> None:
        """Queue a report; plain functions report from their thread."""
        if not self._is_reported:
            self._is_reported = True
            self._loop.call_soon_threadsafe(self._start)
        self._loop.call_soon_threadsafe(self._reports.put_nowait, facts)

    def _start(self) -> None:
        self._sending = self._loop.create_task(self._send())

    async def finish(self) -> None:
        """Wait until all reports are sent."""
        if self._is_reported:
            self.report(None)
            await asyncio.sleep(0)  # until the reports are in the queue
            await self._sending

    async def _send(self) -> None:
        """Send progress until None arrives; MCP requires that it always increases, which fractions need not."""
        last = 0.0
        while (facts := await self._reports.get()) is not None:
            fraction = facts.get("fraction")
            last = last + 1e-6 if fraction is None else max(last + 1e-6, float(fraction))
            total = None if fraction is None else 1.0
            with suppress(Exception):  # the client may be gone
                await self._ctx.session.report_progress(last, total, str(facts.get("text") or "") or None)
