"""Calls and followers on PostgreSQL: `python -m bench.postgres [--calls N]`.

A durable call is compared with a raw insert of the same rows, in one run: what differs between machines is in both.
The costs of calls and of notifications for the server are those of docs/sizing.md.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, Self

import psutil
import psycopg

from tests.postgres.databases import new_database
from tests.postgres.server import PostgreSQL, running
from toolpost import Completed, Settings, Toolbox, tool
from toolpost.auth.keys import FileCipher
from toolpost.stores.postgres.changes import CHANNEL, PostgresNotifications
from toolpost.stores.postgres.database import Connection, Database, constant
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.testing.stores.samples import call_ref, event

CALLERS = 64
ROUNDS = 3
LISTENERS, NOTIFICATIONS = 16, 1000
GOAL_RATIO, GOAL_LAG_MS = 2.0, 100.0
_COPY = """
CREATE SCHEMA raw;
CREATE TABLE raw.journal (LIKE toolpost.journal INCLUDING ALL);
CREATE TABLE raw.segments (LIKE toolpost.segments INCLUDING ALL);
CREATE TABLE raw.runs (LIKE toolpost.runs INCLUDING ALL);
"""
_JOURNAL = 'call_id, step, run_id, tool_name, tenant, "user", at, owner, call'
_SEGMENTS = 'last_id, run, seq, call_id, "user", tool_name, correlation_id, events, hash, codes, first_at, last_at'
_RUNS = (
    'nr, run_id, tenant, "user", tool_name, status, started_at, updated_at, last_seq, mac, root_call, open_calls, owner'
)


@tool(side_effects="write", destructive=False)
async def work(number: int) -> dict[str, int]:
    """Do nothing that takes time."""
    return {"number": number}


class Cost(NamedTuple):
    """The CPU time of this process and the wall time of one call, in microseconds."""

    cpu_us: float
    wall_us: float


class ServerCost(NamedTuple):
    """The CPU time of all processes of a server, in seconds, and its position in the write-ahead log, in bytes."""

    cpu_s: float
    wal_bytes: int

    @classmethod
    def of(cls, server: PostgreSQL) -> Self:
        pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        whole = psutil.Process(pid)
        times = [process.cpu_times() for process in (whole, *whole.children())]
        # Those of children that have ended, too.
        cpu_s = sum(each.user + each.system for each in times) + times[0].children_user + times[0].children_system
        with psycopg.connect(server.url()) as db:
            ((written,),) = db.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").fetchall()
        return cls(cpu_s, written)


def notify(server: PostgreSQL) -> tuple[float, float]:
    """Return the CPU time of a notification for each process that receives it: of the server, and of that process."""
    spent_s = [_notify(server, listeners) for listeners in (0, LISTENERS)]
    received = NOTIFICATIONS * LISTENERS
    return (spent_s[1][0] - spent_s[0][0]) / received * 1e6, spent_s[1][1] / received * 1e6


def _notify(server: PostgreSQL, listeners: int) -> tuple[float, float]:
    """Send notifications; return the CPU time of the server, and of this process while it receives them."""
    url = server.url()
    with ExitStack() as stack:
        sender = stack.enter_context(Database(url).connect("writer"))
        receiving = [stack.enter_context(Database(url).connect("listener")) for _ in range(listeners)]
        for db in receiving:
            db.execute(f"LISTEN {CHANNEL}")
        before, own_s = ServerCost.of(server), 0.0
        for number in range(NOTIFICATIONS):
            notifications = PostgresNotifications()
            notifications.add_events(number)
            notifications.send(sender)
            began = time.process_time()
            for db in receiving:
                assert [*db.notifies(timeout=30, stop_after=1)]
            own_s += time.process_time() - began
        return ServerCost.of(server).cpu_s - before.cpu_s, own_s


async def calls(count: int, **settings: Any) -> Cost:
    """Let callers call at the same time, each one call after the other."""
    async with Toolbox(tools=[work], settings=Settings(**settings)) as box:

        async def call(repeats: int) -> None:
            for number in range(repeats):
                outcome = await box.call("work", {"number": number})
                assert isinstance(outcome, Completed), outcome

        await asyncio.gather(*(call(5) for _ in range(CALLERS)))  # the first ones import and prepare
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.gather(*(call(count // CALLERS) for _ in range(CALLERS)))
        done = count // CALLERS * CALLERS
        return Cost((time.process_time() - cpu) / done * 1e6, (time.perf_counter() - wall) / done * 1e6)


def insert_raw(url: str, count: int) -> Cost:
    """Insert the rows of these calls again, those of 64 calls with each commit."""
    with closing(Database(url).connect("check")) as db:
        db.execute(_COPY)
        journal = _read(db, "journal", f"{_JOURNAL}, result", count)
        segments = _read(db, "segments", _SEGMENTS, count * 4)
        runs = _read(db, "runs", _RUNS, count)
        a_call = max(1, round(len(segments) / max(1, len(runs))))
        cpu, wall = time.process_time(), time.perf_counter()
        for start in range(0, len(journal), CALLERS):
            with db.pipeline():
                db.execute("BEGIN")
                _insert(db, "journal", _JOURNAL, [row[:-1] for row in journal[start : start + CALLERS]])
                _insert(db, "segments", _SEGMENTS, segments[start * a_call : (start + CALLERS) * a_call])
                _insert(db, "runs", _RUNS, runs[start : start + CALLERS])
                done = [(row[-1], row[0], row[1]) for row in journal[start : start + CALLERS]]
                finish = "UPDATE raw.journal SET result = %s WHERE call_id = %s AND step = %s"
                db.cursor().executemany(finish, done)
                db.execute("COMMIT")
        done_calls = len(journal)
        return Cost((time.process_time() - cpu) / done_calls * 1e6, (time.perf_counter() - wall) / done_calls * 1e6)


def _read(db: Connection, table: str, columns: str, limit: int) -> Sequence[tuple[Any, ...]]:
    return db.execute(constant(f"SELECT {columns} FROM toolpost.{table} LIMIT {limit}")).fetchall()


def _insert(db: Connection, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        marks = ", ".join(["%s"] * len(rows[0]))
        db.cursor().executemany(constant(f"INSERT INTO raw.{table} ({columns}) VALUES ({marks})"), rows)


async def follow(url: str, folder: Path, count: int = 300) -> list[float]:
    """Return how many milliseconds after an event was emitted a follower in another store has read it."""
    cipher = FileCipher(folder / "key")
    writer, follower = (open_postgres_store(url, folder, cipher=cipher) for _ in range(2))
    async with writer, follower:
        lags: list[float] = []
        last = await follower.events.wait(-1, timeout_s=1)

        async def read() -> None:
            after = last
            while len(lags) < count:
                await follower.events.wait(after, timeout_s=5)
                for one in await follower.events.read(after=after):
                    lags.append((time.perf_counter() - one.payload["emitted"]) * 1000)
                    after = one.id

        reading = asyncio.create_task(read())
        for number in range(count):
            writer.events.emit(event(call=call_ref(f"run_{number}"), facts={"emitted": time.perf_counter()}))
            await asyncio.sleep(0.005)
        await reading
        return lags


async def measure(server: PostgreSQL, count: int) -> int:
    ratios: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as place:
            url = new_database(server)
            memory = await calls(count, data_dir=None)
            before = ServerCost.of(server)
            durable = await calls(count, data_dir=Path(place), database=url)
            after, done = ServerCost.of(server), count // CALLERS * CALLERS + 5 * CALLERS
            raw = insert_raw(url, count)
            ratios.append((durable.cpu_us - memory.cpu_us) / raw.cpu_us)
            print(
                f"{CALLERS} callers: PostgreSQL {durable.cpu_us:.0f} us CPU a call ({durable.wall_us:.0f} us wall), "
                f"memory {memory.cpu_us:.0f}, raw insert of the same rows {raw.cpu_us:.0f}: "
                f"({durable.cpu_us:.0f} - {memory.cpu_us:.0f}) / {raw.cpu_us:.0f} = {ratios[-1]:.2f}; "
                f"server {(after.cpu_s - before.cpu_s) / done * 1e6:.0f} us CPU, "
                f"{(after.wal_bytes - before.wal_bytes) / done / 1000:.1f} KB of write-ahead log"
            )
    with tempfile.TemporaryDirectory() as place:
        lags = await follow(new_database(server), Path(place))
    of_server, of_process = notify(server)
    print(f"a notification, for each process that receives it: server {of_server:.0f} us CPU, process {of_process:.0f}")
    p95 = quantiles(lags, n=20)[-1]
    ratio = median(ratios)
    print(f"durable call: {ratio:.2f} times the CPU of a raw insert (goal: at most {GOAL_RATIO:.0f})")
    print(f"follower: lag p50 {median(lags):.1f} ms, p95 {p95:.1f} ms (goal: below {GOAL_LAG_MS:.0f})")
    return int(ratio > GOAL_RATIO or p95 >= GOAL_LAG_MS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=6400)
    parser.add_argument("--postgres-version", type=int, help="the major version, else the newest installed")
    chosen = parser.parse_args()
    with running(chosen.postgres_version) as server:
        return asyncio.run(measure(server, chosen.calls))


if __name__ == "__main__":
    raise SystemExit(main())
