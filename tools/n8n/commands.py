"""Runs a command to its end."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path


async def run(*command: str, folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command in a folder and give what it printed; one that fails ends everything, with its last words."""
    try:
        process = await asyncio.create_subprocess_exec(  # noqa: TID251 - other people's programs, no part of the package
            *command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is not on the PATH") from None
    output, _ = await process.communicate()
    told = output.decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} left with {process.returncode}:\n{told[-3000:]}")
    return told
