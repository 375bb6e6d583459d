"""One of several processes: takes tokens, or calls an API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolpost import ExternalToolConfig, Failed, Settings, Toolbox
from toolpost.contracts.limits import Rate
from toolpost.events import EventCode

ROOT = Path(__file__).parents[2]
RATE = Rate(interval_s=0.005, burst=20)
TAKE_S = 3.0
CALLS_PER_S = 20


class Member:
    """A process with a role."""

    def __init__(self, role: str, database: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.limits.process", role, database, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def await_ready(self) -> None:
        """Wait until the process has opened the database."""
        assert self.result() == "ready\n"

    def go(self, arguments: dict[str, Any]) -> None:
        """Let the process begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()

    def result(self) -> str:
        """Return the next line of the process."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()


async def _take(box: Toolbox) -> dict[str, float]:
    taken = asked = 0
    began = time.monotonic()
    while time.monotonic() < began + TAKE_S:
        wait_s = await box.store.limits.take("requests", RATE)
        taken, asked = taken + (not wait_s), asked + 1
        await asyncio.sleep(min(wait_s, 0.005))
    return {"taken": taken, "asked": asked, "began": began, "ended": time.monotonic()}


async def _call(box: Toolbox, calls: int) -> dict[str, int]:
    """Call the API at a constant rate, without waiting for earlier calls; count the outcomes and the retries."""
    running: list[asyncio.Task[Any]] = []
    for _ in range(calls):
        running.append(asyncio.create_task(box.call("api.work")))
        await asyncio.sleep(1 / CALLS_PER_S)
    outcomes = Counter[str]()
    for outcome in await asyncio.gather(*running):
        outcomes[outcome.error.error_code if isinstance(outcome, Failed) else "completed"] += 1
        events = await box.events(run_id=outcome.run_id)
        outcomes["retries"] += sum(event.code is EventCode.CALL_RETRIED for event in events)
    return dict(outcomes)


async def main(role: str, database: str, folder: str) -> None:
    """Open a Toolbox, wait for a line, act, and print the result."""
    api = ExternalToolConfig(name="api", transport="http", connection=f"{folder}/api.json", required=True)
    settings = Settings(data_dir=Path(folder), database=database, sources=[api] if role == "call" else [])
    async with Toolbox(settings=settings) as box:
        print("ready", flush=True)
        arguments = json.loads(await asyncio.to_thread(sys.stdin.readline))
        result = await (_take(box) if role == "take" else _call(box, **arguments))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
