"""One process of a measurement. Run by the others: python -m bench.replicas.process ROLE DATABASE FOLDER DURATION."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.replicas.effects import USER, open_box
from toolpost import Completed, Paused, Toolbox, ToolError

_RETRY_S = 0.1
_TOOLS = ("send", "put", "charge")
_REPEATED = ("store_unavailable", "key_in_use")


async def ask(box: Toolbox, _: Path, *, first: int, count: int, at_once: int = 64) -> dict[str, Any]:
    """Make calls that wait for an approval; return the ids of their pending actions by key."""
    gate, ids = asyncio.Semaphore(at_once), dict[str, str]()

    async def one(key: str) -> None:
        async with gate:
            outcome = await _until_known(box, "wipe", key)
            if isinstance(outcome, Paused):
                ids[key] = outcome.pending_id

    await asyncio.gather(*(one(f"w{number}") for number in range(first, first + count)))
    return {"ids": ids}


async def click(
    box: Toolbox, _: Path, *, ids: list[str], seed: int, pause_s: float = 0.0, at_once: int = 32
) -> dict[str, Any]:
    """Approve each pending action twice concurrently, in an order of this process; count what the clicks return."""
    random.Random(seed).shuffle(ids)
    answers = Counter[str]()
    for start in range(0, len(ids), at_once):
        clicked = [id_ for id_ in ids[start : start + at_once] for _ in range(2)]
        answers.update(await asyncio.gather(*(_approve(box, id_) for id_ in clicked)))
        await asyncio.sleep(pause_s * at_once)
    return dict(answers)


async def work(box: Toolbox, folder: Path, *, name: str, running: int) -> dict[str, Any]:
    """Keep calls running until the file `stop` exists; then wait for all of them, and return what came of each key."""
    results: dict[str, str] = {}

    async def one(lane: int) -> None:
        number = 0
        while not (folder / "stop").exists():
            tool_name, key = _TOOLS[(lane + number) % len(_TOOLS)], f"{name}.{lane}.{number}"
            number += 1
            outcome = await _until_known(box, tool_name, key)
            if isinstance(outcome, Paused):
                results[f"{tool_name} {key}"] = outcome.question.kind
            else:
                results[f"{tool_name} {key}"] = outcome.status if outcome else "lost"

    await asyncio.gather(*(one(lane) for lane in range(running)))
    return {"results": results}


async def follow(box: Toolbox, folder: Path) -> dict[str, Any]:
    """Read all events as a follower, until the file `followed` exists and no event is left; return their positions."""
    position, seen = 0, list[tuple[int, str, int]]()
    while True:
        is_last = (folder / "followed").exists()
        try:
            await box.store.events.wait(position, timeout_s=0.5)
            events = await box.store.events.read(after=position)
        except ToolError:
            await asyncio.sleep(_RETRY_S)
            continue
        seen += [(event.id, event.run_id, event.seq) for event in events]
        if events:
            position = events[-1].id
        elif is_last:
            return {"seen": seen}


async def _until_known(box: Toolbox, name: str, key: str) -> Any:
    """Call as a client does that repeats the same call, with its key, until it knows the outcome."""
    while True:
        outcome = await box.call(name, {"key": key}, user=USER, idempotency_key=key)
        if isinstance(outcome, Completed | Paused):
            return outcome
        if not outcome.error.is_retryable and outcome.error.error_code not in _REPEATED:
            print(f"{name} {key}: {outcome.error.error_code}: {outcome.error}", file=sys.stderr)
            return outcome
        await asyncio.sleep(_RETRY_S)


async def _approve(box: Toolbox, pending_id: str) -> str:
    while True:
        try:
            outcome = await box.approve(pending_id, by=USER)
        except ToolError as error:
            if error.error_code == "store_unavailable":
                await asyncio.sleep(_RETRY_S)
                continue
            return error.error_code
        if isinstance(outcome, Completed):
            return "completed"
        if isinstance(outcome, Paused) or outcome.error.error_code != "store_unavailable":
            return "paused" if isinstance(outcome, Paused) else outcome.error.error_code
        await asyncio.sleep(_RETRY_S)


ROLES: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "ask": ask,
    "click": click,
    "work": work,
    "follow": follow,
}


async def main(role: str, database: str, folder: Path, *, duration_s: float) -> None:
    """Open the database, print `ready`, run the role with the arguments of a line of JSON, and print its result."""
    async with open_box(database, folder, duration_s=duration_s) as box:
        print("ready", flush=True)
        arguments: dict[str, Any] = json.loads(await asyncio.to_thread(sys.stdin.readline))
        result = await ROLES[role](box, folder, **arguments)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), duration_s=float(sys.argv[4])))
