"""Where the servers of the benchmark are, and what every client asks of them; standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MESSAGE = "a message of some forty characters, hello"
ARGUMENTS = {"message": MESSAGE}
STDIO = "stdio"
IN_PROCESS = "in process"
_TARGET = "TOOLPOST_BENCH_MCP_TARGET"


def command() -> list[str]:
    """What starts the server on stdio."""
    return [sys.executable, str(ROOT / "bench" / "mcp" / "server.py")]


@contextmanager
def serving(*, tools: int = 2) -> Generator[str]:
    """Serve over HTTP in a process of its own; yields the address."""
    started = [sys.executable, "-m", "bench.mcp.http_server", "--tools", str(tools)]
    with subprocess.Popen(started, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


@contextmanager
def told(target: str) -> Generator[None]:
    """Let processes that start meanwhile know what to connect to: an address, STDIO or IN_PROCESS."""
    os.environ[_TARGET] = target
    try:
        yield
    finally:
        del os.environ[_TARGET]


def target() -> str:
    """What was told."""
    return os.environ[_TARGET]
