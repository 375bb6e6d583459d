"""The chain of a run: every event's hash covers the hash before it, so that no change goes unseen."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from struct import Struct
from typing import Any, TypeAlias

from toolpost.contracts.events import EventCode, StoredEvent

# A row of the table of events: run_id, seq, code, at, call_id, tenant, payload, hash.
Fields: TypeAlias = tuple[str, int, int, float, str, str, str, bytes]

_bits = Struct(">d").pack  # Exact, and a quarter of the time of the shortest repr.


def link_ids(run_id: str, call_id: str, tenant: str) -> str:
    """What the events of one call share; lengths keep two fields from being read as one."""
    return f"{len(run_id)}|{len(call_id)}|{len(tenant)}|{run_id}|{call_id}|{tenant}"


def link_hash(previous: bytes, ids: str, *, seq: int, code: int, at: float, payload: str) -> bytes:
    """The hash of an event after `previous`."""
    return sha256(previous + _bits(at) + f"{seq}|{code}|{ids}|{payload}".encode()).digest()


def find_breaks(rows: Iterable[Fields], *, last_seq: int, last_hash: bytes) -> list[str]:
    """What is wrong with a run's events, in order; empty when all is well."""
    problems: list[str] = []
    seq, previous = 0, b""
    for run_id, number, code, at, call_id, tenant, payload, digest in rows:
        if number != seq + 1:
            problems.append(f"event {seq + 1} is missing: event {number} follows event {seq}")
        ids = link_ids(run_id, call_id, tenant)
        if link_hash(previous, ids, seq=number, code=code, at=at, payload=payload) != digest:
            problems.append(f"event {number} was changed, or an event before it was")
        seq, previous = number, digest
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
        payload=_facts(payload),
        hash=digest.hex(),
    )


def _facts(payload: str) -> Any:
    """What an event tells; one that was damaged keeps nobody from the others, and `find_breaks` shows it."""
    try:
        return json.loads(payload)
    except ValueError as error:
        return {"unrenderable": type(error).__name__}
