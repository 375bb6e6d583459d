"""The hash chain of the event log: segments of events, each linked to the one before it in its run by a keyed hash.

A segment holds events of one call that are appended together, so that they are encoded and hashed once. Its hash is a
MAC over the hash before it and its own fields (keyed BLAKE2b, RFC 7693); the first of a run goes on from its name. What
is told of a person can be removed without breaking the chain: the hash stays, and a seal says that the removal is ours.
Whoever holds the key can write any history; without it nothing can be changed, added or removed unseen.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from math import isfinite
from typing import Any, NamedTuple, TypeAlias, cast

import orjson
from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.events import TRACEBACK, CallRef, EventCode, RunEvent, RunSummary, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.schema.json_values import compact_encoder
from toolpost.stores.retention_rules import FORGOTTEN_USER, mentions

KEY_BYTES = 32
DIGEST_BYTES = 32
FORGOTTEN = "forgotten"
CHANGED_RECORD = "the run's record (whose it is, which tool, how it stands) was changed"

_log = logging.getLogger("toolpost.stores")
_number = struct.Struct(">Q").pack
_bits = struct.Struct(">d").pack  # Exact, and a quarter of the time of the shortest repr.
# Personalization strings (RFC 7693 2.8) keep a MAC of one kind from passing for one of another.
_SEGMENT, _END, _FORGOTTEN = "toolpost events", "toolpost end", "toolpost forgot"

# Well below the gigabyte at which SQLite refuses a value.
MAX_BYTES = 256 * 1024 * 1024
LARGE_SEGMENT = 1024 * 1024  # bytes; several events that need more become several segments
_encode_any = compact_encoder(allow_nan=False, ensure_ascii=False, default=str)
# Only what both encoders write alike: all else is refused, and left to the other one.
_EXACT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
FINISHED = frozenset({"completed", "failed"})
_NUMBERS = {code: int(code) for code in EventCode}  # in a third of the time of int()
_REQUESTED, _STARTED = int(EventCode.TOOL_CALL_REQUESTED), int(EventCode.TOOL_CALL_STARTED)
ASKED = frozenset({int(EventCode.APPROVAL_REQUESTED), int(EventCode.CALL_PAUSED)})
_ANSWERED = frozenset({int(EventCode.APPROVAL_GRANTED), int(EventCode.APPROVAL_DENIED), int(EventCode.CALL_RESUMED)})
_OPENING = frozenset({_REQUESTED, int(EventCode.CALL_RESUMED)})
_STATUS_BY_CODE: dict[int, str] = {
    _REQUESTED: "running",
    _STARTED: "running",
    int(EventCode.CALL_RESUMED): "running",
    int(EventCode.APPROVAL_REQUESTED): "paused",
    int(EventCode.CALL_PAUSED): "paused",
    int(EventCode.TOOL_CALL_COMPLETED): "completed",
    int(EventCode.TOOL_CALL_FAILED): "failed",
}

Entry: TypeAlias = tuple[int, float, Any]  # code, time and redacted facts of an event in a segment


class Segment(NamedTuple):
    """A row of the table of segments, with the name of its run; `events` is a JSON array of entries.

    `seq` is that of the first event, and the ids end with `last_id`. `forgotten` seals a row whose facts were removed.
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
        """Parse the events; ValueError where they were damaged."""
        try:
            return [(EventCode(code), float(at), dict(facts)) for code, at, facts in json.loads(self.events)]
        except (TypeError, RecursionError) as error:
            raise ValueError("not the events of a segment") from error

    def unpack(self) -> list[StoredEvent]:
        """Build the stored events; none where the row was damaged, which `verify` reports."""
        try:
            return self._stored_events(self.entries())
        except (TypeError, ValueError, struct.error) as error:
            _log.warning("run %r: its events from %s on are damaged and left out: %s", self.run_id, self.seq, error)
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
                # One that is the event's alone, for those who tell events apart by it.
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
    """The key of one event log: chains segments and makes seals of rows."""

    __slots__ = ("_begun", "_ends", "_key", "_segments")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._segments, self._ends = self._begin(_SEGMENT), self._begin(_END)
        self._begun: dict[str, blake2b] = {}

    def __repr__(self) -> str:
        return "LogKey()"

    def chain(self, previous: bytes, names: tuple[int, int, str, str, str, str], events: bytes) -> bytes:
        """Return the hash of a segment that follows `previous`; TypeError when its names cannot be encoded.

        The names are the columns from the last id on, without the run: as JSON none can be read as its neighbour.
        """
        mac = self._segments.copy()
        mac.update(previous + orjson.dumps(names) + events)
        return mac.digest()

    def seal_end(self, last: bytes) -> bytes:
        """Return the seal of a run whose last segment has this hash."""
        mac = self._ends.copy()
        mac.update(last)
        return mac.digest()

    def seal(self, kind: str, fields: Iterable[object]) -> bytes:
        """Return a MAC over the fields of a row of some kind (at most 16 letters)."""
        return self.mac(kind, "\0".join(map(repr, fields)).encode())  # repr is exact, and never holds a NUL

    def mac(self, kind: str, message: bytes) -> bytes:
        """Return a MAC over a message of some kind."""
        begun = self._begun.get(kind) or self._begun.setdefault(kind, self._begin(kind))
        mac = begun.copy()
        mac.update(message)
        return mac.digest()

    def forget(self, segment: Segment, previous: bytes, who: Principal) -> tuple[Segment, int]:
        """Remove what a segment tells of a person and keep its place in the chain; return also how many events lost it.

        `previous` is the hash of the segment before, or the start of the chain. A segment that was changed before gets
        no seal, so that `verify` goes on to report it.
        """
        mine = (segment.tenant, segment.user) == who
        whole = mine or mentions(segment.correlation_id, who)
        entries: list[Entry] = []
        forgotten = 0
        try:
            known = segment.entries()
        except ValueError:  # damaged, as `verify` goes on to say
            known, forgotten = [], 1
        for code, at, facts in known:
            is_doomed = whole or mentions(_encode_any(facts), who)
            entries.append((code, at, {FORGOTTEN: True} if is_doomed else facts))
            forgotten += is_doomed
        is_intact = self._is_intact(segment, previous)
        bare = segment._replace(
            user=FORGOTTEN_USER if mine else segment.user,
            correlation_id="" if whole else segment.correlation_id,
            events=f"[{','.join(map(_encode_entry, entries))}]",
            forgotten=None,
        )
        seal = self.seal(_FORGOTTEN, (*bare, previous)) if is_intact else b""
        return bare._replace(forgotten=seal), forgotten

    def find_breaks(
        self, segments: Iterable[tuple[Segment, Sequence[StoredEvent]]], start: bytes, *, last_seq: int, seal: bytes
    ) -> list[str]:
        """Return the problems of a run's segments, given with their events, in order; empty when the chain is intact.

        `start` comes from the run's `chain_start`; `seal` is that of the run.
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
        elif seal != self.seal_end(previous):
            problems.append(CHANGED_RECORD)
        return problems

    def _is_intact(self, segment: Segment, previous: bytes) -> bool:
        if segment.forgotten is not None:
            bare = segment._replace(forgotten=None)
            return segment.forgotten == self.seal(_FORGOTTEN, (*bare, previous))
        last_id, _, _, seq, call_id, user, tool_name, correlation_id, events, *_ = segment
        names = (last_id, seq, call_id, user, tool_name, correlation_id)
        return segment.hash == self.chain(previous, names, events.encode())

    def _begin(self, kind: str) -> blake2b:
        """Return a MAC with the key in it, to be copied: the key takes as long to hash as an event."""
        return blake2b(digest_size=DIGEST_BYTES, key=self._key, person=kind.encode())


def _describe_change(first: int, last: int) -> str:
    if last <= first:
        return f"event {first} was changed, or an event before it was"
    return f"events {first} to {last} were changed, or an event before them was"


def join_ids(*ids: str) -> str:
    """Join the ids of an event for a chain without a key; lengths keep two fields from being read as one."""
    return "|".join([*map(str, map(len, ids)), *ids])


def plain_link(previous: bytes, ids: str, *, seq: int, code: int, at: float, payload: str) -> bytes:
    """Return the link of a chain without a key, for state stores of others and logs of older versions."""
    return sha256(previous + _bits(at) + f"{seq}|{code}|{ids}|{payload}".encode()).digest()


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
            problems.append(_describe_change(row.seq, row.seq))
        seq, previous = row.seq, row.hash
    return problems


class RenderedEvents(Struct, frozen=True, gc=False):
    """Events of one call as a segment holds them: redacted, `text` as a JSON array of entries."""

    events: Sequence[RunEvent]
    codes: tuple[int, ...]
    tool_name: str
    correlation_id: str
    text: bytes


def render_segments(call: CallRef, events: Sequence[RunEvent]) -> Sequence[RenderedEvents]:
    """Render events of one call as one segment, or as several where it would be large."""
    rendered = render_events(call, events)
    if len(rendered.text) <= LARGE_SEGMENT or len(events) == 1:
        return (rendered,)
    half = len(events) // 2
    return (*render_segments(call, events[:half]), *render_segments(call, events[half:]))


def render_events(call: CallRef, events: Sequence[RunEvent]) -> RenderedEvents:
    """Redact and render events of one call; never raises, because an event must not be lost."""
    codes = tuple([_NUMBERS.get(event.code) or int(event.code) for event in events])
    try:
        tool_name, correlation_id, entries = _redact_events(call, events, codes)
        text = orjson.dumps(entries, option=_EXACT)
        # `in` would try a number first. NaN, too, is written as null.
        if text.find(b"null") >= 0 or len(text) > MAX_BYTES:
            text = _fit_to_store(_encode_any(entries))
    except Exception:  # noqa: BLE001 - one of them holds what is no JSON, or its redaction failed: say which
        tool_name, correlation_id, text = _render_one_by_one(call, events)
    return RenderedEvents(events, codes, tool_name, correlation_id, text)


def _redact_events(call: CallRef, events: Sequence[RunEvent], codes: Sequence[int]) -> tuple[str, str, list[Entry]]:
    """Redact the names of a call and the facts of its events.

    The names are redacted together with the first facts. The arguments of a call's request and its start are mostly
    one object, and then redacted once.
    """
    redact, first = call.redact, events[0].facts
    if "tool_name" in first or "correlation_id" in first:
        names, shown = redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id}), redact(first)
    else:
        names = shown = redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id, **first})
    tool_name, correlation_id = names.pop("tool_name", ""), names.pop("correlation_id", "")
    entries: list[Entry] = [(codes[0], events[0].at, shown)]
    arguments = first.get("params", redact) if codes[0] == _REQUESTED else redact  # which is nobody's arguments
    for place in range(1, len(codes)):
        event, code = events[place], codes[place]
        facts = event.facts
        if code == _STARTED and len(facts) == 1 and facts.get("input", entries) is arguments:
            entries.append((code, event.at, {"input": shown["params"]}))
        else:
            entries.append((code, event.at, redact(facts)))
    if not are_ascii(tool_name, correlation_id):
        tool_name, correlation_id = escape_surrogates(tool_name), escape_surrogates(correlation_id)
    return tool_name, correlation_id, entries


def _render_one_by_one(call: CallRef, events: Sequence[RunEvent]) -> tuple[str, str, bytes]:
    try:
        tool_name, correlation_id, _ = _redact_events(call, [replace(events[0], facts={})], (0,))
    except Exception:  # noqa: BLE001 - the redaction of foreign code; each event says so
        tool_name = correlation_id = ""
    text = f"[{','.join([_render_event(call, event) for event in events])}]"
    return tool_name, correlation_id, text.encode()


def _render_event(call: CallRef, event: RunEvent) -> str:
    code, at = int(event.code), finite_time(event.at)
    try:
        return _encode_entry((code, at, call.redact(event.facts)))
    except Exception as exc:  # noqa: BLE001 - foreign values and the redaction of foreign code; that it happened is kept
        return _encode_entry((code, at, {"unrenderable": type(exc).__name__}))


def finite_time(at: float) -> float:
    """Return the time of an event, 0 for one that is no number: SQLite has none for it."""
    return float(at) if isfinite(at) else 0.0


def _encode_entry(entry: Entry) -> str:
    try:
        text = _encode_any(entry)
    except ValueError:
        text = _encode_any(_without_nan(entry))
    return _fit_to_store(text).decode()


def _without_nan(entry: Entry) -> Any:
    """Replace NaN and the infinities, which are not JSON, by their names."""
    return json.loads(json.dumps(entry, default=str), parse_constant=str)


def _fit_to_store(text: str) -> bytes:
    """Encode a JSON text, with lone surrogates escaped; OverflowError when it is too large."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = json.dumps(json.loads(text), separators=(",", ":")).encode()
    if len(encoded) > MAX_BYTES:
        raise OverflowError(len(encoded))
    return encoded


