"""Erase a user from a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial

from toolpost.contracts.principal import Principal
from toolpost.stores.chain import Segment
from toolpost.stores.pending_rows import STATUS_COLUMNS, status_mac
from toolpost.stores.retention_rules import FORGOTTEN_USER
from toolpost.stores.run_heads import chain_start
from toolpost.stores.sql.contents import ContentStore
from toolpost.stores.sql.database import SharedDatabase, SQLConnection
from toolpost.stores.sql.metrics import forget_metrics

# Few enough that other writes do not wait long for one step.
SEGMENTS_A_STEP = 200

_PERSON = 'tenant = :tenant AND "user" = :user'
_RUNS = f"SELECT run_id FROM runs WHERE {_PERSON}"  # noqa: S608 - constants, here and below
_OF_TENANT = "run IN (SELECT nr FROM runs WHERE tenant = :tenant)"
_CALLS = f'SELECT call_id FROM segments WHERE "user" = :user AND {_OF_TENANT}'  # noqa: S608
_ARTIFACTS = f'tenant = :tenant AND ("user" = :user OR run_id IN ({_RUNS}) OR call_id IN ({_CALLS}))'
_OWNERS = f"""
SELECT owner FROM journal WHERE {_PERSON} AND result IS NULL
UNION SELECT owner FROM pending WHERE {_PERSON} AND owner IS NOT NULL
"""  # noqa: S608
# An interrupted step has no result either: it has ended if its run is not running.
_RUNNING = """(
    result IS NULL AND owner = ANY(:living)
    AND (step = '' OR (run_id, tenant) IN (SELECT run_id, tenant FROM runs WHERE status = 'running'))
)"""
_ANSWERED = "(coalesce(owner, '') = ANY(:living))"
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
    "jobs": f"DELETE FROM jobs WHERE {_PERSON} AND status <> 'running'",  # noqa: S608
    "schedules": f"DELETE FROM schedules WHERE {_PERSON}",  # noqa: S608
    "state": f"DELETE FROM state WHERE owner = :owner OR (kind IN ('event', 'binding') AND key IN ({_RUNS}))",  # noqa: S608
    "artifacts": f"DELETE FROM artifacts WHERE {_ARTIFACTS}",  # noqa: S608
}
_ANSWERS = f"SELECT {STATUS_COLUMNS}, mac FROM pending WHERE answered_by = :owner"  # noqa: S608
_MENTIONING = f"""
SELECT last_id, run_id, tenant, seq, call_id, segments."user", segments.tool_name, correlation_id, events, hash,
    forgotten
