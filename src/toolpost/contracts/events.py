"""Events of runs: numbered, and redacted before they are shown or stored."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, field

from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.records import represent

# In the payload of a call's last event: whether its journal entry was written.
JOURNALED = "journaled"
# In the payload of a request: the id of the gateway's caller that made it, such as `key:ID`.
CALLER = "caller"
# In the facts of a failed call: the traceback of the tool's code. It is stored with the event, outside its payload.
TRACEBACK = "traceback"
PROGRESS = "PROGRESS"  # progress of tools shares a code with that of subagents, but users search for another word


class EventCode(IntEnum):
    """Codes of events, and their priorities; each REQUESTED is followed by exactly one COMPLETED or FAILED."""

    MESSAGE_RECEIVED = 100
    MESSAGE_SENT = 110
    TURN_FAILED = 120
    TASK_CREATED = 200
    TASK_STARTED = 210
    TASK_SUSPENDED = 220
    TASK_RESUMED = 230
    TASK_COMPLETED = 240
    TASK_FAILED = 250
    TASK_NOTIFY = 260
    REASON_DONE = 310
    STEPS_REFLECTED = 340
    REFLECTION_COMPLETE = 345
    REFLECTION_FAILED = 346
    NEED_MORE_INFO = 350
    TOOL_CALL_REQUESTED = 400
    TOOL_CALL_STARTED = 405
    TOOL_CALL_COMPLETED = 410
    TOOL_CALL_FAILED = 420
    APPROVAL_REQUESTED = 430
    APPROVAL_GRANTED = 431
    APPROVAL_DENIED = 432
    APPROVAL_ESCALATED = 433
    CALL_PAUSED = 440
    CALL_RESUMED = 441
    QUESTION_EXPIRED = 442
    CALL_RETRIED = 450
    FALLBACK_USED = 460
    BREAKER_OPENED = 470
    BREAKER_CLOSED = 471
    CATALOG_CHANGED = 480
    SOURCE_UP = 481
    SOURCE_DOWN = 482
    SOURCE_LOGGED = 483
    DEFINITION_CHANGED = 484
    CONFIG_APPLIED = 485
    CONFIG_REFUSED = 486
    DATABASE_RESTORED = 487
    ACCOUNT_CONNECTED = 491
    ACCOUNT_DISCONNECTED = 492
    CALLER_KEY_CREATED = 493
    CALLER_KEY_REVOKED = 494
    SUBAGENT_ACTION = 490
    ARTIFACT_STORED = 495
    SESSION_CREATED = 496
    SESSION_ENDED = 497
    TICKET_REFUSED = 498


EVENT_TYPES: Mapping[str, EventCode] = {code.name: code for code in EventCode} | {PROGRESS: EventCode.SUBAGENT_ACTION}


def parse_event_types(texts: Iterable[str]) -> frozenset[EventCode]:
    """Return the codes of event types: names, `*` patterns of names such as `TOOL_CALL_*`, or numbers.

    Raise ValueError for a type that does not exist.
    """
    found: set[EventCode] = set()
    for text in texts:
        name = text.strip().upper().replace("-", "_")
        codes = {code for known, code in EVENT_TYPES.items() if fnmatchcase(known, name) or name == str(int(code))}
        if not codes:
            near = nearest(name, EVENT_TYPES)
            hint = f"did you mean {near}?" if near else f"they are {', '.join(sorted(EVENT_TYPES))}"
            msg = f"{text!r} is not an event type; {hint}"
            raise ValueError(msg)
        found |= codes
    return frozenset(found)


# The garbage collector does not track these structs: a log contains many, and none is part of a reference cycle.


class CallRef(Struct, frozen=True, gc=False):
    """The call of an event, and the function that redacts its facts."""

    run_id: str
    call_id: str
    tool_name: str
    tenant: str
    user: str
    correlation_id: str
    redact: Callable[[Mapping[str, Any]], dict[str, Any]]


class JsonText(str):
    """A JSON document that is parsed when its event is read."""

    __slots__ = ()


class RunEvent(Struct, frozen=True, gc=False):
    """An event of a call or a task. `facts` are raw; only `payload` may be shown or stored.

    `call` contains the run, the tenant and the user: `event.call.run_id`. The last three fields are for events without
    a call; for others `id` and `parent_event_id` are derived from the call on access.
    """

    code: EventCode
    at: float
    call: CallRef
    facts: Mapping[str, Any]
    own_id: str = ""
    cause: str = ""
    own_priority: int | None = None

    def __repr__(self) -> str:
        return represent(self, "facts")

    @property
    def id(self) -> str:
        """The id of the event: the call id for the request of a call, a separate id for all others."""
        if self.own_id:
            return self.own_id
        call_id = self.call.call_id
        if call_id and self.code is EventCode.TOOL_CALL_REQUESTED:
            return call_id
        return f"{call_id or self.call.run_id}:{int(self.code)}:{self.at:.6f}"

    @property
    def parent_event_id(self) -> str:
        """The id of the event that caused this one, or an empty string.

        The request causes the other events of a call; the correlation id of the caller is the cause of the request.
        """
        call = self.call
        if self.cause or not call.call_id or self.own_id:
            return self.cause
        if self.code is not EventCode.TOOL_CALL_REQUESTED:
            return call.call_id
        return "" if call.correlation_id == call.call_id else call.correlation_id

    @property
    def priority(self) -> int:
        """The position in a queue of events: lower ones first; by default the code."""
        return int(self.code) if self.own_priority is None else self.own_priority

    def derive(self, code: EventCode, facts: Mapping[str, Any], *, priority: int | None = None) -> RunEvent:
        """Return a new event of the same run that this event caused."""
        return new_event(self.call, code, facts, cause=self.id, priority=priority)

    @property
    def payload(self) -> dict[str, Any]:
        """Return the redacted facts, with the tool name and the correlation id."""
        call = self.call
        payload = call.redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id, **self.facts})
        payload.pop(TRACEBACK, None)
        return payload


def new_event(
    call: CallRef, code: EventCode, facts: Mapping[str, Any], *, cause: str = "", priority: int | None = None
) -> RunEvent:
    """Return an event of now with a separate id; `cause` is the id of the event that caused it."""
    return RunEvent(code, time.time(), call, facts, f"event_{secrets.token_hex(8)}", cause, priority)


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event in the log: numbered without gaps within its run, chained by hash."""

    id: int
    run_id: str
    seq: int
    code: EventCode
    at: float
    call_id: str
    tenant: str
    payload: Mapping[str, Any]
    hash: str
    user: str = ""
    traceback: str = ""  # of a tool's code; only for the operator, so neither `payload` nor `to_dict` contains it

    @property
    def is_forgotten(self) -> bool:
        """Whether the payload was erased with its user; the event keeps its position in the chain."""
        return self.payload.get("forgotten") is True

    @property
    def trace_id(self) -> str:
        """Return the run id. This name and the next four are those of state stores."""
        return self.run_id

    @property
    def ts(self) -> float:
        """Return the time of the event, in seconds since 1970."""
        return self.at

    @property
    def kind(self) -> str:
        """Return the name of the code."""
        return self.code.name

    @property
    def node_name(self) -> str | None:
        """Return the name of the tool; None for an event without a call."""
        return self.payload.get("tool_name")

    @property
    def node_id(self) -> str | None:
        """Return the id of the call; None for an event without a call."""
        return self.call_id or None

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data, one line of `toolpost events`."""
        return {
            "id": self.id,
            "run_id": self.run_id,
            "seq": self.seq,
            "code": int(self.code),
            "type": self.code.name,
            "at": self.at,
            "call_id": self.call_id,
            "tenant": self.tenant,
            "user": self.user,
            "payload": dict(self.payload),
            "hash": self.hash,
        }


class EventFilter(Struct, frozen=True, kw_only=True):
    """Filter of events by tool, by codes (empty: all), by time, by user and by caller.

    In `tool`, `*` matches any characters: `mail.*` are the tools of the source `mail`.

    `caller` is the id of the gateway's caller that made the call, such as `key:ID`.
    """

    tool: str | None = None
    codes: frozenset[EventCode] = frozenset()
    since: float | None = None
    until: float | None = None
    user: str | None = None
    caller: str | None = None


class RunFilter(Struct, frozen=True, kw_only=True):
    """Filter of runs by tool, as in EventFilter, by user, by a caller of the gateway, by start time, and by status.

    `source` is the first part of the name of the tool. `q` is a text that the run id, the tool or the user contains, in
    any case.
    """

    tool: str | None = None
    source: str | None = None
    q: str | None = None
    user: str | None = None
    caller: str | None = None
    since: float | None = None
    until: float | None = None
    status: str | None = None


class RunSummary(Struct, frozen=True, kw_only=True):
    """Summary of a run: the call that began it, its user and its status."""

    run_id: str
    tenant: str
    user: str
    tool_name: str
    status: str
    started_at: float
    updated_at: float
    events: int
    call_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class RunDetails(Struct, frozen=True, kw_only=True):
    """Details of a run, from its events.

    `duration_ms` is the time from its first to its last event: `work_ms` while it was running, `waited_ms` while it
    was paused, and the rest between two calls. `caller` is the gateway's caller, and `parent_run` the run that the
    correlation id of its first call names. `progress` is the last report of an open run.
    """

    caller: str | None
    source: str | None
    error_code: str | None
    duration_ms: float
    work_ms: float
    waited_ms: float
    pending_ids: tuple[str, ...]
    progress: Mapping[str, Any] | None
    parent_run: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the details as JSON data."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {**fields, "pending_ids": list(self.pending_ids)}


class RemoteBinding(Struct, frozen=True, kw_only=True):
    """The address of a run's state at a remote agent."""

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        return represent(self, without=("metadata",))
