"""What is told about a run: numbered events, redacted before anyone sees them."""

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
    """The kinds of event; each REQUESTED ends in exactly one COMPLETED or FAILED."""

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
    """The call an event belongs to, and how its facts are redacted."""

    run_id: str
    call_id: str
    tool_name: str
    tenant: str
    user: str
    correlation_id: str
    redact: Callable[[Mapping[str, Any]], dict[str, Any]]


class JsonText(str):
    """A JSON document kept as text until someone reads the event it belongs to."""

    __slots__ = ()


class RunEvent(NamedTuple):
    """Something that happened to a call. `facts` are raw; only `payload` may be shown or stored.

    `call` says which call of which run, tenant and user it belongs to: `event.call.run_id`.
    """

    code: EventCode
    at: float
    call: CallRef
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        return represent(self, "facts")

    @property
    def payload(self) -> dict[str, Any]:
        """The facts, redacted, with the tool and the correlation id that link a call's events."""
        call = self.call
        return call.redact({"tool_name": call.tool_name, "correlation_id": call.correlation_id, **self.facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event as the log keeps it: numbered without gaps within its run, chained by hash."""

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
        """Whether what it said was removed, because a person was forgotten; its place in the chain is kept."""
        return self.payload.get("forgotten") is True

    @property
    def trace_id(self) -> str:
        """The run, under the name that state stores use."""
        return self.run_id

    def to_dict(self) -> dict[str, Any]:
        """The event as plain data, one line of `toolpost events`."""
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
    """Which events are meant: of tools (`*` stands for any letters), of some codes (empty: of all), since a time."""

    tool: str | None = None
    codes: frozenset[EventCode] = frozenset()
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run at a glance: the call that began it, who asked, where it stands."""

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
        """The summary as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBinding:
    """Where a remote agent keeps its side of a run."""

    trace_id: str
    context_id: str | None
    task_id: str
    agent_url: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
