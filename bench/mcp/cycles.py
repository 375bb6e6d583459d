"""Figure of connections that break: what is left after many of them, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench.core.figures import Column, Figure, Target
from bench.core.harness import Tick
from bench.mcp.endpoint import ROOT
from bench.mcp.scale import McpScale

KEPT = ("processes", "descriptors", "threads", "tasks")
GROWTH_PERCENT = 5

COLUMNS = (
    Column("cycles", "cycles", 0),
    Column("each_ms", "each ms", 0),
    *(Column(key, f"{key} left", 0) for key in KEPT),
    Column("first_mb", "RSS MB, first quarter"),
    Column("last_mb", "last quarter"),
    Column("growth_percent", "growth %", 2),
)
NOTES = (
    "A call hangs; then the box is closed, or its server is killed, or the server of a box that stays and comes back.",
    "What is left is counted against the time after warming up, with the same box open.",
)


def count(_scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return 1


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Let a child connect and break."""
    command = [sys.executable, "-m", "bench.mcp.cycle", str(scale.cycles)]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    tick("connect, hang, kill")
    return figure(json.loads(said.stdout.splitlines()[-1]))


def figure(told: dict[str, Any]) -> Figure:
    """What is left, with the targets."""
    return Figure(
        key="mcp_cycles",
        title="Connections that hang and are cut",
        columns=COLUMNS,
        rows=[{**told, "each_ms": told["took_s"] * 1000 / told["cycles"]}],
        targets=[
            *(Target(f"{key} left", told[key], "at most", 0) for key in KEPT),
            Target("resident memory, last quarter over first", told["growth_percent"], "at most", GROWTH_PERCENT, "%"),
        ],
        notes=NOTES,
    )
