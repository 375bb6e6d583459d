"""Other processes: workers that measure in an environment of their own, and fresh interpreters that only start."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.core.harness import Turn

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 60.0


class Worker:
    """A track in another interpreter: the same harness there, one JSON document a line between us."""

    def __init__(self, python: str, contenders: str, *, path: Sequence[Path] = ()) -> None:
        """Start `python` on the module `contenders`; `path` is where it finds that module."""
        folders = [str(ROOT), str(ROOT / "src"), *map(str, path)]
        self._process = subprocess.Popen(
            [python, "-m", "bench.core.worker", contenders],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        )
        try:
            self._names: list[str] = self._read()
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> Sequence[str]:
        return self._names

    async def turn(self, name: str, calls: int) -> Turn:
        return await asyncio.to_thread(self._turn, name, calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        with self._process as process:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def _turn(self, name: str, calls: int) -> Turn:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"name": name, "calls": calls}) + "\n")
        self._process.stdin.flush()
        return Turn(*self._read())

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with code {self._process.wait()}; its words are above")
        return json.loads(line)


class StartTrack:
    """Commands that start, do one small thing and end; the CPU is that of the child from its first instruction on."""

    def __init__(self, commands: Mapping[str, Sequence[str]], *, folder: Path) -> None:
        self._commands = commands
        self._folder = folder

    @property
    def names(self) -> Sequence[str]:
        return list(self._commands)

    async def turn(self, name: str, calls: int) -> Turn:
        walls: list[float] = []
        cpu_s = -_children_cpu_s()
        for _ in range(calls):
            began = time.perf_counter()
            await asyncio.to_thread(self._start, self._commands[name])
            walls.append((time.perf_counter() - began) * 1e6)
        cpu_s += _children_cpu_s()
        return Turn(walls, sum(walls) / calls, cpu_s / calls * 1e6)

    def _start(self, command: Sequence[str]) -> None:
        # An installed package has its bytecode; the first turn, which is not counted, compiles that of a checkout.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        quiet = subprocess.DEVNULL
        subprocess.run(command, cwd=self._folder, env=env, check=True, stdout=quiet, stderr=quiet, stdin=quiet)


def _children_cpu_s() -> float:
    """CPU of the children that have ended."""
    if sys.platform == "win32":
        raise OSError("Windows does not tell the CPU time of ended children; run this on Linux or macOS")
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
