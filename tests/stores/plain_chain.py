"""A check of the chain without a key that events in a state store have."""

from collections.abc import Iterable
from typing import NamedTuple

from toolpost.stores.state_events import join_ids, plain_link


class PlainRow(NamedTuple):
    """An event in a chain without a key."""

    run_id: str
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    payload: str
    hash: bytes


def find_plain_breaks(rows: Iterable[PlainRow]) -> list[str]:
    """Return the problems of a chain without a key, in order; empty when it is intact."""
    problems: list[str] = []
    seq, previous = 0, b""
    for row in rows:
        ids = join_ids(row.run_id, row.call_id, row.tenant)
        if row.seq != seq + 1:
            problems.append(f"event {seq + 1} is missing: event {row.seq} follows event {seq}")
        if row.hash != plain_link(previous, ids, seq=row.seq, code=row.code, at=row.at, payload=row.payload):
            problems.append(f"event {row.seq} was changed, or an event before it was")
        seq, previous = row.seq, row.hash
    return problems
