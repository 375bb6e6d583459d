"""Progress of calls, relayed from the events of a Toolbox to the MCP requests that made them.

This module does not import the SDK: a gateway relays progress from its start, but loads MCP at the first request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import EventCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.events import RunEvent
    from toolpost.gateway.mcp.client import Context


class ProgressRelay:
    """Event sink that passes the progress of calls to the requests that made them, by run."""

    def __init__(self) -> None:
        self._runs: dict[str, ClientProgress] = {}

    def emit(self, event: RunEvent) -> None:
        run = self._runs.get(event.call.run_id) if event.code is EventCode.SUBAGENT_ACTION else None
        if run is not None:
            run.report(event.payload)

    def to_client(self, run_id: str, ctx: Context) -> ClientProgress:
        """Return a context in which the progress of a run is sent to the client of a request, before the result."""
        return ClientProgress(self._runs, run_id, ctx)


class ClientProgress:
    """Progress of one run; the sending task starts with the first report, because most calls make none."""

    def __init__(self, runs: dict[str, ClientProgress], run_id: str, ctx: Context) -> None:
        self._runs = runs
        self._run_id = run_id
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._reports: asyncio.Queue[Mapping[str, Any] | None] | None = None

    async def __aenter__(self) -> None:
        self._runs[self._run_id] = self

    async def __aexit__(self, *_: object) -> None:
        del self._runs[self._run_id]
        if self._reports is not None:
            self.report(None)
            await asyncio.sleep(0)  # until the reports are in the queue
            await self._sending

    def report(self, facts: Mapping[str, Any] | None) -> None:
        """Queue a report; plain functions report from their thread."""
        if self._reports is None:
            self._reports = asyncio.Queue()
            self._loop.call_soon_threadsafe(self._start, self._reports)
        self._loop.call_soon_threadsafe(self._reports.put_nowait, facts)

    def _start(self, reports: asyncio.Queue[Mapping[str, Any] | None]) -> None:
        self._sending = self._loop.create_task(self._send(reports))

    async def _send(self, reports: asyncio.Queue[Mapping[str, Any] | None]) -> None:
        """Send progress until None arrives; MCP requires that it always increases, which fractions need not."""
        last = 0.0
        while (facts := await reports.get()) is not None:
            fraction = facts.get("fraction")
            last = last + 1e-6 if fraction is None else max(last + 1e-6, float(fraction))
            total = None if fraction is None else 1.0
            with suppress(Exception):  # the client may be gone
                await self._ctx.session.report_progress(last, total, str(facts.get("text") or "") or None)
