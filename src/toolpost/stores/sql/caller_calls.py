"""The calls that a caller of the gateway made."""

from __future__ import annotations

import json
from collections.abc import Iterator

from toolpost.contracts.callers import CALLER_KEY_RUN, KEY_ID
from toolpost.contracts.events import CALLER, EventCode
from toolpost.contracts.principal import Principal
from toolpost.stores.sql.database import Statements

_CALLS = "SELECT run, call_id, events FROM segments WHERE strpos(events, :caller) > 0"
# The gateway begins a run for each call of a key, for the user of the key. By the index of users, it takes a thirtieth
# of the time for a thousandth of the runs (measured 2026-11).
_CALLS_OF_USER = f'{_CALLS} AND run IN (SELECT nr FROM runs WHERE tenant = :tenant AND "user" = :user)'  # noqa: S608 - constants
_KEY = 'SELECT tenant, "user" FROM caller_keys WHERE id = :id'
_KEY_EVENTS = """
SELECT events FROM segments WHERE run IN (SELECT nr FROM runs WHERE run_id = :run_id) AND strpos(events, :id) > 0
"""
_REQUESTS = frozenset({int(EventCode.TOOL_CALL_REQUESTED)})


def calls_by(db: Statements, caller: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the run and the ID of each call that a caller made."""
    user = _user_of(db, caller.removeprefix(KEY_ID)) if caller.startswith(KEY_ID) else None
    values = {"caller": json.dumps(caller)}
    if user is not None:
        values |= {"tenant": user.tenant, "user": user.user}
    # The text may also be an argument of another caller's call, so each request is checked.
    for nr, call_id, events in db.execute(_CALLS if user is None else _CALLS_OF_USER, values):
        if any(facts.get(CALLER) == caller for code, _, facts in json.loads(events) if code in _REQUESTS):
            yield nr, call_id


def _user_of(db: Statements, key_id: str) -> Principal | None:
    """Return the user of a key, also of a revoked one; None if the store does not contain it."""
    row = db.execute(_KEY, {"id": key_id}).fetchone()
    if row is not None:
        return Principal(*row)
    for (events,) in db.execute(_KEY_EVENTS, {"run_id": CALLER_KEY_RUN, "id": json.dumps(key_id)}):
        for _, _, facts in json.loads(events):
            if facts.get("key_id") == key_id and isinstance(facts.get("user"), str):
                return Principal.parse(facts["user"])
    return None
