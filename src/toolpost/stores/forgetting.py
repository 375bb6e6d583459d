"""Forgetting a person in SQLite: tokens, questions, results and artifacts go in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from toolpost.contracts.principal import Principal
from toolpost.stores.appender import EventAppender
from toolpost.stores.liveness import Liveness
from toolpost.stores.pruning import Pruner
from toolpost.stores.writer import Writer

_PERSON = "tenant = :tenant AND user = :user"
_RUNS = f"SELECT run_id FROM runs WHERE {_PERSON}"  # noqa: S608 - constants, here and below
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
_CONTENTS = f"SELECT DISTINCT sha256 FROM artifacts WHERE tenant = :tenant AND run_id IN ({_RUNS})"  # noqa: S608
_DELETE = {
    "tokens": f"DELETE FROM tokens WHERE {_PERSON}",  # noqa: S608
    "pending": f"DELETE FROM pending WHERE {_PERSON} AND NOT {_ANSWERED}",  # noqa: S608
    "journal": f"DELETE FROM journal WHERE {_PERSON} AND NOT {_RUNNING}",  # noqa: S608
    "keys": f"DELETE FROM keys WHERE {_PERSON} AND outcome IS NOT NULL",  # noqa: S608
    "state": f"DELETE FROM state WHERE owner = :owner OR (kind IN ('event', 'binding') AND key IN ({_RUNS}))",  # noqa: S608
    "artifacts": f"DELETE FROM artifacts WHERE tenant = :tenant AND run_id IN ({_RUNS})",  # noqa: S608
}


class Forgetter:
    """Removes what is kept of a person; what a living process is doing for them is counted and left to end."""

    def __init__(self, writer: Writer, *, appender: EventAppender, pruner: Pruner, liveness: Liveness) -> None:
        self._writer = writer
        self._appender = appender
        self._pruner = pruner
        self._liveness = liveness

    async def forget(self, principal: Principal) -> dict[str, int]:
        """How many of each kind were removed, and how much is under way."""
        counts, contents = await self._writer.submit(partial(self._forget, principal=principal))
        # Only once the rows are gone for good; should this process die before, pruning removes the files.
        files = await self._writer.submit(partial(self._pruner.delete_unnamed, names=contents))
        return {**counts, "files": files}

    def _forget(self, db: sqlite3.Connection, *, principal: Principal) -> tuple[dict[str, int], list[str]]:
        self._appender.save_heads(db)  # A run that began in this very transaction may have artifacts too.
        person = {"tenant": principal.tenant, "user": principal.user, "owner": str(principal)}
        owners = [owner for (owner,) in db.execute(_OWNERS, person).fetchall()]
        values = {**person, "living": json.dumps([owner for owner in owners if self._liveness.alive(owner)])}
        under_way = db.execute(_UNDER_WAY, values).fetchone()[0]
        contents = [sha256 for (sha256,) in db.execute(_CONTENTS, values)]
        with _overwriting(db):
            removed = {kind: db.execute(sql, values).rowcount for kind, sql in _DELETE.items()}
        return {**removed, "under_way": under_way}, contents


@contextmanager
def _overwriting(db: sqlite3.Connection) -> Generator[None]:
    """Have deleted rows overwritten with zeros instead of left in free pages."""
    db.execute("PRAGMA secure_delete = ON").fetchall()
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = OFF").fetchall()
