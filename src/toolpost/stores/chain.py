"""The chain of a run: every event's hash covers the hash before it, so that no change goes unseen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from struct import Struct
from typing import TypeAlias

from toolpost.contracts.events import EventCode, StoredEvent

# A row of the table of events: run_id, seq, code, at, call_id, tenant, payload, hash.
Fields: TypeAlias = tuple[str, int, int, float, str, str, str, bytes]

_bits = Struct(">d").pack  # Exact, and a quarter of the time of the shortest repr.


def link_hash(
    previous: bytes, run_id: str, seq: int, code: int, at: float, call_id: str, tenant: str, payload: str
) -> bytes:
    """The hash of an event after `previous`; lengths keep two fields from being read as one."""
    text = f"{seq}|{code}|{len(run_id)}|{len(call_id)}|{len(tenant)}|{run_id}|{call_id}|{tenant}|{payload}"
    return sha256(previous + _bits(at) + text.encode()).digest()


def find_breaks(rows: Iterable[Fields], *, last_seq: int, last_hash: bytes) -> list[str]:
    """What is wrong with a run's events, in order; empty when all is well."""
    problems: list[str] = []
    seq, previous = 0, b""
    for row in rows:
        if row[1] != seq + 1:
            problems.append(f"event {seq + 1} is missing: event {row[1]} follows event {seq}")
        if link_hash(previous, *row[:7]) != row[7]:
            problems.append(f"event {row[1]} was changed, or an event before it was")
        seq, previous = row[1], row[7]
    if (seq, previous) != (last_seq, last_hash):
        problems.append(f"the run's record ends at event {last_seq}, its events end at {seq}")
    return problems


def stored_event(id: int, row: Fields) -> StoredEvent:
    """The event that a row stands for."""
    run_id, seq, code, at, call_id, tenant, payload, digest = row
    return StoredEvent(
        id=id,
        run_id=run_id,
        seq=seq,
        code=EventCode(code),
        at=at,
        call_id=call_id,
        tenant=tenant,
        payload=json.loads(payload),
        hash=digest.hex(),
    )
