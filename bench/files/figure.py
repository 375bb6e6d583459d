"""The figure of the file tools, each beside the program or function that does no more than that."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick
from bench.envs import HERE
from bench.files.material import NEEDLE, FileScale, make_large, make_tree
from toolpost.builtin.loader import file_tools
from toolpost.contracts.context import ToolContext
from toolpost.processes.commands import CommandRunner

OF_RIPGREP, OF_WALK = 1.3, 2.0
MIDDLE_S, MIDDLE_MB = 1.0, 50.0
PATTERN = NEEDLE + "[0-9]+"
COLUMNS = (
    Column("name", "work"),
    Column("ours_s", "Toolpost s", 3),
    Column("floor", "beside"),
    Column("floor_s", "its s", 3),
    Column("ratio", "x", 2),
    Column("grown_mb", "MB more", 1),
)
NOTES = (
    "Medians of rounds in turns, the machine's cache warm. The floor prints or counts what it finds.",
    "MB more: by how much the most memory that the process ever held grew with the call, at worst.",
)

Work = Callable[[], Awaitable[object]]


class Pair:
    """A tool and its floor, taken in turns."""

    def __init__(self, name: str, ours: Work, floor_name: str, floor: Work, limit: float) -> None:
        self.name, self.floor_name, self.limit = name, floor_name, limit
        self._works = (ours, floor)
        self._taken: list[tuple[float, float]] = []

    async def turn(self) -> None:
        self._taken.append((await _timed(self._works[0]), await _timed(self._works[1])))

    def forget(self) -> None:
        self._taken.clear()

    @property
    def row(self) -> Row:
        ours, floor = (median(column) for column in zip(*self._taken, strict=True))
        ratio = median(ours / floor for ours, floor in self._taken)
        times: Row = {"ours_s": ours, "floor": self.floor_name, "floor_s": floor, "ratio": ratio}
        return {"name": self.name, **times, "grown_mb": ""}

    @property
    def target(self) -> Target:
        return Target(f"{self.name} / {self.floor_name}", self.row["ratio"], "at most", self.limit, "x")


def count(scale: FileScale) -> int:
    """How many ticks the figure makes."""
    return 2 * scale.rounds + 2


def measure(scale: FileScale, tick: Tick) -> Figure:
    """Make what is needed in a folder that is removed again, and measure."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as made:
        folder = Path(made)
        make_tree(folder / "tree", scale.files)
        tick("tree")
        make_large(folder / "large", scale)
        tick("large file")
        pairs = asyncio.run(_taken(folder / "tree", scale, tick))
        middle = [_middle(folder / "large", scale, tick) for _ in range(scale.rounds)]
    return _figure(pairs, middle, scale)


async def _taken(tree: Path, scale: FileScale, tick: Tick) -> list[Pair]:
    async with CommandRunner() as commands:
        pairs = _pairs(tree, commands)
        for pair in pairs:
            await pair.turn()  # warms the cache
            pair.forget()
        for _ in range(scale.rounds):
            for pair in pairs:
                await pair.turn()
            tick("pairs")
    return pairs


def _pairs(tree: Path, commands: CommandRunner) -> list[Pair]:
    grep = {"pattern": PATTERN, "path": str(tree)}
    tools = {tool.spec.name: tool for tool in file_tools(commands=commands)}
    ripgrep = shutil.which("rg", path=sysconfig.get_path("scripts")) or "rg"
    floor = _program(ripgrep, "--no-ignore", "--hidden", "-n", PATTERN, tree)
    listing = {"path": str(tree), "recursive": True}
    return [
        Pair("grep_files", _asked(tools["grep_files"], grep), "rg", floor, OF_RIPGREP),
        Pair("list_files", _asked(tools["list_files"], listing), "os.walk", _walk(tree), OF_WALK),
    ]


def _asked(tool: Any, arguments: dict[str, Any]) -> Work:
    async def ask() -> None:
        result = await tool.execute(arguments, ToolContext())
        if not result.success:
            raise RuntimeError(result.error)

    return ask


def _program(*argv: object) -> Work:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*map(str, argv), stdout=subprocess.PIPE)
        await process.communicate()

    return run


def _walk(tree: Path) -> Work:
    async def walk() -> int:
        return sum(len(folders) + len(files) for _, folders, files in os.walk(tree))

    return walk


async def _timed(work: Work) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _middle(path: Path, scale: FileScale, tick: Tick) -> dict[str, float]:
    argv = [sys.executable, "-m", "bench.files.middle", str(path), str(scale.lines // 2)]
    answer = subprocess.run(argv, cwd=HERE.parent, check=True, capture_output=True, text=True)
    tick("middle")
    return json.loads(answer.stdout)


def _figure(pairs: list[Pair], middle: list[dict[str, float]], scale: FileScale) -> Figure:
    seconds = median(taken["seconds"] for taken in middle)
    worked = median(taken["worked_s"] for taken in middle)
    grown = max(taken["grown_mb"] for taken in middle)
    name = f"read_file, middle of {scale.gigabytes:g} GB"
    return Figure(
        key="files",
        title=f"Tools on files ({scale.files} files)",
        columns=COLUMNS,
        rows=[
            *(pair.row for pair in pairs),
            {
                "name": name,
                "ours_s": seconds,
                "floor": "its processor time",
                "floor_s": worked,
                "ratio": seconds / worked,
                "grown_mb": grown,
            },
        ],
        targets=[
            *(pair.target for pair in pairs),
            Target(name, seconds, "at most", MIDDLE_S, "s"),
            Target(f"{name}, memory", grown, "at most", MIDDLE_MB, "MB"),
        ],
        notes=NOTES,
    )
