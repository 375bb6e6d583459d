"""How much the MCP figures measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpScale:
    """Rounds and calls a turn one after the other, rounds of crowds, fresh processes that discover, connections cut."""

    rounds: int
    calls: int
    crowds: int
    starts: int
    tools: int
    cycles: int


FULL = McpScale(rounds=15, calls=100, crowds=15, starts=5, tools=5_000, cycles=1_000)
QUICK = McpScale(rounds=5, calls=50, crowds=5, starts=3, tools=5_000, cycles=100)
