"""Planner state in our own store, and events in a `StateStore` of others."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec.structs import asdict

from toolpost.contracts.events import EventCode, RemoteBinding, RunEvent, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import EventLog, StateStore
from toolpost.stores.chain import join_ids, plain_link
from toolpost.stores.sealing import RowSealer

if TYPE_CHECKING:  # the store in memory, which shares this module, opens no database
    from toolpost.stores.database import Reader
    from toolpost.stores.writer import Writer

OF_RUNS = ("event", "binding")  # kinds whose key is the run
_EVENT = StoredEvent.__struct_fields__
_ROW = "INTO state (kind, key, item, body, owner, until) VALUES (?, ?, ?, ?, ?, ?)"

_PAGE = 1000
_MOST_TRIES = 100
_log = logging.getLogger("toolpost.stores")


class StateRecord(NamedTuple):
    """Sealed bytes with their owner (`tenant:user`, or none) and their expiry."""

    body: bytes
    owner: str = ""
    until: float | None = None


class StateTable(Protocol):
    """Stores sealed records by kind, key and item."""

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        """Store a record, in place of an earlier one."""
        ...

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        """Store a record unless there is one; return whether it was stored."""
        ...

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        """Return the items and records of a key, ordered by item."""
        ...

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        """Delete all records of these keys."""
        ...


class SealedStateStore:
    """Implements `StateStore` and `PlannerStateStore` on any table.

    A pause is stored under the hash of its token, because the token resumes it. A pause whose payload names its `user`
    is forgotten with that person; one with `expires_at` is pruned after it expired. `owner_id` marks what this process
    has claimed, and `is_alive` says whether the process of another mark still lives.
    """

    def __init__(self, table: StateTable, sealer: RowSealer, *, owner_id: str, is_alive: Callable[[str], bool]) -> None:
        self.owner_id = owner_id
        self.is_alive = is_alive
        self._table = table
        self._sealer = sealer

    async def save_event(self, event: StoredEvent) -> None:
        data = {**{name: getattr(event, name) for name in _EVENT}, "code": int(event.code)}
        await self._put("event", event.trace_id, f"{event.seq:012d}", {**data, "payload": dict(event.payload)})

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        return [_event(data) for data in await self._all("event", trace_id)]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        item = json.dumps([binding.agent_url, binding.task_id])
        await self._put("binding", binding.trace_id, item, asdict(binding))

    async def load_remote_bindings(self, trace_id: str) -> Sequence[RemoteBinding]:
        """Return the remote bindings of a run."""
        return [RemoteBinding(**data) for data in await self._all("binding", trace_id)]

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        key = _fingerprint(token)
        await self._table.put("pause", key, "", self._pause(key, payload))

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        states: list[dict[str, Any]] = await self._all("pause", _fingerprint(token))
        return states[0] if states else {}

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record under a token that has none; True for exactly one caller."""
        key = _fingerprint(token)
        return await self._table.add("pause", key, "", self._pause(key, payload))

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        """Delete the records of these tokens."""
        await self._table.delete("pause", [_fingerprint(token) for token in tokens])

    def _pause(self, key: str, payload: dict[str, Any]) -> StateRecord:
        user, until = payload.get("user"), payload.get("expires_at")
        body = self._sealer.seal(payload, "state", "pause", key, "")
        return StateRecord(body, _owner(user), until if isinstance(until, (int, float)) else None)

    async def _put(self, kind: str, key: str, item: str, value: Any) -> None:
        await self._table.put(kind, key, item, StateRecord(self._sealer.seal(value, "state", kind, key, item)))

    async def _all(self, kind: str, key: str) -> list[Any]:
        rows = await self._table.all(kind, key)
        return [self._sealer.open(body, "state", kind, key, item) for item, body in rows]


class SQLiteStateTable:
    """State records in SQLite."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        sql = f"INSERT OR REPLACE {_ROW}"
        await self._writer.submit(lambda db: db.execute(sql, (kind, key, item, *record)).close())

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        sql = f"INSERT OR IGNORE {_ROW}"
        return await self._writer.submit(lambda db: db.execute(sql, (kind, key, item, *record)).rowcount) == 1

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        sql = "SELECT item, body FROM state WHERE kind = ? AND key = ? ORDER BY item"
        return await self._reader.query(lambda db: db.execute(sql, (kind, key)).fetchall())

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        sql = "DELETE FROM state WHERE kind = ? AND key IN (SELECT value FROM json_each(?))"
        await self._writer.submit(lambda db: db.execute(sql, (kind, json.dumps(keys))).close())


class MemoryStateTable:
    """State records in a dict."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], dict[str, StateRecord]] = {}

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        self._records.setdefault((kind, key), {})[item] = record

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        return self._records.setdefault((kind, key), {}).setdefault(item, record) is record

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        return sorted((item, record.body) for item, record in self._records.get((kind, key), {}).items())

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._records.pop((kind, key), None)

    def remove(self, *, runs: Collection[str] = (), owner: str = "", before: float = float("-inf")) -> int:
        """Delete the records of these runs or of this owner, or that expired before a time; return how many."""
        doomed = [
            name
            for name, records in self._records.items()
            if (name[0] in OF_RUNS and name[1] in runs)
            or any((owner and each.owner == owner) or _is_over(each, before) for each in records.values())
        ]
        return sum(len(self._records.pop(name)) for name in doomed)


def _is_over(record: StateRecord, before: float) -> bool:
    return record.until is not None and record.until < before


def _event(data: dict[str, Any]) -> StoredEvent:
    values: dict[str, Any] = {**data, "code": EventCode(data["code"])}
    return StoredEvent(**values)


