"""Where the server of the benchmark is; standard library only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from bench.mcp.endpoint import ROOT


@contextmanager
def serving(server: str = "bench.http.server") -> Generator[str]:
    """Run a server module in a process of its own; yields the address."""
    started = [sys.executable, "-m", server]
    with subprocess.Popen(started, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
