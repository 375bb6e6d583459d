"""Figure of a call of an HTTP tool by its manual, one after the other and many at a time."""

from __future__ import annotations

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick
from bench.http.calls import Taken, measure_with_peers, row_beside_floor
from bench.http.names import UTCP as UTCP_HTTP
from bench.mcp.calls import COLUMNS as MCP_COLUMNS
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL
from bench.utcp import names

OF_OPENAPI = 1.1  # the same, but for what a run differs from the next
OWN = "bench.utcp.own"

COLUMNS = (
    *MCP_COLUMNS[:-2],  # all but those beside FastMCP's client
    Column("of_openapi", "median x OpenAPI", 2),
    Column("calls_of_openapi", "calls/s x OpenAPI", 2),
)
NOTES = (
    "CPU is that of the client's process with all its threads; the server is by hand and in another process.",
    "Ratios are taken round by round: CPU to the floor of the same process, the others to the OpenAPI tool.",
)


def count(scale: McpScale, *, peers: bool = True) -> int:
    """How many ticks the figure makes."""
    return (scale.rounds + scale.crowds + 2) * len(names.ROWS if peers else names.OWN)


def measure(scale: McpScale, tick: Tick, *, peers: bool = True) -> Figure:
    """Measure our own contenders, and the peers in their environment."""
    return figure(measure_with_peers(OWN, scale, tick, peers=peers))


def figure(taken: dict[str, Taken]) -> Figure:
    """The numbers as a table, with the targets."""
    return Figure(
        key="utcp_calls",
        title="Call of an HTTP tool by its UTCP manual",
        columns=COLUMNS,
        rows=[_row(name, taken) for name in names.ROWS if name in taken],
        targets=[*_beside_openapi(taken), *_ahead(taken)],
        notes=NOTES,
    )


def _row(name: str, taken: dict[str, Taken]) -> Row:
    (alone, crowd), openapi = taken[name], taken[names.OPENAPI]
    return {
        **row_beside_floor(name, taken[name], taken[names.floor_of(name)]),
        "of_openapi": alone.measured.times(openapi.alone.measured),
        "calls_of_openapi": openapi.crowd.measured.times(crowd.measured),
    }


def _beside_openapi(taken: dict[str, Taken]) -> list[Target]:
    ours, openapi = taken[names.UTCP], taken[names.OPENAPI]
    slower = ours.alone.measured.times(openapi.alone.measured)
    calls = openapi.crowd.measured.times(ours.crowd.measured)
    pair = f"{names.UTCP} / {names.OPENAPI}"
    return [
        Target(f"{pair}, median, one by one", slower, "at most", OF_OPENAPI, "x"),
        Target(f"{pair}, calls/s, {USUAL.callers} at once", calls, "at least", 1 / OF_OPENAPI, "x"),
    ]


def _ahead(taken: dict[str, Taken]) -> list[Target]:
    if UTCP_HTTP not in taken:
        return []
    ours, theirs = taken[names.UTCP], taken[UTCP_HTTP]
    alone = theirs.alone.measured.times(ours.alone.measured)
    crowd = theirs.crowd.measured.times(ours.crowd.measured)
    return [
        Target(f"{UTCP_HTTP} / {names.UTCP}, median, one by one", alone, "at least", 1, "x"),
        Target(f"{names.UTCP} / {UTCP_HTTP}, calls/s, {USUAL.callers} at once", crowd, "at least", 1, "x"),
    ]
