"""Removal from SQLite: pruning by age and quota, and forgetting a person."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Retention
from toolpost.stores.artifacts import ContentFiles
from toolpost.stores.chain import Segment, chain_start
from toolpost.stores.database import Reader, secure_delete
from toolpost.stores.event_appender import EventAppender
from toolpost.stores.event_log import SEGMENTS
from toolpost.stores.liveness import Liveness
from toolpost.stores.pending import STATUS_COLUMNS, status_seal
from toolpost.stores.retention_rules import FORGOTTEN_USER, PRUNED, ArtifactSize, over_quota
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
_NUMBERS = "(SELECT value FROM json_each(:runs))"
_THESE = f"(SELECT run_id, tenant FROM runs WHERE nr IN {_NUMBERS})"  # noqa: S608
_IN_THESE = f"(run_id, tenant) IN {_THESE}"
# A planner's memory knows no tenants: it stays while anybody has a run of that name.
_ALONE = f"SELECT run_id FROM runs GROUP BY run_id HAVING min({_IN_THESE})"  # noqa: S608
_COUNT_EVENTS = f"SELECT ifnull(sum(last_seq), 0) FROM runs WHERE nr IN {_NUMBERS}"  # noqa: S608
_OF_RUNS = {
    "keys": f"DELETE FROM keys WHERE call_id IN (SELECT call_id FROM segments WHERE run IN {_NUMBERS})",  # noqa: S608
    "segments": f"DELETE FROM segments WHERE run IN {_NUMBERS}",  # noqa: S608
    "journal": f"DELETE FROM journal WHERE {_IN_THESE}",  # noqa: S608
    "pending": f"DELETE FROM pending WHERE {_IN_THESE}",  # noqa: S608
    "state": f"DELETE FROM state WHERE kind IN ('event', 'binding') AND key IN ({_ALONE})",  # noqa: S608
    "runs": f"DELETE FROM runs WHERE nr IN {_NUMBERS}",  # noqa: S608
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
        events: int = db.execute(_COUNT_EVENTS, values).fetchone()[0]
        removed = {table: db.execute(sql, values).rowcount for table, sql in _OF_RUNS.items()}
        del removed["segments"]
        self._appender.remove_runs(((tenant, run_id), seal) for _, run_id, tenant, seal in runs)
        return {**removed, "events": events}

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
SEGMENTS_A_STEP = 200

_PERSON = "tenant = :tenant AND user = :user"
_RUNS = f"SELECT run_id FROM runs WHERE {_PERSON}"  # noqa: S608 - constants, here and below
_OF_TENANT = "run IN (SELECT nr FROM runs WHERE tenant = :tenant)"
_CALLS = f"SELECT call_id FROM segments WHERE user = :user AND {_OF_TENANT}"  # noqa: S608
_ARTIFACTS = f"tenant = :tenant AND (user = :user OR run_id IN ({_RUNS}) OR call_id IN ({_CALLS}))"
_OWNERS = f"""
SELECT owner FROM journal WHERE {_PERSON} AND result IS NULL
UNION SELECT owner FROM pending WHERE {_PERSON} AND owner IS NOT NULL
"""  # noqa: S608
# A step that was cut off has no result either: it is over when its run does not go on.
_RUNNING = """(
    result IS NULL AND owner IN (SELECT value FROM json_each(:living))
    AND (step = '' OR (run_id, tenant) IN (SELECT run_id, tenant FROM runs WHERE status = 'running'))
)"""
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
{SEGMENTS} WHERE last_id > :after AND (
    (tenant = :tenant AND segments.user = :user)
    OR instr(events, :owner) OR instr(events, :escaped) OR instr(correlation_id, :owner)
) ORDER BY last_id LIMIT {SEGMENTS_A_STEP}
"""
_BEFORE = """
SELECT nr, (SELECT hash FROM segments WHERE run = nr AND seq < :seq ORDER BY seq DESC LIMIT 1), tool_name
FROM runs WHERE run_id = :run_id AND tenant = :tenant
"""
_FORGET_SEGMENT = "UPDATE segments SET user = ?, correlation_id = ?, events = ?, forgotten = ? WHERE last_id = ?"


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
        events, runs, after, calls = 0, 0, 0, None
        while calls is None:
            forget_events = partial(self._forget_events, principal=principal, after=after)
            forgotten, renamed, after, calls = await self._writer.submit(forget_events)
            events, runs = events + forgotten, runs + renamed
        runs += await self._writer.submit(partial(self._forget_names, principal=principal))
        await asyncio.to_thread(self._truncate_wal)  # other processes may keep it for as long as they live
        return {**counts, **calls, "files": files, "events": events, "runs": runs}

    def _forget(self, db: sqlite3.Connection, *, principal: Principal) -> tuple[dict[str, int], list[str]]:
        self._appender.save_heads(db)  # A run that began in this very transaction may have artifacts too.
        person = _person_values(principal)
        contents = [sha256 for (sha256,) in db.execute(_CONTENTS, person)]
        with secure_delete(db):
            return {kind: db.execute(sql, person).rowcount for kind, sql in _DELETE.items()}, contents

    def _forget_events(
        self, db: sqlite3.Connection, *, principal: Principal, after: int
    ) -> tuple[int, int, int, dict[str, int] | None]:
        """Remove the facts of some more events, and the name from runs that begin with them.

        Return how many of each, the id of the last event, and `_forget_calls`' counts: the rows of calls are deleted
        with the last facts in one transaction, so that no event mentions a missing row.
        """
        self._appender.save_heads(db)  # a run that began in this very transaction, too
        values = {**_person_values(principal), "after": after}
        segments = [Segment(*row) for row in db.execute(_MENTIONING, values).fetchall()]
        with secure_delete(db):
            forgotten = sum(self._forget_segment(db, segment, principal) for segment in segments)
            mine = [segment for segment in segments if (segment.tenant, segment.user) == principal]
            began = [(segment.tenant, segment.run_id) for segment in mine if segment.seq == 1]
            self._appender.rename_user(db, began, FORGOTTEN_USER)
            self._appender.save_heads(db)
        if len(segments) == SEGMENTS_A_STEP:
            return forgotten, len(began), segments[-1].last_id, None
        return forgotten, len(began), 0, self._forget_calls(db, principal)

    def _forget_segment(self, db: sqlite3.Connection, segment: Segment, principal: Principal) -> int:
        """Remove what a segment tells of a person; return how many events lost it."""
        values = {"seq": segment.seq, "run_id": segment.run_id, "tenant": segment.tenant}
        nr, previous, tool_name = db.execute(_BEFORE, values).fetchone()
        start = chain_start(nr, segment.run_id, segment.tenant, tool_name) if previous is None else previous
        bare, forgotten = self._appender.ledger.key.forget(segment, start, principal)
        if forgotten:
            changed = (bare.user, bare.correlation_id, bare.events, bare.forgotten, bare.last_id)
            db.execute(_FORGET_SEGMENT, changed)
        return forgotten

    def _forget_calls(self, db: sqlite3.Connection, principal: Principal) -> dict[str, int]:
        """Delete pending actions and journal entries, except those that a living process works on."""
        person = _person_values(principal)
        owners = [owner for (owner,) in db.execute(_OWNERS, person).fetchall()]
        values = {**person, "living": json.dumps([owner for owner in owners if self._liveness.alive(owner)])}
        under_way = db.execute(_UNDER_WAY, values).fetchone()[0]
        with secure_delete(db):
            removed = {kind: db.execute(sql, values).rowcount for kind, sql in _DELETE_CALLS.items()}
        return {**removed, "under_way": under_way}

    def _forget_names(self, db: sqlite3.Connection, *, principal: Principal) -> int:
        """Remove the person's name from runs, answers and cancel requests."""
        person = _person_values(principal)
        with secure_delete(db):
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
