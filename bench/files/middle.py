"""Reads lines in the middle of a file, in a process of its own, and prints how long it took and what memory it grew by.

`python -m bench.files.middle FILE LINE`
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from toolpost.builtin.file_reading import read_file
from toolpost.contracts.context import ToolContext


async def main(path: str, line: int) -> None:
    before = _highest_mb()
    began, worked = time.perf_counter(), time.process_time()
    result = await read_file.execute({"path": path, "offset": line, "limit": 100}, ToolContext())
    took_s, worked_s = time.perf_counter() - began, time.process_time() - worked
    grown_mb = _highest_mb() - before
    if not result.success:
        raise SystemExit(result.error)
    print(json.dumps({"seconds": took_s, "worked_s": worked_s, "grown_mb": grown_mb}))


def _highest_mb() -> float:
    """The most memory that this process ever held; what getrusage tells begins with the parent's."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
