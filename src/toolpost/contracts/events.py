"""Events of runs: numbered, and redacted before they are shown or stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.fast_namedtuple import represent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# In the payload of a call's last event: whether its journal entry was written.
JOURNALED = "journaled"


class EventCode(IntEnum):
    """Codes of events; each REQUESTED is followed by exactly one COMPLETED or FAILED."""

    TOOL_CALL_REQUESTED = 400
    TOOL_CALL_STARTED = 405
    TOOL_CALL_COMPLETED = 410
    TOOL_CALL_FAILED = 420
    APPROVAL_REQUESTED = 430
    APPROVAL_GRANTED = 431
    APPROVAL_DENIED = 432
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
    ACCOUNT_CONNECTED = 491
    ACCOUNT_DISCONNECTED = 492
    SUBAGENT_ACTION = 490
    ARTIFACT_STORED = 495


class CallRef(NamedTuple):
    """The call of an event, and the function that redacts its facts."""

    run_id: str
    call_id: str
    tool_name: str
    tenant: str
    user: str
    correlation_id: str
    redact: Callable[[Mapping[str, Any]], dict[str, Any]]


class JsonText(str):
    """A JSON document that stays text until its event is read."""

    __slots__ = ()


class RunEvent(NamedTuple):
    """An event of a call. `facts` are raw; only `payload` may be shown or stored.

    `call` names the run, the tenant and the user: `event.call.run_id`.
    """

    code: EventCode
    at: float
    call: CallRef
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        return represent(self, "facts")

    @property
    def payload(self) -> dict[str, Any]:
        """Return the redacted facts, with the tool name and the correlation id."""
        call = self.call
        return call.redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id, **self.facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
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

    @property
    def is_forgotten(self) -> bool:
        """Whether the payload was removed because a person was forgotten; the event keeps its place in the chain."""
        return self.payload.get("forgotten") is True

    @property
    def trace_id(self) -> str:
        """Return the run id under the name that state stores use."""
        return self.run_id

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
            "payload": dict(self.payload),
            "hash": self.hash,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Filter of events by tool (`*` matches any letters), by codes (empty: all) and by time."""

    tool: str | None = None
    codes: frozenset[EventCode] = frozenset()
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
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
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBinding:
    """The address of a run's state at a remote agent."""

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
