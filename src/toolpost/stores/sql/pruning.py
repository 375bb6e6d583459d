"""Prune a store by age and quota."""

from __future__ import annotations

from collections import Counter
from functools import partial

from toolpost.contracts.storage import Retention
from toolpost.stores.retention_rules import PRUNED, ArtifactSize, over_quota
from toolpost.stores.sql.contents import ContentStore
from toolpost.stores.sql.database import SharedDatabase, SQLConnection
from toolpost.stores.sql.metrics import prune_metrics

# Few enough that other writes do not wait long for one step.
RUNS_A_STEP = 200

# NOT EXISTS uses indexes; for NOT IN, PostgreSQL compares every pair of rows once the list outgrows its memory.
_WITHOUT_RUN = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = one.run_id AND runs.tenant = one.tenant)"
_UNSETTLED = """
SELECT 1 FROM pending WHERE pending.run_id = one.run_id AND pending.tenant = one.tenant
AND pending.status IN ('open', 'claimed')
"""
_UNFINISHED = """
SELECT 1 FROM journal WHERE journal.run_id = one.run_id AND journal.tenant = one.tenant
AND journal.result IS NULL AND journal.step = ''
"""
_OLD_RUNS = f"""
SELECT nr, run_id, tenant, mac FROM runs AS one
WHERE status IN ('completed', 'failed') AND updated_at < :cutoff
AND NOT EXISTS ({_UNSETTLED}) AND NOT EXISTS ({_UNFINISHED}) LIMIT {RUNS_A_STEP}
FOR UPDATE
"""  # noqa: S608 - constants, here and below
_IN_THESE = "(run_id, tenant) IN (SELECT run_id, tenant FROM runs WHERE nr = ANY(:runs))"
# Planner state has no tenant: it stays while any tenant has a run of that name.
_ALONE = """
SELECT run_id FROM runs WHERE nr = ANY(:runs)
AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.run_id = runs.run_id AND NOT other.nr = ANY(:runs))
"""
_COUNT_EVENTS = "SELECT coalesce(sum(last_seq), 0) FROM runs WHERE nr = ANY(:runs)"
_OF_RUNS = {
    "keys": "DELETE FROM keys WHERE call_id IN (SELECT call_id FROM segments WHERE run = ANY(:runs))",
    "segments": "DELETE FROM segments WHERE run = ANY(:runs)",
    "journal": f"DELETE FROM journal WHERE {_IN_THESE}",  # noqa: S608
    "pending": f"DELETE FROM pending WHERE {_IN_THESE}",  # noqa: S608
    "state": f"DELETE FROM state WHERE kind IN ('event', 'binding') AND key IN ({_ALONE})",  # noqa: S608
    "runs": "DELETE FROM runs WHERE nr = ANY(:runs)",
}
_BY_AGE = {
    "keys": "DELETE FROM keys WHERE outcome IS NOT NULL AND at < :cutoff",
    "journal": f"""
        DELETE FROM journal AS one WHERE (result IS NOT NULL OR step <> '') AND at < :cutoff AND {_WITHOUT_RUN}
    """,  # noqa: S608
    "pending": f"""
        DELETE FROM pending AS one WHERE status NOT IN ('open', 'claimed') AND created_at < :cutoff AND {_WITHOUT_RUN}
    """,  # noqa: S608
    "cancels": "DELETE FROM cancels WHERE at < :cutoff",
    "state": "DELETE FROM state WHERE until < :cutoff",
    "jobs": "DELETE FROM jobs WHERE ended_at < :cutoff",
    "artifacts": f"DELETE FROM artifacts AS one WHERE created_at < :cutoff AND NOT EXISTS ({_UNSETTLED})",  # noqa: S608
}
_WEIGHED = "SELECT id, sha256, size FROM artifacts ORDER BY created_at, rowid"
_SPARED = f"SELECT id FROM artifacts AS one WHERE EXISTS ({_UNSETTLED})"  # noqa: S608
_DELETE_ARTIFACTS = "DELETE FROM artifacts WHERE id = ANY(:ids)"


class Pruner:
    """Deletes old finished runs and artifacts over the quota, in small transactions."""

    def __init__(self, shared: SharedDatabase, contents: ContentStore) -> None:
        self._shared = shared
        self._contents = contents

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        """Delete records past the limits, and contents without an artifact; return the number of each kind."""
        removed = Counter(dict.fromkeys(PRUNED, 0))
        if retention.max_age_s is not None:
            cutoff = now - retention.max_age_s
            while step := await self._shared.write(partial(self._prune_runs, cutoff=cutoff)):
                removed.update(step)
            removed.update(await self._shared.write(partial(_prune_by_age, cutoff=cutoff)))
        if retention.max_artifact_bytes is not None:
            over = partial(_prune_over_quota, max_bytes=retention.max_artifact_bytes)
            removed["artifacts"] += await self._shared.write(over)
        oldest = 0.0 if retention.max_age_s is None else now - retention.max_age_s
        removed["metrics"] = await self._shared.write(partial(prune_metrics, cutoff=oldest, now=now))
        removed["files"] = await self._contents.collect(now)
        return dict(removed)

    def _prune_runs(self, db: SQLConnection, *, cutoff: float) -> dict[str, int]:
        db.save_heads()  # a run that continues in this transaction is not old
        runs = db.execute(_OLD_RUNS, {"cutoff": cutoff}).fetchall()
        if not runs:
            return {}
        values = {"runs": [nr for nr, *_ in runs]}
        events = int(db.execute(_COUNT_EVENTS, values).fetchone()[0])
        removed = {table: db.execute(sql, values).rowcount for table, sql in _OF_RUNS.items()}
        del removed["segments"]
        db.remove_runs([((tenant, run_id), mac) for _, run_id, tenant, mac in runs])
        return {**removed, "events": events}


def _prune_by_age(db: SQLConnection, *, cutoff: float) -> dict[str, int]:
    return {table: db.execute(sql, {"cutoff": cutoff}).rowcount for table, sql in _BY_AGE.items()}


def _prune_over_quota(db: SQLConnection, *, max_bytes: int) -> int:
    spared = {row[0] for row in db.execute(_SPARED)}
    gone = over_quota((ArtifactSize(*row) for row in db.execute(_WEIGHED)), spared=spared, max_bytes=max_bytes)
    return db.execute(_DELETE_ARTIFACTS, {"ids": gone}).rowcount
