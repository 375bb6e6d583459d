"""The figures of people's accounts as parts of a run."""

from __future__ import annotations

from functools import partial

from bench.core.main import Part
from bench.mcp.scale import McpScale
from bench.oauth import expiries, flow


def parts(scale: McpScale) -> list[Part]:
    """All there are."""
    return [
        Part("oauth flow", flow.count(scale), partial(flow.measure, scale)),
        Part("oauth expiries", expiries.count(scale), partial(expiries.measure, scale)),
    ]
