"""A PostgreSQL server that is killed again and again, under calls that wait and calls that run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.core.figures import Target
from bench.replicas.crew import Member
from bench.replicas.effects import Ledger, open_box

WORKERS, CLICKERS = 2, 2


def measure(
    database: str, kill: Callable[[], None], folder: Path, *, paused: int, running: int, kills: int, every_s: float
) -> list[Target]:
    """Kill the server while calls run, others are approved, and a follower reads; compare what came of all of them."""
    with Member("ask", database, folder) as asking:
        ids: list[str] = list(asking.run(first=0, count=paused)["ids"].values())
    with ExitStack() as stack:
        follower, *others = [
            stack.enter_context(Member(role, database, folder, duration_s=0.5))
            for role in ("follow", *["work"] * WORKERS, *["click"] * CLICKERS)
        ]
        workers, clickers = others[:WORKERS], others[WORKERS:]
        for member in (follower, *others):
            member.await_ready()
        follower.go()
        for number, member in enumerate(workers):
            member.go(name=f"r{number}", running=running // WORKERS)
        for number, member in enumerate(clickers):
            member.go(ids=ids, seed=number, pause_s=kills * every_s / (paused * 2))
        for _ in range(kills):
            time.sleep(every_s)
            kill()
        (folder / "stop").touch()
        results: dict[str, str] = {}
        for member in workers:
            results.update(member.result()["results"])
        answers = Counter[str]()
        for member in clickers:
            answers.update(member.result())
        (folder / "followed").touch()
        seen = follower.result()["seen"]
    print(f"{kills} kills; {len(results)} calls: {dict(Counter(results.values()))}; clicks: {dict(answers)}")
    return [*_of_effects(folder, results, paused), *asyncio.run(_of_events(database, folder, seen))]


def _of_effects(folder: Path, results: dict[str, str], paused: int) -> list[Target]:
    effects = Ledger(folder / "effects").count()
    wiped = Counter(key for (name, key), count in effects.items() for _ in range(count) if name == "wipe")
    ran = Counter[str]()
    for (name, key), count in effects.items():
        ran[f"{name} {key.split(' ')[0]}"] += 1 if name == "charge" else count
    lost = [call for call, result in results.items() if result == "completed" and not ran[call]]
    doubled = [call for call in ran if call.startswith(("send", "charge")) and ran[call] > 1]
    unfinished = [call for call, result in results.items() if result not in ("completed", "unknown")]
    for call in (*lost, *doubled, *unfinished)[:10]:
        print(f"  {call}: {results.get(call)}, {ran[call]} effects")
    return [
        Target("approved calls that ran", len(wiped), "at least", paused),
        Target("runs of approved calls", wiped.total(), "at most", paused),
        Target("calls that are lost", len(lost), "at most", 0),
        Target("effects that are doubled", len(doubled), "at most", 0),
        Target("calls without an outcome", len(unfinished), "at most", 0),
    ]


async def _of_events(database: str, folder: Path, seen: list[list[Any]]) -> list[Target]:
    """Compare what the follower saw with the whole log, and verify the log."""
    stored, position = set[tuple[int, str, int]](), 0
    async with open_box(database, folder) as box:
        while events := await box.store.events.read(after=position):
            position = events[-1].id
            stored |= {(event.id, event.run_id, event.seq) for event in events}
        signs = await box.store.events.verify()
    seen_once = {(id_, run_id, seq) for id_, run_id, seq in seen}
    newest = max((id_ for id_, *_ in seen_once), default=0)
    missed = {event for event in stored if event[0] <= newest} - seen_once
    print(f"{len(stored)} events; verify: {signs}")
    return [
        Target("events that the follower missed", len(missed), "at most", 0),
        Target("events that the follower saw twice", len(seen) - len(seen_once), "at most", 0),
    ]
