"""How long filtered pages of events and runs take in a long log: `python -m bench.event_filters --events 1000000`.

Each run is three events of a call. Three runs each are of a rare user, of a rare tool, of a rare tenant, and failures.
They are spread over the log. The rest is of one tenant, twenty users and fifty tools.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from toolpost.auth.keys import FileCipher
from toolpost.contracts.events import CallRef, EventCode, EventFilter, RunEvent, RunFilter
from toolpost.contracts.storage import Store
from toolpost.stores.sqlite.database import DATABASE
from toolpost.stores.sqlite.store import open_sqlite_store

_REQUESTED, _STARTED = EventCode.TOOL_CALL_REQUESTED, EventCode.TOOL_CALL_STARTED
_COMPLETED, _FAILED = EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED
_BEGAN = 1_700_000_000.0
_ARGUMENTS = {"owner": "someone", "repository": "something", "title": "A title of an issue", "labels": ["bug", "ui"]}
_TENANT = "local"


async def _fill(store: Store, runs: int) -> None:
    rare = {round((share + 0.5) * runs / 12): share // 3 for share in range(12)}
    for number in range(runs):
        kind = rare.get(number)
        call = CallRef(
            f"run_{number:012}",
            f"call_{number:012}",
            "rare.tool" if kind == 0 else f"source{number % 5}.tool{number % 50}",
            "rare" if kind == 1 else _TENANT,
            "rare" if kind == 2 else f"user{number % 20}",
            f"call_{number:012}",
            dict,
        )
        at = _BEGAN + number
        store.events.emit(RunEvent(_REQUESTED, at, call, {"params": _ARGUMENTS, "caller": "key:abc"}))
        store.events.emit(RunEvent(_STARTED, at + 0.001, call, {"input": _ARGUMENTS, "checks_ms": 0.1}))
        if kind == 3:
            store.events.emit(RunEvent(_FAILED, at + 0.1, call, {"error_code": "timeout", "duration_ms": 99.0}))
        else:
            store.events.emit(RunEvent(_COMPLETED, at + 0.1, call, {"summary": "x" * 200, "duration_ms": 99.0}))
        if number % 5000 == 0:
            await store.events.flush()
    await store.events.flush()


async def _measure(store: Store, runs: int) -> None:
    end, hour = _BEGAN + runs, 3600.0
    filters: dict[str, tuple[EventFilter, dict[str, Any]]] = {
        "no filter": (EventFilter(), {}),
        "a rare type": (EventFilter(codes=frozenset({_FAILED})), {}),
        "a rare tool": (EventFilter(tool="rare.tool"), {}),
        "a pattern of a rare tool": (EventFilter(tool="rare.*"), {}),
        "a rare user": (EventFilter(user="rare"), {}),
        "a rare tenant": (EventFilter(), {"tenant": "rare"}),
        "a type that never occurred": (EventFilter(codes=frozenset({EventCode.DEFINITION_CHANGED})), {}),
        "a frequent user": (EventFilter(user="user3"), {}),
        "an hour at the begin": (EventFilter(since=_BEGAN, until=_BEGAN + hour), {}),
        "the last minute": (EventFilter(since=end - 60), {}),
        "a page in the middle": (EventFilter(), {"before": runs * 3 // 2}),
        "user and type, both frequent": (EventFilter(user="user3", codes=frozenset({_COMPLETED})), {}),
    }
    for name, (only, more) in filters.items():
        await _show(
            f"events, {name}", store.events.read, only=only, newest=True, limit=100, **{"tenant": _TENANT, **more}
        )
    for name, of_runs in {
        "no filter": RunFilter(),
        "failed": RunFilter(status="failed"),
        "a rare tool": RunFilter(tool="rare.tool"),
        "a source": RunFilter(source="rare"),
        "a rare user": RunFilter(user="rare"),
        "an hour at the begin": RunFilter(since=_BEGAN, until=_BEGAN + hour),
        "a text": RunFilter(q="rare"),
    }.items():
        await _show(f"runs, {name}", store.events.runs, tenant=_TENANT, only=of_runs, limit=50)
        await _show(f"runs, {name}, total", store.events.count_runs, tenant=_TENANT, only=of_runs)
    runs_of_page = await store.events.runs(tenant=_TENANT, limit=50)
    await _show("details of 50 runs", store.events.run_details, runs_of_page)


async def _show(name: str, method: Any, *values: Any, **options: Any) -> None:
    times: list[float] = []
    found: Any = 0
    for _ in range(5):
        began = time.perf_counter()
        found = await method(*values, **options)
        times.append((time.perf_counter() - began) * 1000)
    count = found if isinstance(found, int) else len(found)
    print(f"{name:44} {count:9} found {times[0]:9.1f} ms first {statistics.median(times):9.1f} ms median")


async def _main(events: int) -> None:
    runs = events // 3
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with open_sqlite_store(home, cipher=FileCipher(home / "key"), queue_limit=100_000) as store:
            began = time.perf_counter()
            await _fill(store, runs)
            megabytes = (home / DATABASE).stat().st_size / 1e6
            print(f"{runs * 3} events written in {time.perf_counter() - began:.1f} s, {megabytes:.0f} MB")
        async with open_sqlite_store(home, cipher=FileCipher(home / "key")) as store:
            await _measure(store, runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the time of filtered pages of events and runs.")
    parser.add_argument("--events", type=int, default=1_000_000)
    asyncio.run(_main(parser.parse_args().events))
