"""State stores as others write them: for the Protocol, and knowing nothing of ours."""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from toolpost.contracts.events import EventCode, RemoteBinding, StoredEvent


class DatabaseState:
    """A store in a database: one table of events, one of bindings, and `planner_pauses (token, payload)`."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("CREATE TABLE IF NOT EXISTS events (trace TEXT, seq INTEGER, event TEXT)")
        self._db.execute("CREATE TABLE IF NOT EXISTS bindings (trace TEXT, binding TEXT)")
        self._db.execute("CREATE TABLE IF NOT EXISTS planner_pauses (token TEXT PRIMARY KEY, payload TEXT)")

    async def save_event(self, event: StoredEvent) -> None:
        await asyncio.sleep(0)
        told = json.dumps({**asdict(event), "payload": dict(event.payload)})
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (event.trace_id, event.seq, told))

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        rows = self._db.execute("SELECT event FROM events WHERE trace = ? ORDER BY seq", (trace_id,)).fetchall()
        return [_event(json.loads(text)) for (text,) in rows]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        self._db.execute("INSERT INTO bindings VALUES (?, ?)", (binding.trace_id, json.dumps(asdict(binding))))

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self._db.execute("INSERT INTO planner_pauses VALUES (?, ?)", (token, json.dumps(payload)))

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        row = self._db.execute("SELECT payload FROM planner_pauses WHERE token = ?", (token,)).fetchone()
        found: dict[str, Any] = json.loads(row[0]) if row else {}
        return found

    def close(self) -> None:
        self._db.close()


class OverwritingState:
    """One that replaces what stands under a token, as a cache does."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.kept[token] = payload

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.kept.get(token, {})


class EventsOnly:
    """One without the optional part, which fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.saved: list[StoredEvent] = []

    async def save_event(self, event: StoredEvent) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("disk full")
        self.saved.append(event)

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        return [event for event in self.saved if event.trace_id == trace_id]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        """Nothing is kept."""


def _event(told: dict[str, Any]) -> StoredEvent:
    return StoredEvent(**{**told, "code": EventCode(told["code"])})
