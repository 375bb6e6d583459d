"""The contenders of the event figure: our log and the bare writer, each on a fresh database in every turn."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from bench.core.bare_writer import BareEvent, BareWriter, to_json
from bench.core.harness import Stopwatch, Turn, undisturbed
from bench.core.subject import ARGUMENTS, add3
from toolpost.auth.keys import FileCipher
from toolpost.catalog.function import tool
from toolpost.configuration.settings import Settings
from toolpost.contracts.events import RunEvent
from toolpost.stores.sqlite.database import DATABASE
from toolpost.stores.sqlite.store import open_sqlite_store
from toolpost.toolbox.box import Toolbox

OURS = "event log"
BARE = "bare writer"
BARE_TEXT = "bare writer, given the text"
QUEUE_LIMIT = 50_000

Call = Sequence[RunEvent]


class Recorder:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def emit(self, event: RunEvent) -> None:
        self.events.append(event)


async def events_of_a_call() -> Call:
    """What a real call tells, from the real pipeline."""
    recorder = Recorder()
    subject = tool(side_effects="pure")(add3)
    async with Toolbox(tools=[subject], settings=Settings(data_dir=None), sinks=[recorder]) as box:
        await box.call("add3", ARGUMENTS)
    return recorder.events


def repeated(call: Call, events: int) -> list[Call]:
    """As many events as asked for, rounded up to whole calls, each call with ids of its own."""
    return [_renamed(call, number) for number in range(-(-events // len(call)))]


def _renamed(call: Call, number: int) -> Call:
    ref = replace(call[0].call, run_id=f"run_bench_{number:010}", call_id=f"call_bench_{number:010}")
    return [replace(event, call=ref) for event in call]


class LogFacts(NamedTuple):
    """What a turn of our log left behind."""

    emitted: int
    stored: int
    peak_waiting: int


class LogTrack:
    """Our log: callers check for congestion once a call, as the router does; a turn ends when all is durable."""

    names = (OURS,)

    def __init__(self, call: Call) -> None:
        self._call = call
        self.facts: list[LogFacts] = []

    async def turn(self, name: str, calls: int) -> Turn:
        batches = repeated(self._call, calls)
        with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
            home = Path(folder)
            store = open_sqlite_store(home, cipher=FileCipher(home / "key"), queue_limit=QUEUE_LIMIT)
            async with store:
                turn = await self._fill(batches, store.events, home / DATABASE)
        return turn

    async def _fill(self, batches: Sequence[Call], log: Any, path: Path) -> Turn:
        times: list[int] = []
        emit, now, peak = log.emit, time.perf_counter_ns, 0
        with undisturbed(), Stopwatch() as watch:
            for batch in batches:
                if log.congested:
                    peak = max(peak, len(times) - stored_rows(path))
                    await log.drain()
                for event in batch:
                    began = now()
                    emit(event)
                    times.append(now() - began)
            peak = max(peak, len(times) - stored_rows(path))
            await log.flush()
        self.facts.append(LogFacts(len(times), stored_rows(path), peak))
        return watch.turn(len(times), times)


def stored_rows(path: Path) -> int:
    """How many events are durable; ids have no gaps."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT coalesce(max(last_id), 0) FROM segments").fetchone()[0])


class BareTrack:
    """The bare writer, with JSON to make as our log has, and with the text given."""

    names = (BARE, BARE_TEXT)

    def __init__(self, call: Call) -> None:
        self._call = call

    async def turn(self, name: str, calls: int) -> Turn:
        events = _bare(repeated(self._call, calls), as_text=name == BARE_TEXT)
        times: list[int] = []
        now = time.perf_counter_ns
        with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
            writer = BareWriter(Path(folder) / "bare.db")
            with undisturbed(), Stopwatch() as watch:
                for event in events:
                    began = now()
                    writer.emit(event)
                    times.append(now() - began)
                writer.close()
        return watch.turn(len(times), times)


def _bare(calls: Sequence[Call], *, as_text: bool) -> list[BareEvent]:
    return [_bare_event(event, seq, as_text=as_text) for call in calls for seq, event in enumerate(call, 1)]


def _bare_event(event: RunEvent, seq: int, *, as_text: bool) -> BareEvent:
    call, payload = event.call, event.payload
    shown = to_json(payload) if as_text else payload
    return BareEvent(call.run_id, seq, int(event.code), event.at, call.call_id, call.tenant, shown)