class RunHead(Struct, gc=False):
    """The state of a run after its last event. Mutable: it advances with every segment.

    `nr` numbers the runs of a log in the order of their first events; `open_calls` counts calls that were requested
    and have not ended. `hash` is that of the last segment, and `seal` what the table holds of it.
    """

    nr: int
    run_id: str
    tenant: str
    user: str
    tool_name: str
    status: str
    started_at: float
    updated_at: float
    seq: int
    seal: bytes
    root_call: str
    open_calls: int
    hash: bytes = b""

    @classmethod
    def of_first(cls, call: CallRef, at: float, nr: int = 0) -> RunHead:
        """Return the head before a run's first event; a run without calls counts as completed.

        Raises when the name of the run cannot be encoded.
        """
        run_id, tenant, user, tool_name = call.run_id, call.tenant, call.user, call.tool_name
        if not are_ascii(user, tool_name):
            user, tool_name = escape_surrogates(user), escape_surrogates(tool_name)
        start, began = chain_start(nr, run_id, tenant, tool_name), finite_time(at)
        return cls(nr, run_id, tenant, user, tool_name, "completed", began, began, 0, b"", call.call_id, 0, start)

    @property
    def chain_start(self) -> bytes:
        """What the first segment goes on from; whoever changes these columns breaks the chain."""
        return chain_start(self.nr, self.run_id, self.tenant, self.tool_name)

    def append(
        self, call: CallRef, rendered: RenderedEvents, last_id: int, key: LogKey
    ) -> tuple[int, int, int, str, str, str, str, str, bytearray]:
        """Number and chain events of one call; return the columns of their segment.

        Raises, without a change, when an id cannot be encoded.
        """
        tool_name, correlation_id, text = rendered.tool_name, rendered.correlation_id, rendered.text
        call_id, user, first = call.call_id, call.user, self.seq + 1
        names = (last_id, first, call_id, user, tool_name, correlation_id)
        self.hash = chained = key.chain(self.hash, names, text)
        self.seq += len(rendered.codes)
        self.updated_at = finite_time(rendered.events[-1].at)
        self._follow(rendered.codes, call_id)
        # For bytes sqlite3 searches adapters in vain, which takes longer than to insert them.
        return last_id, self.nr, first, call_id, user, tool_name, correlation_id, text.decode(), bytearray(chained)

    def update_status(self, code: int, call_id: str) -> None:
        """Update the status after an event."""
        self._follow((code,), call_id)

    def _follow(self, codes: tuple[int, ...], call_id: str) -> None:
        """Update the status after events of one call."""
        is_root = call_id == self.root_call
        self.status, self.open_calls, leads = _follow_codes(self.status, self.open_calls, codes, is_root)
        if leads:
            self.root_call = call_id

    def columns(self) -> tuple[Any, ...]:
        """Return the values of the table's columns."""
        return (
            self.nr,
            self.run_id,
            self.tenant,
            self.user,
            self.tool_name,
            self.status,
            self.started_at,
            self.updated_at,
            self.seq,
            bytearray(self.seal),
            self.root_call,
            self.open_calls,
        )

    def agrees_with(self, events: Sequence[StoredEvent]) -> bool:
        """Return whether the head is as the events of the run leave it."""
        if not events:
            return True  # the chain tells how many are missing
        first, last = events[0], events[-1]
        call = CallRef(self.run_id, first.call_id, self.tool_name, self.tenant, first.user, "", dict)
        head = RunHead.of_first(call, first.at, self.nr)
        for event in events:
            head.update_status(int(event.code), event.call_id)
        head.seq, head.seal, head.hash, head.updated_at = self.seq, self.seal, self.hash, last.at
        return head == self

    def summary(self) -> RunSummary:
        """Return the summary of the run."""
        return RunSummary(
            run_id=self.run_id,
            tenant=self.tenant,
            user=self.user,
            tool_name=self.tool_name,
            status=self.status,
            started_at=self.started_at,
            updated_at=self.updated_at,
            events=self.seq,
            call_id=self.root_call,
        )


