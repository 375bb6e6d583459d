"""Records of calls in PostgreSQL: the journal, idempotency keys and requests to cancel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from toolpost.contracts.errors import TakenOverError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import CancelRequest, IdempotencyRecord, JournalEntry
from toolpost.stores.call_rows import JOURNAL, KEY, read_cancels, read_entries, read_entry, read_key
from toolpost.stores.postgres.context import PostgresContext
from toolpost.stores.postgres.database import Connection, constant
from toolpost.stores.topics import CANCELS
from toolpost.stores.writer import StatementKind

Key = TypeVar("Key")
Name: TypeAlias = tuple[str, ...]  # the columns that a value is encrypted to
REMEMBERED = 10_000  # calls that have not ended

_BEGIN = StatementKind(
    """
    INSERT INTO journal (call_id, step, run_id, tool_name, tenant, "user", at, owner, call)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (call_id, step) DO UPDATE SET run_id = excluded.run_id, tool_name = excluded.tool_name,
        tenant = excluded.tenant, "user" = excluded."user", at = excluded.at, owner = excluded.owner,
        call = excluded.call, result = NULL
    """,
    row=itemgetter(0, 1),
)
_FINISH = StatementKind(
    "UPDATE journal SET result = %s WHERE call_id = %s AND step = %s AND owner = %s RETURNING 1",
    row=itemgetter(1, 2),
    read=len,
)
_FORGET = StatementKind("DELETE FROM journal WHERE call_id = %s AND step = %s AND owner = %s", row=itemgetter(0, 1))
_NAME_OF_INTENT = """
SELECT tenant, "user", call_id, step, run_id, tool_name FROM journal WHERE call_id = %s AND step = %s
"""
_FIND = f"SELECT {JOURNAL} FROM journal WHERE call_id = %s AND step = %s"  # noqa: S608 - constants, here and below
_INNER = f"SELECT {JOURNAL} FROM journal WHERE call_id > %s AND call_id < %s AND step = '' ORDER BY at, nr"  # noqa: S608
_OWNERS_OF_INTENTS = "SELECT DISTINCT owner FROM journal WHERE result IS NULL AND step = ''"
_ADOPT = f"""
UPDATE journal SET owner = %s WHERE owner = ANY(%s) AND result IS NULL AND step = '' RETURNING {JOURNAL}
"""  # noqa: S608
_RESERVE = StatementKind(
    """
    INSERT INTO keys (tenant, "user", key, call_id, tool_name, arguments_hash, at, owner)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1
    """,
    row=itemgetter(0, 1, 2),
    read=len,
)
_HOLDER = f'SELECT {KEY} FROM keys WHERE tenant = %s AND "user" = %s AND key = %s'  # noqa: S608
_CALL_OF_KEY = f'SELECT key, {KEY} FROM keys WHERE tenant = %s AND "user" = %s AND call_id = %s'  # noqa: S608
# The outcome is encrypted to the call, so it is not stored if another call has reserved the key since.
_SETTLE = StatementKind(
    'UPDATE keys SET outcome = %s, at = %s WHERE tenant = %s AND "user" = %s AND key = %s AND call_id = %s',
    row=itemgetter(2, 3, 4),
)
_RELEASE = StatementKind(
    """
    DELETE FROM keys WHERE tenant = %s AND "user" = %s AND key = %s AND outcome IS NULL AND %s IN ('', call_id)
    """,
    row=itemgetter(0, 1, 2),
)
_NAME_OF_KEY = """
SELECT tenant, "user", key, call_id, tool_name, arguments_hash FROM keys
WHERE tenant = %s AND "user" = %s AND key = %s
"""
_TENANTS = """
SELECT tenant FROM runs WHERE run_id = %(id)s UNION SELECT tenant FROM journal WHERE call_id = %(id)s
UNION SELECT tenant FROM pending WHERE call_id = %(id)s
"""
# One transaction at a time: a request is visible before those with higher numbers.
_LOCK_CANCELS = "SELECT pg_advisory_xact_lock(hashtextextended('cancels', 0))"
_REQUEST = """
INSERT INTO cancels (target_id, tenant, requested_by, at) VALUES (%s, %s, %s, %s)
ON CONFLICT (target_id, tenant) DO UPDATE SET nr = DEFAULT, requested_by = excluded.requested_by, at = excluded.at
"""
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id = ANY(%s)"


class _Names(Generic[Key]):
    """The names of the records that this process has begun, which saves reading them again."""

    def __init__(self) -> None:
        self._names: dict[Key, Name] = {}

    def remember(self, key: Key, name: Name) -> None:
        self._names[key] = name
        if len(self._names) > REMEMBERED:
            del self._names[next(iter(self._names))]

    def take(self, key: Key) -> Name | None:
        return self._names.pop(key, None)


class PostgresJournal:
    """Intents and results of calls; an intent belongs to the process that wrote it until that process ends.

    A process that lost its lease can neither finish nor remove its intents, which another process has adopted.
    """

    def __init__(self, shared: PostgresContext) -> None:
        self._shared = shared
        self._names = _Names[tuple[str, str]]()

    @property
    def owner_id(self) -> str:
        return self._shared.owner_id

    async def is_alive(self, owner_id: str) -> bool:
        # A planner of its own may be the only one that looks for owners that have ended.
        return not await self._shared.writer.submit(lambda db: self._shared.liveness.ended(db, [owner_id]))

    async def begin(self, entry: JournalEntry) -> None:
        tenant, user = entry.principal
        owner_id = entry.owner or self._shared.owner_id
        if owner_id != self._shared.owner_id:
            raise TakenOverError(
                f"call {entry.call_id!r} was not started: this process lost its lease after the call began, so another "
                "process may have taken the call over"
            )
        name = (tenant, user, entry.call_id, entry.step, entry.run_id, entry.tool_name)
        call = self._shared.cipher.encrypt(dict(entry.call), "journal", *name, "call")
        row = (entry.call_id, entry.step, entry.run_id, entry.tool_name, tenant, user, float(entry.at), owner_id, call)
        await self._shared.writer.execute(_BEGIN, row)
        if owner_id != self._shared.owner_id or not self._shared.liveness.is_valid:
            raise TakenOverError(
                f"call {entry.call_id!r} was not started: this process lost its lease while it wrote the intent, so "
                "another process may have taken the call over"
            )
        self._names.remember((entry.call_id, entry.step), name)

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        name = self._names.take((call_id, step)) or await self._read_name(call_id, step)
        done = None
        if name is not None:
            encrypted = self._shared.cipher.encrypt(result, "journal", *name, "result")
            done = await self._shared.writer.execute(_FINISH, (encrypted, call_id, step, self._shared.owner_id))
        if not done:
            raise TakenOverError(
                f"call {call_id!r}, step {step!r}: a result without an intent of this process; `begin` comes first, "
                "and an intent is taken over by another process if this one loses its lease"
            )

    async def forget(self, call_id: str, step: str) -> None:
        self._names.take((call_id, step))
        await self._shared.writer.execute(_FORGET, (call_id, step, self._shared.owner_id))

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        row = await self._shared.reader.query(lambda db: db.execute(_FIND, (call_id, step)).fetchone())
        return read_entry(self._shared.cipher, row) if row else None

    async def inner(self, call_id: str) -> list[JournalEntry]:
        bounds = (f"{call_id}.", f"{call_id}/")
        rows = await self._shared.reader.query(lambda db: db.execute(_INNER, bounds).fetchall())
        return read_entries(self._shared.cipher, rows)

    async def adopt_orphans(self) -> list[JournalEntry]:
        return await self._shared.writer.submit(self._adopt)

    def _adopt(self, db: Connection) -> list[JournalEntry]:
        """Adopt the intents of owners that have ended, in one transaction; skip damaged ones."""
        owners = [owner for (owner,) in db.execute(_OWNERS_OF_INTENTS)]
        dead = self._shared.liveness.ended(db, owners)
        self._shared.liveness.sweep(db)
        rows = db.execute(_ADOPT, (self._shared.owner_id, dead)).fetchall() if dead else []
        return read_entries(self._shared.cipher, rows)

    async def _read_name(self, call_id: str, step: str) -> Name | None:
        return await self._shared.reader.query(lambda db: db.execute(_NAME_OF_INTENT, (call_id, step)).fetchone())


class PostgresIdempotencyStore:
    """Idempotency keys by user: reserved by one statement, stored with the outcome of their call."""

    def __init__(self, shared: PostgresContext) -> None:
        self._shared = shared
        self._names = _Names[tuple[Principal, str]]()

    async def reserve(self, principal: Principal, key: str, record: IdempotencyRecord) -> IdempotencyRecord | None:
        name = (*principal, key, record.call_id, record.tool_name, record.arguments_hash)
        while True:  # the holder may release the key between the two statements
            row = (*name, self._shared.clock.wall(), self._shared.owner_id)
            if await self._shared.writer.execute(_RESERVE, row):
                self._names.remember((principal, key), name)
                return None
            held = await self._shared.reader.query(lambda db: self._read(db, _HOLDER, (*principal, key)))
            if held is not None:
                return read_key(self._shared.cipher, principal, key, held[0], is_alive=held[1])

    async def find(self, principal: Principal, call_id: str) -> IdempotencyRecord | None:
        held = await self._shared.reader.query(lambda db: self._read(db, _CALL_OF_KEY, (*principal, call_id)))
        if held is None:
            return None
        (key, *row), is_alive = held
        return read_key(self._shared.cipher, principal, key, row, is_alive=is_alive)

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        name = self._names.take((principal, key)) or await self._read_name(principal, key)
        if name is not None:
            encrypted = self._shared.cipher.encrypt(dict(outcome), "keys", *name, "outcome")
            row = (encrypted, self._shared.clock.wall(), *principal, key, name[3])
            await self._shared.writer.execute(_SETTLE, row)

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        self._names.take((principal, key))
        await self._shared.writer.execute(_RELEASE, (*principal, key, call_id))

    def _read(self, db: Connection, sql: str, values: Name) -> tuple[tuple[Any, ...], bool] | None:
        """Return the row of a key, and whether the process of its call still runs."""
        row = db.execute(constant(sql), values).fetchone()
        return None if row is None else (row, self._shared.liveness.alive(db, row[-1]))

    async def _read_name(self, principal: Principal, key: str) -> Name | None:
        return await self._shared.reader.query(lambda db: db.execute(_NAME_OF_KEY, (*principal, key)).fetchone())


class PostgresCancelStore:
    """Cancel requests; a request for a target that only other tenants have is ignored."""

    def __init__(self, shared: PostgresContext) -> None:
        self._shared = shared

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: Connection) -> None:
            self._shared.appender.save_heads(db)  # including a run that began in this transaction
            tenants = {name for (name,) in db.execute(_TENANTS, {"id": target_id})}
            if tenant is None or not tenants or tenant in tenants:
                db.execute(_LOCK_CANCELS)
                db.execute(_REQUEST, (target_id, tenant or "", by, self._shared.clock.wall()))
                self._shared.notifications.add_records()

        await self._shared.writer.submit(work)
        self._shared.changes.notify((CANCELS,))

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = list(target_ids)
        found = await self._shared.reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        return read_cancels(found)

    async def wait(self, after: int, *, timeout_s: float) -> int:
        newest: int = (await self._shared.changes.wait({CANCELS: after}, timeout_s=timeout_s))[CANCELS]
        return newest
