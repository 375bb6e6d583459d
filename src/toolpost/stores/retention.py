"""Removal from SQLite: pruning by age and quota, and forgetting a person."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Retention
from toolpost.stores.artifacts import ContentFiles
from toolpost.stores.chain import EventRow
from toolpost.stores.database import Reader
from toolpost.stores.event_appender import EventAppender
from toolpost.stores.event_log import ROW_COLUMNS
from toolpost.stores.liveness import Liveness
from toolpost.stores.pending import STATUS_COLUMNS, status_seal
from toolpost.stores.retention_rules import FORGOTTEN_USER, PRUNED, ArtifactSize, mentions, over_quota
from toolpost.stores.writer import Writer

# Few enough that other writes do not wait long behind one step.
RUNS_A_STEP = 200
FILES_A_STEP = 500

_UNSETTLED = "SELECT run_id, tenant FROM pending WHERE status IN ('open', 'claimed')"
_OLD_RUNS = f"""
SELECT nr, run_id, tenant, seal FROM runs
WHERE status IN ('completed', 'failed') AND updated_at < ? AND (run_id, tenant) NOT IN ({_UNSETTLED})
AND (run_id, tenant) NOT IN (SELECT run_id, tenant FROM journal WHERE result IS NULL AND step = '') LIMIT {RUNS_A_STEP}
"""  # noqa: S608 - constants, here and below
_THESE = "(SELECT run_id, tenant FROM runs WHERE nr IN (SELECT value FROM json_each(:runs)))"
_IN_THESE = f"(run_id, tenant) IN {_THESE}"
# A planner's memory knows no tenants: it stays while anybody has a run of that name.
_ALONE = f"SELECT run_id FROM runs GROUP BY run_id HAVING min({_IN_THESE})"  # noqa: S608
_OF_RUNS = {
    "keys": f"DELETE FROM keys WHERE call_id IN (SELECT call_id FROM events WHERE {_IN_THESE})",  # noqa: S608
    "events": f"DELETE FROM events WHERE {_IN_THESE}",  # noqa: S608
    "journal": f"DELETE FROM journal WHERE {_IN_THESE}",  # noqa: S608
    "pending": f"DELETE FROM pending WHERE {_IN_THESE}",  # noqa: S608
    "state": f"DELETE FROM state WHERE kind IN ('event', 'binding') AND key IN ({_ALONE})",  # noqa: S608
    "runs": "DELETE FROM runs WHERE nr IN (SELECT value FROM json_each(:runs))",
}
_BY_AGE = {
    "keys": "DELETE FROM keys WHERE outcome IS NOT NULL AND at < :cutoff",
    "journal": """
        DELETE FROM journal WHERE (result IS NOT NULL OR step <> '') AND at < :cutoff
        AND (run_id, tenant) NOT IN (SELECT run_id, tenant FROM runs)
    """,
    "pending": """
        DELETE FROM pending WHERE status NOT IN ('open', 'claimed') AND created_at < :cutoff
        AND (run_id, tenant) NOT IN (SELECT run_id, tenant FROM runs)
    """,
    "cancels": "DELETE FROM cancels WHERE at < :cutoff",
    "state": "DELETE FROM state WHERE until < :cutoff",
    "artifacts": f"DELETE FROM artifacts WHERE created_at < :cutoff AND (run_id, tenant) NOT IN ({_UNSETTLED})",  # noqa: S608
}
_WEIGHED = "SELECT id, sha256, size FROM artifacts ORDER BY created_at, rowid"
_SPARED = f"SELECT id FROM artifacts WHERE (run_id, tenant) IN ({_UNSETTLED})"  # noqa: S608


class Pruner:
    """Deletes old finished runs and artifacts over the quota, in small transactions."""

    def __init__(self, writer: Writer, reader: Reader, *, appender: EventAppender, files: ContentFiles) -> None:
        self._writer = writer
        self._reader = reader
        self._appender = appender
        self._files = files

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        """Delete what is past the limits; return how many rows and files of each kind."""
        removed = Counter(dict.fromkeys(PRUNED, 0))
        if retention.max_age_s is not None:
            cutoff = now - retention.max_age_s
            while step := await self._writer.submit(partial(self._prune_runs, cutoff=cutoff)):
                removed.update(step)
            removed.update(await self._writer.submit(partial(_prune_by_age, cutoff=cutoff)))
        if retention.max_artifact_bytes is not None:
            over = partial(_prune_over_quota, max_bytes=retention.max_artifact_bytes)
            removed["artifacts"] += await self._writer.submit(over)
        removed["files"] = await self._prune_files(now)
        return dict(removed)

    def _prune_runs(self, db: sqlite3.Connection, *, cutoff: float) -> dict[str, int]:
        self._appender.save_heads(db)  # A run that goes on in this very transaction is not old.
        runs = db.execute(_OLD_RUNS, (cutoff,)).fetchall()
        if not runs:
            return {}
        values = {"runs": json.dumps([nr for nr, *_ in runs])}
        removed = {table: db.execute(sql, values).rowcount for table, sql in _OF_RUNS.items()}
        self._appender.remove_runs(((tenant, run_id), seal) for _, run_id, tenant, seal in runs)
        return removed

    async def _prune_files(self, now: float) -> int:
        """Delete files without a row; within transactions, so that nobody can add the row meanwhile."""
        await asyncio.to_thread(self._files.sweep, now)
        names = await asyncio.to_thread(lambda: set(self._files.names()))
        hashes = await self._reader.query(lambda db: {row[0] for row in db.execute("SELECT sha256 FROM artifacts")})
        stray = sorted(names - hashes)
        steps = [stray[start : start + FILES_A_STEP] for start in range(0, len(stray), FILES_A_STEP)]
        return sum([await self._writer.submit(partial(self.delete_unnamed, names=step)) for step in steps])

    def delete_unnamed(self, db: sqlite3.Connection, *, names: list[str]) -> int:
        """Delete those of these files that no row names; return how many."""
        named = "SELECT 1 FROM artifacts WHERE sha256 = ?"
        return sum(self._files.delete(name) for name in names if not db.execute(named, (name,)).fetchone())


def _prune_by_age(db: sqlite3.Connection, *, cutoff: float) -> dict[str, int]:
    return {table: db.execute(sql, {"cutoff": cutoff}).rowcount for table, sql in _BY_AGE.items()}


def _prune_over_quota(db: sqlite3.Connection, *, max_bytes: int) -> int:
    spared = {row[0] for row in db.execute(_SPARED)}
    gone = over_quota((ArtifactSize(*row) for row in db.execute(_WEIGHED)), spared=spared, max_bytes=max_bytes)
    return db.execute(
        "DELETE FROM artifacts WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(gone),)
    ).rowcount


# Few enough that other writes do not wait long behind one step.
EVENTS_A_STEP = 500

_PERSON = "tenant = :tenant AND user = :user"
_RUNS = f"SELECT run_id FROM runs WHERE {_PERSON}"  # noqa: S608 - constants, here and below
_CALLS = f"SELECT call_id FROM events WHERE {_PERSON}"  # noqa: S608
_ARTIFACTS = f"tenant = :tenant AND (user = :user OR run_id IN ({_RUNS}) OR call_id IN ({_CALLS}))"
_OWNERS = f"""
SELECT owner FROM journal WHERE {_PERSON} AND result IS NULL
UNION SELECT owner FROM pending WHERE {_PERSON} AND owner IS NOT NULL
"""  # noqa: S608
_RUNNING = "(result IS NULL AND owner IN (SELECT value FROM json_each(:living)))"
_ANSWERED = "(ifnull(owner, '') IN (SELECT value FROM json_each(:living)))"
_UNDER_WAY = f"""
SELECT (SELECT count(*) FROM journal WHERE {_PERSON} AND {_RUNNING})
     + (SELECT count(*) FROM pending WHERE {_PERSON} AND {_ANSWERED})