@lru_cache(maxsize=1024)  # nearly all calls have one of few sequences
def _follow_codes(
    status: str,
    open_calls: int,
    codes: tuple[int, ...],
    is_root: bool,  # noqa: FBT001 - the cache takes twice as long with a keyword
) -> tuple[str, int, bool]:
    """Return the status of a run after events of a call, its open calls, and whether that call leads the run now.

    A run ends with the call that began it, not with a nested call. After its end another call, or the answer to a
    question, may start the run again.
    """
    leads = is_root
    for code in codes:
        turn = _STATUS_BY_CODE.get(code)
        if turn is None:
            continue
        if code == _REQUESTED:
            open_calls += 1
        elif turn in FINISHED and open_calls:
            open_calls -= 1
        if status in FINISHED:
            if code in _OPENING:
                leads, status = True, turn
        elif turn not in FINISHED or leads:
            status = turn
    return status, open_calls, leads


def chain_start(nr: int, run_id: str, tenant: str, tool_name: str) -> bytes:
    """Return what the first segment of a run goes on from; TypeError when a name cannot be encoded."""
    return orjson.dumps((nr, run_id, tenant, tool_name))


def escape_call_ids(call: CallRef) -> CallRef:
    """Escape lone surrogates in the ids of a call; returns the same object where there are none."""
    if (call.run_id + call.call_id + call.tenant + call.user).isascii():
        return call
    return replace(
        call,
        run_id=escape_surrogates(call.run_id),
        call_id=escape_surrogates(call.call_id),
        tenant=escape_surrogates(call.tenant),
        user=escape_surrogates(call.user),
    )


