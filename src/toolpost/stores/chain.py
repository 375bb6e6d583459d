"""The hash chain of the event log: keyed digests of events, linked within their run, and the head of each run.

An event's digest is a MAC over its fields (keyed BLAKE2b, RFC 7693), and each link is the SHA-256 over the link before
it and the digest. A payload can therefore be removed without breaking the chain: the digest is kept in its place.
Whoever holds the key can write any history; without it nothing can be changed, added or removed unseen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b, sha256
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import orjson
from msgspec.structs import replace

from toolpost.contracts.events import CallRef, EventCode, RunEvent, RunSummary, StoredEvent, redacted_payload
from toolpost.schema.json_values import compact_encoder

KEY_BYTES = 32
DIGEST_BYTES = 32
FORGOTTEN = "forgotten"

_bits = Struct(">d").pack  # Exact, and a quarter of the time of the shortest repr.
_compact = compact_encoder(ensure_ascii=False)
# Personalization strings (RFC 7693 2.8) keep a MAC of one kind from passing for one of another.
_EVENT, _FORGOTTEN = b"toolpost event", b"toolpost forgot"

# Well below the gigabyte at which SQLite refuses a value.
MAX_BYTES = 256 * 1024 * 1024
_WIDEST = 4  # bytes of a character in UTF-8
_encode_any = compact_encoder(allow_nan=False, ensure_ascii=False, default=str)
# Only what both encoders write alike: all else is refused, and left to the other one.
_EXACT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_LATEST = 1e15  # in seconds
_UNKNOWN = object()
FINISHED = frozenset({"completed", "failed"})
# By plain numbers: hashing an enum's member runs Python code, and this is looked up for every event.
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
_head_columns = attrgetter(
    *("nr", "run_id", "tenant", "user", "tool_name", "status", "started_at", "updated_at", "seq", "hash"),
    *("root_call", "open_calls"),
)


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


RowFields: TypeAlias = tuple[int, str, int, int, float, str, str, str, str, bytes]  # of a row as it is appended


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


ChainRow = TypeVar("ChainRow", EventRow, PlainRow)


class LogKey:
    """The key of one event log: makes digests of events and seals of rows."""

    __slots__ = ("_begun", "_events", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._events = self._begin(_EVENT)
        self._begun: dict[bytes, blake2b] = {}

    def __repr__(self) -> str:
        return "LogKey()"

    def digest(self, ids: str, id: int, seq: int, code: int, at: float, payload: str) -> bytes:
        """Return the digest of an event; `ids` comes from `join_ids`."""
        mac = self._events.copy()
        mac.update(_bits(at) + f"{id}|{seq}|{code}|{ids}|{payload}".encode())
        return mac.digest()

    def seal(self, kind: str, fields: Iterable[object]) -> bytes:
        """Return a MAC over the fields of a row of some kind (at most 16 letters)."""
        return self.seal_text(kind, _join_fields(fields))

    def seal_text(self, kind: str, text: str) -> bytes:
        """Return the MAC that `seal` would of fields whose text this is: the repr of each, with a NUL between."""
        return self._mac(kind.encode(), text)

    def forget(self, row: EventRow, *, user: str) -> EventRow:
        """Remove the payload of an event and keep its place in the chain; `user` replaces its user."""
        digest = row.forgotten[DIGEST_BYTES:] if row.forgotten else self._digest_of(row)
        bare = row._replace(user=user, payload=_forgotten_payload(row.payload), forgotten=None)
        return bare._replace(forgotten=self._mac(_FORGOTTEN, _join_fields((*bare, digest))) + digest)

    def find_breaks(self, rows: Iterable[EventRow], *, last_seq: int, last_hash: bytes) -> list[str]:
        """Return the problems of a run's events, in order; empty when the chain is intact."""
        problems, end = _find_gaps(rows, self._is_intact)
        if end != (last_seq, last_hash):
            problems.append(f"the run's record ends at event {last_seq}, its events end at {end[0]}")
        return problems

    def _is_intact(self, row: EventRow, previous: bytes) -> bool:
        if row.forgotten is None:
            return link(previous, self._digest_of(row)) == row.hash
        seal, digest = row.forgotten[:DIGEST_BYTES], row.forgotten[DIGEST_BYTES:]
        bare = row._replace(forgotten=None)
        return seal == self._mac(_FORGOTTEN, _join_fields((*bare, digest))) and link(previous, digest) == row.hash

    def _digest_of(self, row: EventRow) -> bytes:
        ids = join_ids(row.run_id, row.call_id, row.tenant, row.user)
        return self.digest(ids, row.id, row.seq, row.code, row.at, row.payload)

    def _mac(self, kind: bytes, text: str) -> bytes:
        begun = self._begun.get(kind) or self._begun.setdefault(kind, self._begin(kind))
        mac = begun.copy()
        mac.update(text.encode())
        return mac.digest()

    def _begin(self, kind: bytes) -> blake2b:
        """Return a MAC with the key in it, to be copied: the key takes as long to hash as an event."""
        return blake2b(digest_size=DIGEST_BYTES, key=self._key, person=kind)


