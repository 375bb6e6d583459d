"""Forgetting a person in SQLite: what is kept of them is deleted, and what events say of them is removed."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from toolpost.contracts.principal import Principal
from toolpost.stores.appender import EventAppender
from toolpost.stores.chain import EventRow
from toolpost.stores.liveness import Liveness
from toolpost.stores.pruning import Pruner
from toolpost.stores.verification import ROW_COLUMNS, STANDING_COLUMNS, standing_seal
from toolpost.stores.writer import Writer

FORGOTTEN_USER = ""
# Few enough that other writes do not wait long behind one step.
EVENTS_A_STEP = 500

_PERSON = "tenant = :tenant AND user = :user"
_RUNS = f"SELECT run_id FROM runs WHERE {_PERSON}"  # noqa: S608 - constants, here and below
_CALLS = f"SELECT call_id FROM events WHERE {_PERSON}"  # noqa: S608
_ARTIFACTS = f"tenant = :tenant AND (run_id IN ({_RUNS}) OR call_id IN ({_CALLS}))"
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
_DELETE = {
    "tokens": f"DELETE FROM tokens WHERE {_PERSON}",  # noqa: S608
    "pending": f"DELETE FROM pending WHERE {_PERSON} AND NOT {_ANSWERED}",  # noqa: S608
    "journal": f"DELETE FROM journal WHERE {_PERSON} AND NOT {_RUNNING}",  # noqa: S608
    "keys": f"DELETE FROM keys WHERE {_PERSON} AND outcome IS NOT NULL",  # noqa: S608
    "state": f"DELETE FROM state WHERE owner = :owner OR (kind IN ('event', 'binding') AND key IN ({_RUNS}))",  # noqa: S608
    "artifacts": f"DELETE FROM artifacts WHERE {_ARTIFACTS}",  # noqa: S608
}
_ANSWERS = f"SELECT {STANDING_COLUMNS}, seal FROM pending WHERE answered_by = :owner"  # noqa: S608
_TELLING = f"""
SELECT {ROW_COLUMNS} FROM events WHERE id > :after AND (
    ({_PERSON}) OR (forgotten IS NULL AND (instr(payload, :owner) OR instr(payload, :escaped)))
) ORDER BY id LIMIT {EVENTS_A_STEP}
"""  # noqa: S608
_FORGET_EVENT = "UPDATE events SET user = ?, payload = ?, forgotten = ? WHERE id = ?"


class Forgetter:
    """Removes what is kept of a person; what a living process is doing for them is counted and left to end."""

    def __init__(
        self,
        writer: Writer,
        *,
        appender: EventAppender,
        pruner: Pruner,
        liveness: Liveness,
        empty_wal: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._empty_wal = empty_wal
        self._appender = appender
        self._pruner = pruner
        self._liveness = liveness

    async def forget(self, principal: Principal) -> dict[str, int]:
        """How many of each kind were removed, and how much is under way."""
        counts, contents = await self._writer.submit(partial(self._forget, principal=principal))
        # Only once the rows are gone for good; should this process die before, pruning removes the files.
        files = await self._writer.submit(partial(self._pruner.delete_unnamed, names=contents))
        events, after = 0, 0
        while step := await self._writer.submit(partial(self._forget_events, principal=principal, after=after)):
            events, after = events + step[0], step[1]
        runs = await self._writer.submit(partial(self._forget_names, principal=principal))
        await asyncio.to_thread(self._empty_wal)  # other processes may keep it for as long as they live
        return {**counts, "files": files, "events": events, "runs": runs}

    def _forget(self, db: sqlite3.Connection, *, principal: Principal) -> tuple[dict[str, int], list[str]]:
        self._appender.save_heads(db)  # A run that began in this very transaction may have artifacts too.
        person = _person(principal)
        owners = [owner for (owner,) in db.execute(_OWNERS, person).fetchall()]
        values = {**person, "living": json.dumps([owner for owner in owners if self._liveness.alive(owner)])}
        under_way = db.execute(_UNDER_WAY, values).fetchone()[0]
        contents = [sha256 for (sha256,) in db.execute(_CONTENTS, values)]
        with _overwriting(db):
            removed = {kind: db.execute(sql, values).rowcount for kind, sql in _DELETE.items()}
        return {**removed, "under_way": under_way}, contents

    def _forget_events(self, db: sqlite3.Connection, *, principal: Principal, after: int) -> tuple[int, int] | None:
        """Remove what some more events say; how many, and the last that was looked at."""
        key = self._appender.ledger.key
        rows = [EventRow(*row) for row in db.execute(_TELLING, {**_person(principal), "after": after})]
        if not rows:
            return None
        forgotten = 0
        with _overwriting(db):
            for row in rows:
                mine = (row.tenant, row.user) == principal
                if mine or names(row.payload, principal):
                    bare = key.forget(row, user=FORGOTTEN_USER if mine else row.user)
                    db.execute(_FORGET_EVENT, (bare.user, bare.payload, bare.forgotten, bare.id))
                    forgotten += 1
        return forgotten, rows[-1].id

    def _forget_names(self, db: sqlite3.Connection, *, principal: Principal) -> int:
        """Take their name off runs, answers and wishes."""
        person = _person(principal)
        with _overwriting(db):
            for *standing, seal in db.execute(_ANSWERS, person).fetchall():
                self._forget_answer(db, standing, seal)
            db.execute("UPDATE cancels SET requested_by = '' WHERE requested_by = :owner", person)
            self._appender.save_heads(db)
            runs = [(principal.tenant, run_id) for (run_id,) in db.execute(_RUNS, person)]
            self._appender.rename_user(db, runs, FORGOTTEN_USER)
            self._appender.save_heads(db)
        return len(runs)

    def _forget_answer(self, db: sqlite3.Connection, standing: list[object], seal: bytes) -> None:
        key = self._appender.ledger.key
        is_sound = seal == standing_seal(key, tuple(standing))
        standing[-2] = FORGOTTEN_USER
        renewed = standing_seal(key, tuple(standing)) if is_sound else seal
        db.execute("UPDATE pending SET answered_by = ?, seal = ? WHERE id = ?", (FORGOTTEN_USER, renewed, standing[0]))


def names(payload: str, principal: Principal) -> bool:
    """Whether a payload names a person, and not somebody whose name only begins like theirs."""
    written = {str(principal), json.dumps(str(principal))[1:-1]}
    return any(re.search(rf"(?<![\w.@:-]){re.escape(name)}(?![\w.@:-]*[\w@])", payload) for name in written)


def _person(principal: Principal) -> dict[str, str]:
    owner = str(principal)
    escaped = json.dumps(owner)[1:-1]
    return {"tenant": principal.tenant, "user": principal.user, "owner": owner, "escaped": escaped}


@contextmanager
def _overwriting(db: sqlite3.Connection) -> Generator[None]:
    """Have deleted rows overwritten with zeros instead of left in free pages."""
    db.execute("PRAGMA secure_delete = ON").fetchall()
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF").fetchall()
