"""Tools whose effects are counted outside of the processes that run them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from toolpost import Toolbox, ToolContext, tool
from toolpost.contracts.spec import CustomTool, Tool

USER = "acme:ann"


class Ledger:
    """A file with a line for each effect: the tool, and the key of the effect."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, tool_name: str, key: str) -> None:
        """Append a line with one system call, so that lines of several processes do not mix."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{tool_name} {key}\n".encode())
        finally:
            os.close(descriptor)

    def count(self) -> Counter[tuple[str, str]]:
        """Return how often each effect happened."""
        if not self._path.exists():
            return Counter()
        lines = self._path.read_text().splitlines()
        return Counter((name, key) for name, _, key in (line.partition(" ") for line in lines))


def tools_of(ledger: Ledger, *, duration_s: float) -> Sequence[Tool | CustomTool]:
    """Return a tool of each replay class; the effect happens in the middle of a call."""

    @tool(side_effects="write", destructive=True, replay="unsafe")
    async def wipe(key: str) -> str:
        """Wipe a disk, after an approval."""
        ledger.add("wipe", key)
        return key

    @tool(side_effects="write", replay="unsafe")
    async def send(key: str) -> str:
        """Send a message."""
        await asyncio.sleep(duration_s / 2)
        ledger.add("send", key)
        await asyncio.sleep(duration_s / 2)
        return key

    @tool(side_effects="write", replay="idempotent")
    async def put(key: str) -> str:
        """Store a value."""
        await asyncio.sleep(duration_s / 2)
        ledger.add("put", key)
        await asyncio.sleep(duration_s / 2)
        return key

    @tool(side_effects="write", replay="keyed")
    async def charge(key: str, ctx: ToolContext) -> str:
        """Charge a card once for each idempotency key."""
        await asyncio.sleep(duration_s / 2)
        ledger.add("charge", f"{key} {ctx.idempotency_key}")
        await asyncio.sleep(duration_s / 2)
        return key

    return [wipe, send, put, charge]


def open_box(database: str, folder: Path, *, duration_s: float = 0.1) -> Toolbox:
    """Return the Toolbox of one process."""
    tools = tools_of(Ledger(folder / "effects"), duration_s=duration_s)
    settings = {"database": database, "data_dir": str(folder / "data"), "lock": None}
    return Toolbox(tools=tools, settings=settings)