def are_ascii(*texts: str) -> bool:
    """Return whether nothing in these texts needs to be escaped, as in nearly all."""
    try:
        return "".join(texts).isascii()
    except TypeError:  # a caller may have taken something else for an id
        return False


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates in a text."""
    whole = str(text)
    return whole if whole.isascii() else whole.encode("utf-8", "backslashreplace").decode()


def find_open_calls(events: Iterable[StoredEvent]) -> list[RunSummary]:
    """Return the calls of a run that were requested and have not ended, innermost first, each as a summary."""
    found: dict[str, RunHead] = {}
    for event in events:
        tool_name = event.payload.get("tool_name", "")
        call = CallRef(event.run_id, event.call_id, tool_name, event.tenant, event.user, "", dict)
        head = found.setdefault(event.call_id, RunHead.of_first(call, event.at))
        head.seq, head.updated_at = head.seq + 1, event.at
        head.update_status(int(event.code), event.call_id)
    return [head.summary() for head in reversed(found.values()) if head.open_calls]


def find_second_answers(events: Iterable[StoredEvent]) -> Iterator[str]:
    """Report questions that were answered again without being asked again."""
    answered: set[str] = set()
    for event in events:
        if event.code not in ASKED | _ANSWERED:
            continue
        question = event.payload.get("pending_id")
        if event.code in ASKED:
            answered.discard(question)
        elif question is not None and not event.payload.get("recovered"):
            if question in answered:
                yield f"question {question!r} was answered a second time, by event {event.seq}"
            answered.add(question)