def _owner(user: object) -> str:
    """Return a user as `tenant:user`; empty when it is not a valid user."""
    try:
        return str(Principal.parse(user)) if isinstance(user, str) else ""
    except ValueError:
        return ""


def _fingerprint(token: str) -> str:
    return sha256(token.encode()).hexdigest()


class StatefulStore(Protocol):
    """The parts of a store that planner state needs."""

    @property
    def events(self) -> EventLog:
        """The event log."""
        ...

    @property
    def state(self) -> SealedStateStore:
        """The planner state."""
        ...


class StoreState:
    """Implements `StateStore` and `PlannerStateStore` with a Toolbox's own store: durable, and sealed.

    The history of a run is its events in the log, and those that were saved beside them.
    """

    def __init__(self, store: StatefulStore) -> None:
        self._store = store

    async def save_event(self, event: StoredEvent) -> None:
        """Save one event."""
        await self._store.state.save_event(event)

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        """Return a run's events in order."""
        saved = {event.seq: event for event in await self._store.state.load_history(trace_id)}
        logged = {event.seq: event for event in await self._logged_events(trace_id)}
        return [event for _, event in sorted({**saved, **logged}.items())]

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        """Save a remote binding of a run."""
        await self._store.state.save_remote_binding(binding)

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        """Store a pause under its token."""
        await self._store.state.save_planner_state(token, payload)

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        """Return a pause by its token; {} when there is none."""
        return await self._store.state.load_planner_state(token)

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record under a token that has none; True for exactly one caller."""
        return await self._store.state.claim_planner_state(token, payload)

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        """Delete the records of these tokens."""
        await self._store.state.drop_planner_states(tokens)

    @property
    def owner_id(self) -> str:
        """What this process marks its claims with."""
        return self._store.state.owner_id

    def is_alive(self, owner_id: str) -> bool:
        """Return whether the process that claimed with this mark still lives."""
        return self._store.state.is_alive(owner_id)

    async def _logged_events(self, run_id: str) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while page := await self._store.events.read(run_id=run_id, after=events[-1].id if events else 0, limit=_PAGE):
            events += page
        return events


class _Head(NamedTuple):
    """Number and link of the last event of a run."""

    seq: int = 0
    hash: bytes = b""


class StateEvents:
    """Event sink that saves events in a state store, in order, numbered and chained by run.

    Saves in the background; `flush` and `close` wait for it. Events that cannot be saved, or exceed `most_waiting`,
    count as `lost`. Several processes may emit events of one run if the store raises for a number that is taken.
    """

    def __init__(self, store: StateStore, *, most_waiting: int = 10_000, most_runs: int = 1000) -> None:
        self.lost = 0
        self._store = store
        self._most_waiting = most_waiting
        self._most_runs = most_runs
        self._waiting: deque[RunEvent] = deque()
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def emit(self, event: RunEvent) -> None:
        """Queue one event; from any thread, once one was queued from an event loop."""
        if len(self._waiting) >= self._most_waiting:
            self.lost += 1
            return
        self._waiting.append(event)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # plain functions report their progress from a thread
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._start)
        else:
            self._start()

    def _start(self) -> None:
        """Save what waits, in the background; nothing where that is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._save_all())

    async def flush(self) -> None:
        """Wait until all events emitted so far are saved, or lost."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def close(self) -> None:
        """Save the queued events."""
        await self.flush()

    async def _save_all(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            try:
                await self._save(event)
            except Exception:  # noqa: BLE001 - foreign code; the other events may still be saved
                self.lost += 1
                _log.exception("the state store could not save %s", event.code.name)

    async def _save(self, event: RunEvent) -> None:
        run_id = event.call.run_id
        head = self._heads.pop(run_id, None) or await self._head(run_id)
        stored = _chained(event, head)
        for _ in range(_MOST_TRIES):
            if await self._is_saved(stored):
                break
            stored = _chained(event, await self._head(run_id))
        else:
            raise TimeoutError(f"others tell of run {run_id!r} faster than this process can")
        self._heads[run_id] = _Head(stored.seq, bytes.fromhex(stored.hash))
        if len(self._heads) > self._most_runs:
            self._heads.popitem(last=False)

    async def _is_saved(self, stored: StoredEvent) -> bool:
        """Save an event; return False when another process has taken its number."""
        try:
            await self._store.save_event(stored)
        except Exception:
            history = await self._store.load_history(stored.run_id)
            standing = next((event for event in history if event.seq == stored.seq), None)
            if standing is None:
                raise
            return standing.hash == stored.hash  # it was saved, and only the answer was lost
        return True

    async def _head(self, run_id: str) -> _Head:
        """Load the head of a run, which another process may have advanced."""
        history = await self._store.load_history(run_id)
        return _Head(history[-1].seq, bytes.fromhex(history[-1].hash)) if history else _Head()


def _chained(event: RunEvent, head: _Head) -> StoredEvent:
    """Build the stored event that follows a head."""
    call, payload, seq = event.call, event.payload, head.seq + 1
    digest = plain_link(
        head.hash,
        join_ids(call.run_id, call.call_id, call.tenant),
        seq=seq,
        code=int(event.code),
        at=event.at,
        payload=json.dumps(payload),
    )
    return StoredEvent(
        id=seq,
        run_id=call.run_id,
        seq=seq,
        code=event.code,
        at=event.at,
        call_id=call.call_id,
        tenant=call.tenant,
        payload=payload,
        hash=digest.hex(),
        user=call.user,
    )
