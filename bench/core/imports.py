"""Figure 2: what it costs to start: importing the package, making a first call, and commands that do little."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Measured, Tick, interleave
from bench.core.processes import StartTrack
from bench.core.scale import Scale

BARE = "bare python"
STANDARD = "import asyncio, json, sqlite3"
PACKAGE = "import toolpost"
VERSION = "toolpost --version"
FRONT_DOOR = "from toolpost import Toolbox, tool"
FIRST_CALL = "a program that makes one call"
LISTING = "toolpost tools list"
_PROGRAM = """
import asyncio
from toolpost import Toolbox, tool

@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with Toolbox(tools=[add], settings={"data_dir": None}) as box:
        await box.call("add", {"a": 1, "b": 2})

asyncio.run(main())
"""


def count(scale: Scale) -> int:
    """How many ticks this figure makes."""
    return (scale.starts + 1) * len(_commands())


def measure(scale: Scale, tick: Tick) -> Figure:
    """Start fresh interpreters."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        track = StartTrack(_commands(), folder=Path(folder))
        result = asyncio.run(interleave([track], rounds=scale.starts, calls=1, tick=tick))
    return figure(result)


def _commands() -> dict[str, list[str]]:
    python = [sys.executable, "-c"]
    return {
        BARE: [*python, "pass"],
        STANDARD: [*python, STANDARD],
        PACKAGE: [*python, PACKAGE],
        VERSION: [*_command(), "--version"],
        FRONT_DOOR: [*python, FRONT_DOOR],
        FIRST_CALL: [*python, _PROGRAM],
        LISTING: [*_command(), "tools", "list"],
    }


def _command() -> list[str]:
    """The installed command; without one beside this interpreter, what it would run."""
    script = Path(sys.executable).with_name("toolpost")
    return [str(script)] if script.exists() else [sys.executable, "-m", "toolpost"]


def figure(result: dict[str, Measured]) -> Figure:
    """The numbers as a table, with the targets."""
    standard = result[STANDARD].cpu_us
    return Figure(
        key="imports",
        title="Start in a fresh interpreter",
        columns=(
            Column("name", "command"),
            Column("cpu_ms", "CPU ms"),
            Column("median_ms", "median ms"),
            Column("of_standard", "x asyncio, json, sqlite3", 2),
        ),
        rows=[_row(name, measured, standard) for name, measured in result.items()],
        targets=[
            Target(f"{PACKAGE}, CPU", result[PACKAGE].cpu_us / standard, "at most", 2.0, "x"),
            Target(f"{VERSION}, CPU", result[VERSION].cpu_us / standard, "at most", 3.0, "x"),
            Target(f"{FRONT_DOOR}, CPU", result[FRONT_DOOR].cpu_us / standard, "at most", 2.0, "x"),
            Target(f"{LISTING}, CPU", result[LISTING].cpu_us / standard, "at most", 2.6, "x"),
        ],
        notes=("CPU of the whole child, the interpreter's own start included.",),
    )


def _row(name: str, measured: Measured, standard: float) -> Row:
    return {
        "name": name,
        "cpu_ms": measured.cpu_us / 1000,
        "median_ms": measured.median_us / 1000,
        "of_standard": measured.cpu_us / standard,
    }
