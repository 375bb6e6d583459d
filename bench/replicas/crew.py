"""Processes of a measurement, started together and read at their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]


class Member:
    """A process with a role."""

    def __init__(self, role: str, database: str, folder: Path, *, duration_s: float = 0.1) -> None:
        folders = [str(ROOT), str(ROOT / "src")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.replicas.process", role, database, str(folder), str(duration_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def await_ready(self) -> None:
        """Wait until the process has opened the database."""
        if self._read() != "ready\n":
            raise RuntimeError(f"a process ended before it was ready: {self.process.wait()}")

    def go(self, **arguments: Any) -> None:
        """Let the process begin with the arguments of its role."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for the result of the process."""
        line = self._read()
        if not line:
            raise RuntimeError(f"a process ended without a result: {self.process.wait()}")
        result: dict[str, Any] = json.loads(line)
        return result

    def run(self, **arguments: Any) -> dict[str, Any]:
        """Run the whole role."""
        self.await_ready()
        self.go(**arguments)
        return self.result()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()
