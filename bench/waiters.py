"""The CPU of many waiters: callers that wait for the answers to their questions, as a share of one core.

Run: python -m bench.waiters [WAITERS] [SECONDS]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from toolpost import Settings, Toolbox, tool

USER = "acme:ann"


@tool(side_effects="write", destructive=True)
async def wipe(disk: int) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"


async def main(waiters: int, seconds: float) -> None:
    """Print the CPU of waiters on each store, and how long an answer takes to reach one of them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data_dir in (("memory", None), ("SQLite", Path(folder))):
            async with Toolbox(tools=[wipe], settings=Settings(data_dir=data_dir)) as box:
                paused = [await box.call("wipe", {"disk": disk}, user=USER) for disk in range(waiters)]
                ids = [str(getattr(one, "pending_id", "")) for one in paused]
                tasks = [asyncio.create_task(box.pending.outcome(id_, by=USER, wait_s=600)) for id_ in ids]
                await asyncio.sleep(1)
                cpu, wall = time.process_time(), time.perf_counter()
                await asyncio.sleep(seconds)
                share = (time.process_time() - cpu) / (time.perf_counter() - wall)
                answered = time.perf_counter()
                await box.pending.approve(ids[0], by=USER)
                done = time.perf_counter()
                await tasks[0]
                late = time.perf_counter() - done
                for task in tasks[1:]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            print(f"{name}: {waiters} waiters use {share:.1%} of a core")
            print(f"  answered in {(done - answered) * 1000:.1f} ms, known to the waiter {late * 1000:.1f} ms later")


if __name__ == "__main__":
    sizes = [float(argument) for argument in sys.argv[1:]]
    asyncio.run(main(int(sizes[0]) if sizes else 400, sizes[1] if len(sizes) > 1 else 5.0))
