"""The UTCP figure as a part of a run."""

from __future__ import annotations

from functools import partial

from bench.core.main import Part
from bench.mcp.scale import McpScale
from bench.utcp import calls


def parts(scale: McpScale) -> list[Part]:
    """All there are."""
    return [Part("utcp", calls.count(scale), partial(calls.measure, scale))]
