"""Planner state: events, remote bindings and pauses, in our own store or in a `StateStore` of others."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, runtime_checkable

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import EventCode, RemoteBinding, RunEvent, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import EventLog, PlannerStateStore, StateStore
from toolpost.schema.secrets import drop_secrets
from toolpost.stores.chain import join_ids, plain_link
from toolpost.stores.database import Reader
from toolpost.stores.sealing import RowSealer
from toolpost.stores.writer import Writer

OF_RUNS = ("event", "binding")  # kinds whose key is the run
_EVENT = tuple(field.name for field in fields(StoredEvent))
_ROW = "INTO state (kind, key, item, body, owner, until) VALUES (?, ?, ?, ?, ?, ?)"

_PAGE = 1000
_MOST_TRIES = 100
_UNKNOWN = "no pause has this token: it is unknown, expired, or was kept by a process that is gone"
_RESUMED = "this pause was resumed before"
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


class SealedStateStore:
    """Implements `StateStore` and `PlannerStateStore` on any table.

    A pause is stored under the hash of its token, because the token resumes it. A pause whose payload names its `user`
    is forgotten with that person; one with `expires_at` is pruned after it expired.
    """

    def __init__(self, table: StateTable, sealer: RowSealer) -> None:
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
        found: list[dict[str, Any]] = await self._all("pause", _fingerprint(token))
        return found[0] if found else {}

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record under a token that has none; True for exactly one caller."""
        key = _fingerprint(token)
        return await self._table.add("pause", key, "", self._pause(key, payload))

    def _pause(self, key: str, payload: dict[str, Any]) -> StateRecord:
        user, until = payload.get("user"), payload.get("expires_at")
        body = self._sealer.seal(payload, "state", "pause", key, "")
        return StateRecord(body, _owner(user), until if isinstance(until, (int, float)) else None)

    async def _put(self, kind: str, key: str, item: str, value: Any) -> None:
        await self._table.put(kind, key, item, StateRecord(self._sealer.seal(value, "state", kind, key, item)))

    async def _all(self, kind: str, key: str) -> list[Any]:
        found = await self._table.all(kind, key)
        return [self._sealer.open(body, "state", kind, key, item) for item, body in found]


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

    async def _logged_events(self, run_id: str) -> list[StoredEvent]:
        found: list[StoredEvent] = []
        while page := await self._store.events.read(run_id=run_id, after=found[-1].id if found else 0, limit=_PAGE):
            found += page
        return found


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
        self._task: asyncio.Task[None] | None = None

    def emit(self, event: RunEvent) -> None:
        """Queue one event."""
        if len(self._waiting) >= self._most_waiting:
            self.lost += 1
            return
        self._waiting.append(event)
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
    )


@runtime_checkable
class _KeepsPauses(PlannerStateStore, Protocol):
    """A state store with the optional methods."""


@runtime_checkable
class _KeepsClaims(Protocol):
    """A state store with an atomic claim, such as our own."""

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record under a token that has none; True for exactly one caller."""
        ...


class PlannerPauses:
    """Stores pauses in any state store; each is resumed once by its token.

    Without the optional methods of the store, pauses are gone with the process: `durable` is False. The Protocol has no
    removal, so a resumed pause is marked by a second record. A store with `claim_planner_state` lets exactly one
    process set the mark, and the pause is then emptied; with other stores that is as certain as their writes of one
    token are ordered.
    """

    def __init__(
        self, store: object = None, *, ttl_s: float | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.durable = isinstance(store, _KeepsPauses)
        self._store: PlannerStateStore = store if isinstance(store, _KeepsPauses) else _MemoryPauses()
        self._ttl_s = ttl_s
        self._clock = clock

    async def keep(self, payload: Mapping[str, Any]) -> str:
        """Store a pause without the secrets of its `tool_context`; return the token that resumes it, a secret."""
        token = secrets.token_urlsafe(32)
        await self._save(token, payload)
        return token

    async def keep_again(self, token: str, payload: Mapping[str, Any]) -> None:
        """Store a pause again after a failed resumption; its token, used before, resumes it again."""
        name = token
        while resumed := await self._store.load_planner_state(_resumed_name(name)):
            if isinstance(self._store, _KeepsClaims):  # the way to the pause must last as long as the pause
                await self._store.save_planner_state(_resumed_name(name), {**resumed, **self._lasting(payload)})
            name = _retry_name(name)
        await self._save(name, payload)

    async def take(self, token: str, *, user: str | None = None) -> dict[str, Any]:
        """Return the pause of a token to exactly one caller; KeyError when there is none, or it was resumed before.

        With `user`, a pause of another `user` is not returned, and its token stays valid.
        """
        name = await self._latest(token)
        kept = await self._store.load_planner_state(name) if token else {}
        expires_at = kept.get("expires_at")
        if "payload" not in kept or (expires_at is not None and expires_at <= self._clock()):
            raise KeyError(_RESUMED if name != token or "resumed" in kept else _UNKNOWN)
        payload: dict[str, Any] = kept["payload"]
        if user is not None and payload.get("user") != user:
            raise KeyError("no pause of this user has this token")
        lasting = {key: kept.get(key) for key in ("user", "expires_at")}
        if not await self._is_first(_resumed_name(name), lasting):
            raise KeyError(_RESUMED)
        if isinstance(self._store, _KeepsClaims):  # only of these is it known that they replace what stands there
            with suppress(StoreError):  # it is taken already
                await self._store.save_planner_state(name, {"resumed": True, **lasting})
        return payload

    async def _save(self, name: str, payload: Mapping[str, Any]) -> None:
        kept = (
            {**payload, "tool_context": drop_secrets(payload["tool_context"])} if "tool_context" in payload else payload
        )
        await self._store.save_planner_state(name, {"payload": dict(kept), **self._lasting(payload)})

    def _lasting(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return user and expiry of a pause, by which a store may delete it."""
        expires_at = None if self._ttl_s is None else self._clock() + self._ttl_s
        return {"user": payload.get("user"), "expires_at": expires_at}

    async def _latest(self, token: str) -> str:
        """Return the name under which the pause of a token is stored, or would be stored next."""
        while await self._store.load_planner_state(_resumed_name(token)):
            token = _retry_name(token)
        return token

    async def _is_first(self, ticket: str, lasting: Mapping[str, Any]) -> bool:
        if await self._store.load_planner_state(ticket):
            return False
        mine = secrets.token_hex(8)
        if isinstance(self._store, _KeepsClaims):
            return await self._store.claim_planner_state(ticket, {"by": mine, **lasting})
        try:
            await self._store.save_planner_state(ticket, {"by": mine, **lasting})
        except Exception:
            # Somebody else wrote it first, and the store minds; or it was written, and only the answer was lost.
            if not await self._store.load_planner_state(ticket):
                raise
        return (await self._store.load_planner_state(ticket)).get("by") == mine


class _MemoryPauses:
    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        self._kept[token] = payload

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        return self._kept.get(token, {})

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        return self._kept.setdefault(token, payload) is payload


def _resumed_name(token: str) -> str:
    """Return the name of the record that marks a pause as resumed; it is no token."""
    return f"resumed-{sha256(token.encode()).hexdigest()}"


def _retry_name(token: str) -> str:
    """Return the name of a pause that was stored again after a failed resumption."""
    return f"again-{sha256(token.encode()).hexdigest()}"
