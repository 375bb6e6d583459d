"""Details of runs, from the segments of a database."""

from __future__ import annotations

from toolpost.contracts.events import EventCode, RunDetails, RunSummary
from toolpost.stores.run_details import describe_run, read_facts
from toolpost.stores.run_heads import FINISHED
from toolpost.stores.sql.database import Statements

_PROGRESS = int(EventCode.SUBAGENT_ACTION)
_OF_RUN = "run = (SELECT nr FROM runs WHERE run_id = :run_id AND tenant = :tenant)"
# Codes below 450 are those of calls and questions.
_OF_CALLS = " OR ".join([f"strpos(codes, '4{digit}') > 0" for digit in range(5)])
_DETAILS = f"SELECT call_id, correlation_id, events FROM segments WHERE {_OF_RUN} AND ({_OF_CALLS}) ORDER BY seq"  # noqa: S608 - constants, here and below
_LAST_PROGRESS = f"""
SELECT call_id, events FROM segments WHERE {_OF_RUN} AND strpos(codes, '{_PROGRESS}') > 0 ORDER BY seq DESC LIMIT 1
"""  # noqa: S608
_PARENT = "SELECT run_id FROM runs WHERE run_id = :parent AND tenant = :tenant AND run_id <> :run_id"


def describe_stored_run(db: Statements, run: RunSummary) -> RunDetails:
    """Return the details of a run."""
    values = {"run_id": run.run_id, "tenant": run.tenant}
    segments = db.execute(_DETAILS, values).fetchall()
    events = [entry for call_id, _, text in segments for entry in read_facts(call_id, text)]
    if run.status not in FINISHED:
        reports = db.execute(_LAST_PROGRESS, values)
        events += [one for call_id, text in reports for one in read_facts(call_id, text) if one.code == _PROGRESS]
    parent = db.execute(_PARENT, {**values, "parent": segments[0][1]}).fetchone() if segments else None
    return describe_run(run, events, parent_run=None if parent is None else parent[0])
