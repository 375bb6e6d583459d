"""The MCP figures as parts of a run."""

from __future__ import annotations

from functools import partial

from bench.core.main import Part
from bench.mcp import calls, cycles, discovery
from bench.mcp.scale import McpScale


def parts(scale: McpScale) -> list[Part]:
    """All of them, in their order."""
    return [
        *(
            Part(f"mcp {wire.key}", calls.count(scale, wire), partial(calls.measure, scale, wire))
            for wire in calls.WIRES
        ),
        Part("mcp discovery", discovery.count(scale), partial(discovery.measure, scale)),
        Part("mcp cycles", cycles.count(scale), partial(cycles.measure, scale)),
    ]
