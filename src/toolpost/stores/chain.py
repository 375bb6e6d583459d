"""The hash chain of the event log: segments of events, each linked to the previous one of its run by a keyed hash.

A segment contains events of one call that are appended together, so they are encoded and hashed once. Its hash is a MAC
over the previous hash and its own fields (keyed BLAKE2b, RFC 7693); the first segment of a run continues from the run's
name. The facts about a user can be erased without breaking the chain: the hash stays, and a MAC authenticates the
erasure. With the key, any history can be written. Without it, every change, addition and removal is detected.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Any, NamedTuple, cast

import orjson

from toolpost.contracts.events import TRACEBACK, EventCode, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.stores.event_rendering import Entry, encode_any, encode_entry
from toolpost.stores.retention_rules import FORGOTTEN_USER, mentions

KEY_BYTES = 32
DIGEST_BYTES = 32
FORGOTTEN = "forgotten"
CHANGED_RECORD = "the run's record (its user, tool and status) was changed"

_log = logging.getLogger("toolpost.stores")
_number = struct.Struct(">Q").pack
# Personalization strings (RFC 7693 2.8) keep a MAC of one kind from passing for one of another.
_SEGMENT, _END, _FORGOTTEN = "toolpost events", "toolpost end", "toolpost forgot"


class Segment(NamedTuple):
    """A row of the table `segments`, with the name of its run; `events` is a JSON array of entries.

    `seq` is the number of the first event, `last_id` the id of the last. `forgotten` is a MAC if facts were erased.
    """

    last_id: int
    run_id: str
    tenant: str
    seq: int
    call_id: str
    user: str
    tool_name: str
    correlation_id: str
    events: str
    hash: bytes
    forgotten: bytes | None = None

    def entries(self) -> list[Entry]:
        """Parse the events; raise ValueError if they are damaged."""
        try:
            return [(EventCode(code), float(at), dict(facts)) for code, at, facts in json.loads(self.events)]
        except (TypeError, RecursionError) as error:
            raise ValueError("not the events of a segment") from error

    def unpack(self) -> list[StoredEvent]:
        """Build the stored events; none if the row is damaged, which `verify` reports."""
        try:
            return self._stored_events(self.entries())
        except (TypeError, ValueError, struct.error) as error:
            _log.warning("run %r: its events from %s on are damaged and skipped: %s", self.run_id, self.seq, error)
            return []

    def _stored_events(self, entries: Sequence[Entry]) -> list[StoredEvent]:
        first_id = self.last_id - len(entries) + 1
        return [
            StoredEvent(
                id=first_id + place,
                run_id=self.run_id,
                seq=self.seq + place,
                code=cast("EventCode", code),
                at=at,
                call_id=self.call_id,
                tenant=self.tenant,
                payload=self._payload(facts),
                # Unique for each event, although a segment has one hash.
                hash=sha256(self.hash + _number(self.seq + place)).hexdigest(),
                user=self.user,
                traceback=str(facts.get(TRACEBACK, "")),
            )
            for place, (code, at, facts) in enumerate(entries)
        ]

    def _payload(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts.get(FORGOTTEN) is True:
            return {"tool_name": self.tool_name, **facts}
        shown = {"tool_name": self.tool_name, "correlation_id": self.correlation_id, **facts}
        shown.pop(TRACEBACK, None)
        return shown


class LogKey:
    """The key of one event log: chains segments and computes MACs of rows."""

    __slots__ = ("_begun", "_ends", "_key", "_segments")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._segments, self._ends = self._begin(_SEGMENT), self._begin(_END)
        self._begun: dict[str, blake2b] = {}

    def __repr__(self) -> str:
        return "LogKey()"

    def chain(self, previous: bytes, names: tuple[int, int, str, str, str, str], events: bytes) -> bytes:
        """Return the hash of a segment that follows `previous`; raise TypeError if its names cannot be encoded.

        The names are the columns from the last id on, without the run. As JSON, no two fields can be confused.
        """
        mac = self._segments.copy()
        mac.update(previous + orjson.dumps(names) + events)
        return mac.digest()

    def end_mac(self, last: bytes) -> bytes:
        """Return the MAC of a run from the hash of its last segment."""
        mac = self._ends.copy()
        mac.update(last)
        return mac.digest()

    def mac_fields(self, kind: str, fields: Iterable[object]) -> bytes:
        """Return a MAC over the fields of a row; `kind` has at most 16 characters."""
        return self.mac(kind, "\0".join(map(repr, fields)).encode())  # repr is exact and never contains a NUL

    def mac(self, kind: str, message: bytes) -> bytes:
        """Return a MAC over a message."""
        begun = self._begun.get(kind) or self._begun.setdefault(kind, self._begin(kind))
        mac = begun.copy()
        mac.update(message)
        return mac.digest()

    def forget(self, segment: Segment, previous: bytes, who: Principal) -> tuple[Segment, int]:
        """Erase the facts about a user from a segment; return it with the number of events that lost facts.

        `previous` is the previous hash, or the start of the chain. A segment that was tampered with gets no MAC, so
        `verify` continues to report it.
        """
        mine = (segment.tenant, segment.user) == who
        whole = mine or mentions(segment.correlation_id, who)
        entries: list[Entry] = []
        forgotten = 0
        try:
            known = segment.entries()
        except ValueError:  # damaged, which `verify` continues to report
            known, forgotten = [], 1
        for code, at, facts in known:
            is_doomed = whole or mentions(encode_any(facts), who)
            entries.append((code, at, {FORGOTTEN: True} if is_doomed else facts))
            forgotten += is_doomed
        is_intact = self._is_intact(segment, previous)
        bare = segment._replace(
            user=FORGOTTEN_USER if mine else segment.user,
            correlation_id="" if whole else segment.correlation_id,
            events=f"[{','.join(map(encode_entry, entries))}]",
            forgotten=None,
        )
        mac = self.mac_fields(_FORGOTTEN, (*bare, previous)) if is_intact else b""
        return bare._replace(forgotten=mac), forgotten

    def find_breaks(
        self, segments: Iterable[tuple[Segment, Sequence[StoredEvent]]], start: bytes, *, last_seq: int, mac: bytes
    ) -> list[str]:
        """Return the problems of the segments of a run, given with their events in order; empty if the chain is intact.

        `start` is the `chain_start` of the run, `mac` its MAC.
        """
        problems: list[str] = []
        seq, previous = 0, start
        for segment, events in segments:
            last = segment.seq + max(1, len(events)) - 1
            if segment.seq != seq + 1:
                problems.append(f"event {seq + 1} is missing: event {segment.seq} follows event {seq}")
            if not self._is_intact(segment, previous):
                problems.append(_describe_change(segment.seq, last))
            seq, previous = last, segment.hash
        if seq != last_seq:
            problems.append(f"the run's record ends at event {last_seq}, its events end at {seq}")
        elif mac != self.end_mac(previous):
            problems.append(CHANGED_RECORD)
        return problems

    def _is_intact(self, segment: Segment, previous: bytes) -> bool:
        if segment.forgotten is not None:
            bare = segment._replace(forgotten=None)
            return segment.forgotten == self.mac_fields(_FORGOTTEN, (*bare, previous))
        last_id, _, _, seq, call_id, user, tool_name, correlation_id, events, *_ = segment
        names = (last_id, seq, call_id, user, tool_name, correlation_id)
        return segment.hash == self.chain(previous, names, events.encode())

    def _begin(self, kind: str) -> blake2b:
        """Return a keyed MAC to copy: hashing the key takes as long as hashing an event."""
        return blake2b(digest_size=DIGEST_BYTES, key=self._key, person=kind.encode())


def _describe_change(first: int, last: int) -> str:
    if last <= first:
        return f"event {first} was changed, or an event before it was"
    return f"events {first} to {last} were changed, or an event before them was"
