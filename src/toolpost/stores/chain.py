"""The hash chain of the event log: keyed digests of events, linked within their run.

An event's digest is a MAC over its fields (keyed BLAKE2b, RFC 7693), and each link is the SHA-256 over the link before
it and the digest. A payload can therefore be removed without breaking the chain: the digest is kept in its place.
Whoever holds the key can write any history; without it nothing can be changed, added or removed unseen.
"""

from __future__ import annotations

import json
from hashlib import blake2b, sha256
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.contracts.compact_json import compact_encoder
from toolpost.contracts.events import EventCode, StoredEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_BYTES = 32
DIGEST_BYTES = 32
FORGOTTEN = "forgotten"

_bits = Struct(">d").pack  # Exact, and a quarter of the time of the shortest repr.
_compact = compact_encoder(ensure_ascii=False)
# Personalization strings (RFC 7693 2.8) keep a MAC of one kind from passing for one of another.
_EVENT, _FORGOTTEN = b"toolpost event", b"toolpost forgot"


class EventRow(NamedTuple):
    """A row of the table of events; `forgotten` holds the seal and the digest of a row whose payload was removed."""

    id: int
    run_id: str
    seq: int
    code: int
    at: float
    call_id: str
    tenant: str
    user: str
    payload: str
    hash: bytes
    forgotten: bytes | None = None


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


class LogKey:
    """The key of one event log: makes digests of events and seals of rows."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "LogKey()"

    def digest(self, ids: str, *, id: int, seq: int, code: int, at: float, payload: str) -> bytes:
        """Return the digest of an event; `ids` is what `join_ids` made."""
        text = _bits(at) + f"{id}|{seq}|{code}|{ids}|{payload}".encode()
        return blake2b(text, digest_size=DIGEST_BYTES, key=self._key, person=_EVENT).digest()

    def seal(self, kind: str, *fields: object) -> bytes:
        """Return a MAC over the fields of a row of some kind (at most 16 letters)."""
        return self._mac(kind.encode(), fields)

    def forget(self, row: EventRow, *, user: str) -> EventRow:
        """Remove what an event says, and keep its place in the chain; `user` is whose it is said to be from now on."""
        digest = row.forgotten[DIGEST_BYTES:] if row.forgotten else self._digest_of(row)
        bare = row._replace(user=user, payload=_without_facts(row.payload), forgotten=None)
        return bare._replace(forgotten=self._mac(_FORGOTTEN, (*bare, digest)) + digest)

    def find_breaks(self, rows: Iterable[EventRow], *, last_seq: int, last_hash: bytes) -> list[str]:
        """What is wrong with a run's events, in order; empty when all is well."""
        problems: list[str] = []
        seq, previous = 0, b""
        for row in rows:
            if row.seq != seq + 1:
                problems.append(f"event {seq + 1} is missing: event {row.seq} follows event {seq}")
            if not self._is_intact(row, previous):
                problems.append(f"event {row.seq} was changed, or an event before it was")
            seq, previous = row.seq, row.hash
        if (seq, previous) != (last_seq, last_hash):
            problems.append(f"the run's record ends at event {last_seq}, its events end at {seq}")
        return problems

    def _is_intact(self, row: EventRow, previous: bytes) -> bool:
        if row.forgotten is None:
            return link(previous, self._digest_of(row)) == row.hash
        seal, digest = row.forgotten[:DIGEST_BYTES], row.forgotten[DIGEST_BYTES:]
        bare = row._replace(forgotten=None)
        return seal == self._mac(_FORGOTTEN, (*bare, digest)) and link(previous, digest) == row.hash

    def _digest_of(self, row: EventRow) -> bytes:
        ids = join_ids(row.run_id, row.call_id, row.tenant, row.user)
        return self.digest(ids, id=row.id, seq=row.seq, code=row.code, at=row.at, payload=row.payload)

    def _mac(self, kind: bytes, fields: Iterable[object]) -> bytes:
        text = "\0".join([repr(field) for field in fields])  # repr is exact, and never holds a NUL
        return blake2b(text.encode(), digest_size=DIGEST_BYTES, key=self._key, person=kind).digest()


def join_ids(*ids: str) -> str:
    """What the events of one call share; lengths keep two fields from being read as one."""
    return "|".join([*map(str, map(len, ids)), *ids])


def link(previous: bytes, digest: bytes) -> bytes:
    """The link of the chain after `previous`."""
    return sha256(previous + digest).digest()


def plain_link(previous: bytes, ids: str, *, seq: int, code: int, at: float, payload: str) -> bytes:
    """The link of a chain without a key, as state stores of others and logs before the key have it."""
    return sha256(previous + _bits(at) + f"{seq}|{code}|{ids}|{payload}".encode()).digest()


def find_plain_breaks(rows: Iterable[PlainRow]) -> list[str]:
    """What is wrong with a chain without a key, in order; empty when all is well."""
    problems: list[str] = []
    seq, previous = 0, b""
    for row in rows:
        ids = join_ids(row.run_id, row.call_id, row.tenant)
        expected = plain_link(previous, ids, seq=row.seq, code=row.code, at=row.at, payload=row.payload)
        if row.seq != seq + 1:
            problems.append(f"event {seq + 1} is missing: event {row.seq} follows event {seq}")
        if expected != row.hash:
            problems.append(f"event {row.seq} was changed, or an event before it was")
        seq, previous = row.seq, row.hash
    return problems


def stored_event(row: EventRow) -> StoredEvent:
    """The event that a row stands for."""
    return StoredEvent(
        id=row.id,
        run_id=row.run_id,
        seq=row.seq,
        code=EventCode(row.code),
        at=row.at,
        call_id=row.call_id,
        tenant=row.tenant,
        payload=read_facts(row.payload),
        hash=row.hash.hex(),
    )


def _without_facts(payload: str) -> str:
    """What is left of a payload that was forgotten: the tool that was called."""
    return _compact({"tool_name": read_facts(payload).get("tool_name", ""), FORGOTTEN: True})


def read_facts(payload: str) -> dict[str, Any]:
    """What an event tells; one that was damaged keeps nobody from the others, and `find_breaks` shows it."""
    try:
        facts = json.loads(payload)
    except ValueError as error:
        return {"unrenderable": type(error).__name__}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {"unrenderable": type(facts).__name__}