FROM segments JOIN runs ON runs.nr = segments.run WHERE last_id > :after AND (
    (tenant = :tenant AND segments."user" = :user)
    OR strpos(events, :owner) > 0 OR strpos(events, :escaped) > 0 OR strpos(correlation_id, :owner) > 0
) ORDER BY last_id LIMIT {SEGMENTS_A_STEP}
"""  # noqa: S608
_BEFORE = """
SELECT nr, (SELECT hash FROM segments WHERE run = nr AND seq < :seq ORDER BY seq DESC LIMIT 1), tool_name
FROM runs WHERE run_id = :run_id AND tenant = :tenant
"""
_FORGET_SEGMENT = """
UPDATE segments SET "user" = :user, correlation_id = :correlation_id, events = :events, forgotten = :forgotten
WHERE last_id = :last_id
"""
_FORGET_ANSWER = "UPDATE pending SET answered_by = :user, mac = :mac WHERE id = :id"


class Forgetter:
    """Deletes the data of a user; calls that a process still runs for the user are counted and stay.

    `finish` removes copies of deleted rows that the database may still have.
    """

    def __init__(self, shared: SharedDatabase, *, contents: ContentStore, finish: Callable[[], None]) -> None:
        self._shared = shared
        self._contents = contents
        self._finish = finish

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Delete all data of a user; return the number of records of each kind, and of calls `under_way`."""
        counts, contents = await self._shared.write(partial(self._forget, principal=principal))
        # After the rows are committed. If this process ends before, pruning removes the contents.
        files = await self._contents.release(contents)
        events, runs, after, calls = 0, 0, 0, None
        while calls is None:
            forget_events = partial(self._forget_events, principal=principal, after=after)
            forgotten, renamed, after, calls = await self._shared.write(forget_events)
            events, runs = events + forgotten, runs + renamed
        runs += await self._shared.write(partial(self._forget_names, principal=principal))
        await asyncio.to_thread(self._finish)
        return {**counts, **calls, "files": files, "events": events, "runs": runs}

    def _forget(self, db: SQLConnection, *, principal: Principal) -> tuple[dict[str, int], list[str]]:
        db.save_heads()  # A run that began in this transaction may have artifacts.
        person = _person_values(principal)
        contents = [sha256 for (sha256,) in db.execute(_CONTENTS, person)]
        with db.secure_deletes():
            forget_metrics(db, *principal)
            return {kind: db.execute(sql, person).rowcount for kind, sql in _DELETE.items()}, contents

    def _forget_events(
        self, db: SQLConnection, *, principal: Principal, after: int
    ) -> tuple[int, int, int, dict[str, int] | None]:
        """Remove the facts of the next events, and the name from runs that begin with them.

        Return the number of each, the id of the last event, and the counts of `_forget_calls`. The rows of calls are
        deleted in one transaction with the last facts, so no event mentions a missing row.
        """
        db.save_heads()  # including a run that began in this transaction
        values = {**_person_values(principal), "after": after}
        segments = [Segment(*row) for row in db.execute(_MENTIONING, values).fetchall()]
        with db.secure_deletes():
            forgotten = sum(self._forget_segment(db, segment, principal) for segment in segments)
            mine = [segment for segment in segments if (segment.tenant, segment.user) == principal]
            began = [(segment.tenant, segment.run_id) for segment in mine if segment.seq == 1]
            db.rename_user(began, FORGOTTEN_USER)
            db.save_heads()
        if len(segments) == SEGMENTS_A_STEP:
            return forgotten, len(began), segments[-1].last_id, None
        return forgotten, len(began), 0, self._forget_calls(db, principal)

    def _forget_segment(self, db: SQLConnection, segment: Segment, principal: Principal) -> int:
        """Erase the facts about a user from a segment; return the number of events that lost facts."""
        values = {"seq": segment.seq, "run_id": segment.run_id, "tenant": segment.tenant}
        nr, previous, tool_name = db.execute(_BEFORE, values).fetchone()
        start = chain_start(nr, segment.run_id, segment.tenant, tool_name) if previous is None else previous
        bare, forgotten = self._shared.key.forget(segment, start, principal)
        if forgotten:
            db.execute(_FORGET_SEGMENT, bare._asdict())
        return forgotten

    def _forget_calls(self, db: SQLConnection, principal: Principal) -> dict[str, int]:
        """Delete pending actions and journal entries, except those that a running process works on."""
        person = _person_values(principal)
        owners = [owner for (owner,) in db.execute(_OWNERS, person).fetchall()]
        values = {**person, "living": sorted({*owners} - {*db.ended(owners)})}
        under_way = db.execute(_UNDER_WAY, values).fetchone()[0]
        with db.secure_deletes():
            removed = {kind: db.execute(sql, values).rowcount for kind, sql in _DELETE_CALLS.items()}
        return {**removed, "under_way": under_way}

    def _forget_names(self, db: SQLConnection, *, principal: Principal) -> int:
        """Remove the name of the user from runs, answers and cancel requests."""
        person = _person_values(principal)
        with db.secure_deletes():
            for *status, mac in db.execute(_ANSWERS, person).fetchall():
                self._forget_answer(db, status, mac)
            db.execute("UPDATE cancels SET requested_by = '' WHERE requested_by = :owner", person)
            db.save_heads()
            runs = [(principal.tenant, run_id) for (run_id,) in db.execute(_RUNS, person)]
            db.rename_user(runs, FORGOTTEN_USER)
            db.save_heads()
        return len(runs)

    def _forget_answer(self, db: SQLConnection, status: list[object], mac: bytes) -> None:
        key = self._shared.key
        is_intact = mac == status_mac(key, tuple(status))
        status[-2] = FORGOTTEN_USER
        renewed = status_mac(key, tuple(status)) if is_intact else mac
        db.execute(_FORGET_ANSWER, {"user": FORGOTTEN_USER, "mac": renewed, "id": status[0]})


def _person_values(principal: Principal) -> dict[str, str]:
    owner = str(principal)
    escaped = json.dumps(owner)[1:-1]
    return {"tenant": principal.tenant, "user": principal.user, "owner": owner, "escaped": escaped}
