"""The figures of the gateway as parts of a run."""

from __future__ import annotations

from functools import partial

from bench.core.main import Part
from bench.gateway import bridges, calls, crowd
from bench.mcp.scale import McpScale


def parts(scale: McpScale) -> list[Part]:
    """All there are."""
    return [
        Part("gateway calls", calls.count(scale), partial(calls.measure, scale)),
        Part("gateway and bridges", bridges.count(scale), partial(bridges.measure, scale)),
        Part("gateway lists", crowd.count_lists(scale), partial(crowd.measure_lists, scale)),
        Part("gateway clients", 2, crowd.measure_clients),
    ]
