"""The floor of the event log: a queue, a thread and SQLite, with nothing around them."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

BATCH = 1000
_TABLE = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, seq INTEGER NOT NULL, code INTEGER NOT NULL,
    at REAL NOT NULL, call_id TEXT NOT NULL, tenant TEXT NOT NULL, payload TEXT NOT NULL, hash BLOB NOT NULL,
    UNIQUE (run_id, seq)
)
"""
_INSERT = "INSERT INTO events (run_id, seq, code, at, call_id, tenant, payload, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class BareEvent(NamedTuple):
    """A row but for its hash; the payload is JSON already, or the document that becomes it."""

    run_id: str
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    payload: str | dict[str, Any]


class BareWriter:
    """Group commit in WAL mode, synced in full: up to 1000 rows a transaction, chained by SHA-256 within each run.

    Not a product: no redaction, no bound on its queue, no answer to a disk that is full.
    """

    def __init__(self, path: Path) -> None:
        self._queue: SimpleQueue[BareEvent | None] = SimpleQueue()
        self.emit = self._queue.put
        self._thread = threading.Thread(target=self._run, args=(path,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what waits and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self, path: Path) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(_TABLE)
        heads: dict[str, bytes] = {}
        ended = False
        while not ended:
            batch = self._take()
            ended = batch[-1] is None
            db.execute("BEGIN IMMEDIATE")
            db.executemany(_INSERT, _chained(heads, [event for event in batch if event is not None]))
            db.execute("COMMIT")
        db.close()

    def _take(self) -> list[BareEvent | None]:
        batch = [self._queue.get()]
        try:
            while batch[-1] is not None and len(batch) < BATCH:
                batch.append(self._queue.get_nowait())
        except Empty:
            pass
        return batch


def _chained(heads: dict[str, bytes], events: Iterable[BareEvent]) -> Iterable[tuple[Any, ...]]:
    for run_id, seq, code, at, call_id, tenant, payload in events:
        text = payload if isinstance(payload, str) else to_json(payload)
        link = f"{run_id}|{seq}|{code}|{at!r}|{call_id}|{tenant}|{text}"
        digest = heads[run_id] = sha256(heads.get(run_id, b"") + link.encode()).digest()
        yield run_id, seq, code, at, call_id, tenant, text, digest