def _join_fields(fields: Iterable[object]) -> str:
    return "\0".join(map(repr, fields))  # repr is exact, and never holds a NUL


def join_ids(*ids: str) -> str:
    """Join the ids of a call for the digest; lengths keep two fields from being read as one."""
    return "|".join([*map(str, map(len, ids)), *ids])


def link(previous: bytes, digest: bytes) -> bytes:
    """Return the link that follows `previous`."""
    return sha256(previous + digest).digest()


def plain_link(previous: bytes, ids: str, *, seq: int, code: int, at: float, payload: str) -> bytes:
    """Return the link of a chain without a key, for state stores of others and logs of older versions."""
    return sha256(previous + _bits(at) + f"{seq}|{code}|{ids}|{payload}".encode()).digest()


def find_plain_breaks(rows: Iterable[PlainRow]) -> list[str]:
    """Return the problems of a chain without a key, in order; empty when it is intact."""
    return _find_gaps(rows, _is_plain_intact)[0]


def _is_plain_intact(row: PlainRow, previous: bytes) -> bool:
    ids = join_ids(row.run_id, row.call_id, row.tenant)
    return row.hash == plain_link(previous, ids, seq=row.seq, code=row.code, at=row.at, payload=row.payload)


def _find_gaps(
    rows: Iterable[ChainRow], is_intact: Callable[[ChainRow, bytes], bool]
) -> tuple[list[str], tuple[int, bytes]]:
    """Return the events that are missing or changed, and the number and the link of the last one."""
    problems: list[str] = []
    seq, previous = 0, b""
    for row in rows:
        if row.seq != seq + 1:
            problems.append(f"event {seq + 1} is missing: event {row.seq} follows event {seq}")
        if not is_intact(row, previous):
            problems.append(f"event {row.seq} was changed, or an event before it was")
        seq, previous = row.seq, row.hash
    return problems, (seq, previous)


def stored_event(row: EventRow) -> StoredEvent:
    """Build the stored event of a row."""
    return StoredEvent(
        id=row.id,
        run_id=row.run_id,
        seq=row.seq,
        code=EventCode(row.code),
        at=row.at,
        call_id=row.call_id,
        tenant=row.tenant,
        payload=parse_payload(row.payload),
        hash=row.hash.hex(),
        user=row.user,
    )


def _forgotten_payload(payload: str) -> str:
    """Return the payload of a forgotten event: only the tool name is left."""
    return _compact({"tool_name": parse_payload(payload).get("tool_name", ""), FORGOTTEN: True})


def parse_payload(payload: str) -> dict[str, Any]:
    """Parse the payload of an event; a damaged one becomes `unrenderable` instead of an error."""
    try:
        facts = json.loads(payload)
    except ValueError as error:
        return {"unrenderable": type(error).__name__}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {"unrenderable": type(facts).__name__}


def payload_text(event: RunEvent, start: str = "") -> str:
    """Render the redacted payload of an event as JSON; never raises, because an event must not be lost.

    `start` comes from `payload_start`, and saves rendering the same members for every event of a call.
    """
    call, facts = event.call, event.facts
    try:
        if not start or "tool_name" in facts or "correlation_id" in facts:
            return _encode_payload(redacted_payload(call, facts))
        text = _encode_payload(call.redact(facts))
        return f"{start[:-1]}}}" if text == "{}" else f"{start}{text[1:]}"
    except Exception as exc:  # noqa: BLE001 - foreign values and the redaction of foreign code; that it happened is kept
        return _encode_any({"unrenderable": type(exc).__name__})