"""  # noqa: S608
_CONTENTS = f"SELECT DISTINCT sha256 FROM artifacts WHERE {_ARTIFACTS}"  # noqa: S608
_DELETE_CALLS = {
    "pending": f"DELETE FROM pending WHERE {_PERSON} AND NOT {_ANSWERED}",  # noqa: S608
    "journal": f"DELETE FROM journal WHERE {_PERSON} AND NOT {_RUNNING}",  # noqa: S608
}
_DELETE = {
    "tokens": f"DELETE FROM tokens WHERE {_PERSON}",  # noqa: S608
    "keys": f"DELETE FROM keys WHERE {_PERSON} AND outcome IS NOT NULL",  # noqa: S608
    "caller_keys": f"DELETE FROM caller_keys WHERE {_PERSON}",  # noqa: S608
    "state": f"DELETE FROM state WHERE owner = :owner OR (kind IN ('event', 'binding') AND key IN ({_RUNS}))",  # noqa: S608
    "artifacts": f"DELETE FROM artifacts WHERE {_ARTIFACTS}",  # noqa: S608
}
_ANSWERS = f"SELECT {STATUS_COLUMNS}, seal FROM pending WHERE answered_by = :owner"  # noqa: S608
_MENTIONING = f"""
SELECT {ROW_COLUMNS} FROM events WHERE id > :after AND (
    ({_PERSON}) OR (forgotten IS NULL AND (instr(payload, :owner) OR instr(payload, :escaped)))
) ORDER BY id LIMIT {EVENTS_A_STEP}
"""  # noqa: S608
_FORGET_EVENT = "UPDATE events SET user = ?, payload = ?, forgotten = ? WHERE id = ?"


class Forgetter:
    """Deletes the data of a person; calls that a living process runs for them are counted and left to end."""

    def __init__(
        self,
        writer: Writer,
        *,
        appender: EventAppender,
        pruner: Pruner,
        liveness: Liveness,
        truncate_wal: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._truncate_wal = truncate_wal
        self._appender = appender
        self._pruner = pruner
        self._liveness = liveness

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Delete everything of a person; return how many of each kind, and how many calls are `under_way`."""
        counts, contents = await self._writer.submit(partial(self._forget, principal=principal))
        # Only once the rows are gone for good; should this process die before, pruning removes the files.
        files = await self._writer.submit(partial(self._pruner.delete_unnamed, names=contents))
        events, after, calls = 0, 0, None
        while calls is None:
            forget_events = partial(self._forget_events, principal=principal, after=after)
            forgotten, after, calls = await self._writer.submit(forget_events)
            events += forgotten
        runs = await self._writer.submit(partial(self._forget_names, principal=principal))
        await asyncio.to_thread(self._truncate_wal)  # other processes may keep it for as long as they live
        return {**counts, **calls, "files": files, "events": events, "runs": runs}

    def _forget(self, db: sqlite3.Connection, *, principal: Principal) -> tuple[dict[str, int], list[str]]:
        self._appender.save_heads(db)  # A run that began in this very transaction may have artifacts too.
        person = _person_values(principal)
        contents = [sha256 for (sha256,) in db.execute(_CONTENTS, person)]
        with _secure_delete(db):
            return {kind: db.execute(sql, person).rowcount for kind, sql in _DELETE.items()}, contents

    def _forget_events(
        self, db: sqlite3.Connection, *, principal: Principal, after: int
    ) -> tuple[int, int, dict[str, int] | None]:
        """Remove the payloads of some more events; return how many, the id of the last, and `_forget_calls`' counts.

        The rows of calls are deleted with the last payloads in one transaction: no event mentions a missing row.
        """
        key = self._appender.ledger.key
        rows = [EventRow(*row) for row in db.execute(_MENTIONING, {**_person_values(principal), "after": after})]
        forgotten = 0
        with _secure_delete(db):
            for row in rows:
                mine = (row.tenant, row.user) == principal
                if mine or mentions(row.payload, principal):
                    bare = key.forget(row, user=FORGOTTEN_USER if mine else row.user)
                    db.execute(_FORGET_EVENT, (bare.user, bare.payload, bare.forgotten, bare.id))
                    forgotten += 1
        if len(rows) == EVENTS_A_STEP:
            return forgotten, rows[-1].id, None
        return forgotten, 0, self._forget_calls(db, principal)

    def _forget_calls(self, db: sqlite3.Connection, principal: Principal) -> dict[str, int]:
        """Delete pending actions and journal entries, except those that a living process works on."""
        person = _person_values(principal)
        owners = [owner for (owner,) in db.execute(_OWNERS, person).fetchall()]
        values = {**person, "living": json.dumps([owner for owner in owners if self._liveness.alive(owner)])}
        under_way = db.execute(_UNDER_WAY, values).fetchone()[0]
        with _secure_delete(db):
            removed = {kind: db.execute(sql, values).rowcount for kind, sql in _DELETE_CALLS.items()}
        return {**removed, "under_way": under_way}

    def _forget_names(self, db: sqlite3.Connection, *, principal: Principal) -> int:
        """Remove the person's name from runs, answers and cancel requests."""
        person = _person_values(principal)
        with _secure_delete(db):
            for *status, seal in db.execute(_ANSWERS, person).fetchall():
                self._forget_answer(db, status, seal)
            db.execute("UPDATE cancels SET requested_by = '' WHERE requested_by = :owner", person)
            self._appender.save_heads(db)
            runs = [(principal.tenant, run_id) for (run_id,) in db.execute(_RUNS, person)]
            self._appender.rename_user(db, runs, FORGOTTEN_USER)
            self._appender.save_heads(db)
        return len(runs)

    def _forget_answer(self, db: sqlite3.Connection, status: list[object], seal: bytes) -> None:
        key = self._appender.ledger.key
        is_intact = seal == status_seal(key, tuple(status))
        status[-2] = FORGOTTEN_USER
        renewed = status_seal(key, tuple(status)) if is_intact else seal
        db.execute("UPDATE pending SET answered_by = ?, seal = ? WHERE id = ?", (FORGOTTEN_USER, renewed, status[0]))


def _person_values(principal: Principal) -> dict[str, str]:
    owner = str(principal)
    escaped = json.dumps(owner)[1:-1]
    return {"tenant": principal.tenant, "user": principal.user, "owner": owner, "escaped": escaped}


@contextmanager
def _secure_delete(db: sqlite3.Connection) -> Generator[None]:
    """Overwrite deleted rows with zeros instead of leaving them in free pages."""
    db.execute("PRAGMA secure_delete = ON").fetchall()
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF").fetchall()
