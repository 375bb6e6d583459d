"""What the rows of the WebSocket figure are called."""

from __future__ import annotations

FLOOR = "websockets, ids by hand"
MEMORY = "Toolbox in memory"
SQLITE = "Toolbox on SQLite"

ROWS = (FLOOR, MEMORY, SQLITE)
