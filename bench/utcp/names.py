"""What the rows of the UTCP figure are called, process by process: first the floor of each, then who runs beside it."""

from __future__ import annotations

from bench.http import names as http

FLOOR = "floor, by hand"
OPENAPI = "Toolbox in memory, OpenAPI tool"
UTCP = "Toolbox in memory, UTCP tool"
SQLITE = "Toolbox on SQLite, UTCP tool"

OWN = (FLOOR, OPENAPI, UTCP, SQLITE)
PEERS = (http.FLOOR_PEERS, http.UTCP, http.FASTMCP)
ROWS = (*OWN, *PEERS)


def floor_of(name: str) -> str:
    """The floor that runs in the same process."""
    return OWN[0] if name in OWN else PEERS[0]