def payload_start(call: CallRef) -> str:
    """Render the beginning of all payloads of a call; empty where that cannot be done for them all at once."""
    try:
        text = _encode_payload(call.redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id}))
    except Exception:  # noqa: BLE001 - as above; each event says so
        return ""
    return f"{text[:-1]},"


def _encode_payload(payload: dict[str, Any]) -> str:
    try:
        text = orjson.dumps(payload, option=_EXACT).decode()
    except TypeError:  # whole numbers of more than 64 bits, lone surrogates, names that are no text, foreign types
        text = "null"
    if "null" not in text and len(text) * _WIDEST <= MAX_BYTES:  # NaN, too, is written as null
        return text
    try:
        text = _encode_any(payload)
    except ValueError:
        text = _encode_any(_without_nan(payload))
    return text if text.isascii() and len(text) <= MAX_BYTES else _fit_to_store(text)


def _without_nan(payload: dict[str, Any]) -> Any:
    """Replace NaN and the infinities, which are not JSON, by their names."""
    return json.loads(json.dumps(payload, default=str), parse_constant=str)


def _fit_to_store(text: str) -> str:
    """Escape lone surrogates, which UTF-8 does not allow; OverflowError when the text is too large."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), separators=(",", ":"))
        size = len(text)
    if size > MAX_BYTES:
        raise OverflowError(size)
    return text


class RunHead:
    """The state of a run after its last event. Mutable: it advances with every event.

    `nr` numbers the runs of a log in the order of their first events; `open_calls` counts calls that were requested
    and have not ended. `seal` is a MAC over all columns, empty where the stored row was found changed.
    """

    __slots__ = (
        "_arguments",
        "_call",
        "_ids",
        "_rest",
        "_start",
        "_whose",
        "hash",
        "is_damaged",
        "nr",
        "open_calls",
        "root_call",
        "run_id",
        "seal",
        "seq",
        "started_at",
        "status",
        "tenant",
        "tool_name",
        "updated_at",
        "user",
    )

    def __init__(
        self,
        nr: int,
        run_id: str,
        tenant: str,
        user: str,
        tool_name: str,
        status: str,
        started_at: float,
        updated_at: float,
        seq: int,
        hash: bytes,
        root_call: str,
        open_calls: int,
    ) -> None:
        self.nr = nr
        self.run_id = run_id
        self.tenant = tenant
        self.user = user
        self.tool_name = tool_name
        self.status = status
        self.started_at = started_at
        self.updated_at = updated_at
        self.seq = seq
        self.hash = hash
        self.root_call = root_call
        self.open_calls = open_calls
        self.seal = b""
        self.is_damaged = False
        self._call: CallRef | None = None
        self._ids = self._rest = ""
        self._start: str | None = None  # of the payloads of the call
        self._arguments: Any = _UNKNOWN  # of the call, as its request has them; `_rest` is their text and what follows
        self._whose = ("", "", "")

    @classmethod
    def of_first(cls, call: CallRef, at: float, nr: int = 0) -> RunHead:
        """Return the head before a run's first event; a run without calls counts as completed."""
        user, tool_name = escape_surrogates(call.user), escape_surrogates(call.tool_name)
        return cls(nr, call.run_id, call.tenant, user, tool_name, "completed", at, at, 0, b"", call.call_id, 0)

    @classmethod
    def of_row(cls, row: tuple[Any, ...]) -> RunHead:
        """Build the head of a row of the table."""
        *facts, seal = row
        head = cls(*facts)
        head.seal = seal
        return head

    def advance(self, event: RunEvent, call: CallRef, id: int, key: LogKey, payload: str | None = None) -> RowFields:
        """Number, render and chain one more event, or one with this payload, and return its row.

        Raises, without a change, when an id cannot be encoded.
        """
        if call is not self._call:
            self._begin_call(call)
        code, at, seq = int(event.code), float(event.at), self.seq + 1
        if payload is None:
            payload = self._render(event, call, code)
        self.hash = chained = link(self.hash, key.digest(self._ids, id, seq, code, at, payload))
        self.seq, self.updated_at = seq, at
        call_id, tenant, user = self._whose
        self.update_status(code, call_id)
        return id, self.run_id, seq, code, at, call_id, tenant, user, payload, chained

    def _begin_call(self, call: CallRef) -> None:
        """Keep what all events of a call share; most runs have one call."""
        run_id, call_id, tenant, user = self.run_id, call.call_id, call.tenant, call.user
        # As `join_ids`, in a third of the time.
        self._ids = f"{len(run_id)}|{len(call_id)}|{len(tenant)}|{len(user)}|{run_id}|{call_id}|{tenant}|{user}"
        self._start, self._arguments = None, _UNKNOWN
        self._whose = (call_id, tenant, user)
        self._call = call

    def _render(self, event: RunEvent, call: CallRef, code: int) -> str:
        """Render the payload of an event; what it shares with the request of its call is rendered and redacted once."""
        facts = event.facts
        if code == _REQUESTED:
            text = payload_text(event)
            # Within a string the quotes would be escaped, so that this is the member.
            start, found, rest = text.partition(',"params":')
            if found and len(facts) == 1:
                self._start, self._arguments, self._rest = f"{start},", facts["params"], rest
            return text
        if code == _STARTED and len(facts) == 1 and facts.get("input", self) is self._arguments:
            return f'{self._start}"input":{self._rest}'
        if self._start is None:
            self._start = payload_start(call)
        return payload_text(event, self._start)

    def make_seal(self, key: LogKey) -> bytes:
        """Compute the seal of this head, that of its columns; written out, which takes less time for every run."""
        who = f"{self.nr!r}\0{self.run_id!r}\0{self.tenant!r}\0{self.user!r}\0{self.tool_name!r}"
        began, updated = _repr_time(self.started_at), _repr_time(self.updated_at)
        when = f"{self.status!r}\0{began}\0{updated}\0{self.seq!r}\0{self.hash!r}"
        return key.seal_text("run", f"{who}\0{when}\0{self.root_call!r}\0{self.open_calls!r}")

    def update_status(self, code: int, call_id: str) -> None:
        """Update the status after an event. A run ends with the call that began it, not with a nested call.

        After its end another call, or the answer to a question, may start the run again.
        """
        turn = _STATUS_BY_CODE.get(code)
        if turn is None:
            return
        if code == _REQUESTED:
            self.open_calls += 1
        elif turn in FINISHED and self.open_calls:
            self.open_calls -= 1
        if self.status in FINISHED:
            if code in _OPENING:
                self.root_call, self.status = call_id, turn
        elif turn not in FINISHED or call_id == self.root_call:
            self.status = turn

    def columns(self) -> tuple[Any, ...]:
        """Return the values of the table's columns, without the seal."""
        return _head_columns(self)

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


