"""What the rows of the command line figure are called."""

from __future__ import annotations

BARE = "asyncio.create_subprocess_exec"
COMMANDS = "Toolpost Commands"
MEMORY = "Toolbox in memory"
EFFECTS = "Toolbox in memory, with effects"
SQLITE = "Toolbox on SQLite"

ROWS = (BARE, COMMANDS, MEMORY, EFFECTS, SQLITE)
