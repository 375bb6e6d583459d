"""What the rows of the HTTP figure are called, process by process: first the floor of each, then who runs beside it."""

from __future__ import annotations

FLOOR = "floor, by hand"
AIOHTTP = "aiohttp, one session"
HTTPX = "httpx2, one client"
CLIENT = "Toolpost HttpClient"
MEMORY = "Toolbox in memory"
SQLITE = "Toolbox on SQLite"

FLOOR_PEERS = "floor, in the process of these peers"
UTCP = "utcp-http call_tool"
FASTMCP = "FastMCP from_openapi call_tool"

OWN = (FLOOR, AIOHTTP, HTTPX, CLIENT, MEMORY, SQLITE)
PEERS = (FLOOR_PEERS, UTCP, FASTMCP)
ROWS = (*OWN, *PEERS)


def floor_of(name: str) -> str:
    """The floor that runs in the same process."""
    return OWN[0] if name in OWN else PEERS[0]