def _repr_time(at: float) -> str:
    """Return the repr of a time; orjson writes the same digits in a tenth of the time, where no exponent is needed."""
    return orjson.dumps(at).decode() if type(at) is float and 1.0 <= at < _LATEST else repr(at)


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


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates in a text."""
    whole = str(text)  # a caller may have taken something else for an id
    return whole if whole.isascii() else whole.encode("utf-8", "backslashreplace").decode()


def find_open_calls(rows: Iterable[EventRow]) -> list[RunSummary]:
    """Return the calls of a run that were requested and have not ended, innermost first, each as a summary."""
    found: dict[str, RunHead] = {}
    for row in rows:
        call = CallRef(
            row.run_id, row.call_id, parse_payload(row.payload).get("tool_name", ""), row.tenant, row.user, "", dict
        )
        head = found.setdefault(row.call_id, RunHead.of_first(call, row.at))
        head.seq, head.updated_at = head.seq + 1, row.at
        head.update_status(row.code, row.call_id)
    return [head.summary() for head in reversed(found.values()) if head.open_calls]


def find_second_answers(rows: Iterable[EventRow]) -> Iterator[str]:
    """Report questions that were answered again without being asked again."""
    answered: set[str] = set()
    for row in rows:
        if row.code not in ASKED | _ANSWERED:
            continue
        facts = parse_payload(row.payload)
        question = facts.get("pending_id")
        if row.code in ASKED:
            answered.discard(question)
        elif question is not None and not facts.get("recovered"):
            if question in answered:
                yield f"question {question!r} was answered a second time, by event {row.seq}"
            answered.add(question)
