"""The command line figure as a part of a run."""

from __future__ import annotations

from functools import partial

from bench.cli import calls
from bench.core.main import Part
from bench.mcp.scale import McpScale


def parts(scale: McpScale) -> list[Part]:
    """All there are."""
    return [Part("cli", calls.count(scale), partial(calls.measure, scale))]
