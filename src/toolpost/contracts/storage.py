"""What must be remembered, as Protocols: the log, the journal, questions, keys and artifacts.

Every store keeps these promises, in memory as on disk:
writes are durable when the awaited call returns; a claim succeeds for exactly one
claimant in any number of processes; nothing is visible across tenants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.events import EventFilter, RemoteBinding, RunEvent, RunSummary, StoredEvent
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import Answer, PendingAction, PendingStatus

TokenStatus = Literal["live", "doubtful", "revoked"]


class TokenKey(NamedTuple):
    """Whose tokens, and for what; they open for this identity only."""

    tenant: str
    user: str
    issuer: str
    resource: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """What is kept under one key; `body` is JSON, sealed at rest to the key and the version.

    A version belongs to one body and is never used again. A `doubtful` row was being
    renewed when what came of it got lost; a `revoked` one has no body any more.
    `holder` renews it, until `until` at the latest.
    """

    key: TokenKey
    version: int
    status: TokenStatus
    body: Mapping[str, Any] = field(repr=False)
    changed_at: float
    holder: str = ""
    until: float = 0.0


class TokenRows(Protocol):
    """Rows of tokens; each change compares the version, so that none is built on an older one."""

    async def get(self, key: TokenKey) -> TokenRow | None:
        """One row; StoreError when it was moved here or changed."""
        ...

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> list[TokenRow]:
        """Rows in the order of their keys."""
        ...

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        """Keep a live row whatever stood there: doubts and leases end."""
        ...

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        """Keep a live row in place of this version; None when that is not what stands there."""
        ...

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        """Lease a live row of this version that nobody holds, and give the row as it then stands.

        Taking is the intent to renew, durable when this returns. A lease whose holder
        is dead or late may have been used: then the row becomes doubtful. None when
        there is no row.
        """
        ...

    async def settle(
        self,
        key: TokenKey,
        version: int,
        *,
        holder: str,
        body: Mapping[str, Any] | None = None,
        status: TokenStatus = "live",
    ) -> TokenRow | None:
        """End a lease: with the new body, or without one as the status says; None when it was no longer the holder's.

        A holder who comes late with a body still gets it in, unless the row was put anew.
        """
        ...

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        """Remove a row, of this version if one is given; whether it was there."""
        ...


class EventSink(Protocol):
    """Anything that wants to be told of events; must return at once."""

    def emit(self, event: RunEvent) -> None:
        """Take one event."""
        ...


class EventLog(EventSink, Protocol):
    """The append-only record of runs: per run a sequence from 1 without gaps, chained by keyed digests.

    A run is told apart by its id and its tenant. `None` for a tenant means every tenant.
    """

    @property
    def congested(self) -> bool:
        """Whether emitters should `drain` before going on: too much waits to be written."""
        ...

    async def drain(self) -> None:
        """Wait until there is room again; StoreError when the store cannot write."""
        ...

    async def flush(self) -> None:
        """Wait until everything emitted so far is durable; StoreError when it cannot be."""
        ...

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        """Stored events with an id above `after`, oldest first; with `newest` the last `limit` of them."""
        ...

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        """The newest runs first; notices that belong to no call are no runs."""
        ...

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        """One run, if it exists for this tenant."""
        ...

    async def adopt_orphans(self) -> list[RunSummary]:
        """Take over runs whose process died before all their calls had ended; each goes to exactly one adopter.

        Calls that wait for a person are as they should be.
        """
        ...

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        """The calls of a run that were requested and have not ended, innermost first, each like a run of its own."""
        ...

    async def verify(self, run_id: str | None = None, *, tenant: str | None = None) -> list[str]:
        """What was changed from outside in a run, or in the whole log and in the number of its runs; empty if nothing.

        What was forgotten or pruned is in order.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """An intent, written before a call with effects, and its result, written after.

    `step` is "" for the call itself and the key of `ctx.once` for a step inside it.
    `call` is what is needed to ask a person about it later, kept sealed. `done` tells a
    result of None from no result.
    """

    call_id: str
    step: str
    run_id: str
    tool_name: str
    principal: Principal
    call: Mapping[str, Any] = field(repr=False)
    at: float
    owner: str = ""
    done: bool = False
    result: Any = field(default=None, repr=False)


class Journal(Protocol):
    """Intents and results; an intent without a result whose owner is gone is an orphan."""

    async def begin(self, entry: JournalEntry) -> None:
        """Write an intent under this process's ownership; replaces an earlier one of the same call and step."""
        ...

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        """Write the result of an intent."""
        ...

    async def forget(self, call_id: str, step: str) -> None:
        """Remove an intent whose call certainly had no effect."""
        ...

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        """The entry of a call's step."""
        ...

    async def inner(self, call_id: str) -> Sequence[JournalEntry]:
        """The entries of the calls that were made inside a call, at any depth: their ids begin with its own."""
        ...

    async def adopt_orphans(self) -> list[JournalEntry]:
        """Take over the unfinished intents of calls (step "") whose owner is dead; each goes to exactly one adopter."""
        ...


class PendingStore(Protocol):
    """Questions that wait for a person; arguments, payloads and answers are kept sealed."""

    async def add(self, action: PendingAction) -> None:
        """Keep a new question."""
        ...

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        """One question, if it exists for this tenant."""
        ...

    async def list(
        self,
        *,
        tenant: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        limit: int = 100,
    ) -> list[PendingAction]:
        """Questions, of one call or of all, newest first."""
        ...

    async def claim(self, pending_id: str, answer: Answer, *, by: str, at: float) -> PendingAction | None:
        """Take an open, unexpired question for answering: the action with its answer, or None if it was not open."""
        ...

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        """Close a claimed question with what came of it; `reopen` makes it open again instead."""
        ...

    async def expire(self, at: float) -> Sequence[PendingAction]:
        """Close every open question that is past its time; each is returned to exactly one caller."""
        ...

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Sequence[PendingAction]:
        """Close the open questions of a tenant's call (or run) that was cancelled."""
        ...

    async def adopt_claims(self) -> Sequence[PendingAction]:
        """Take over what a dead process claimed, expired or cancelled and did not settle; each goes to one adopter."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """What an idempotency key was used for, and what came of it (None: not finished)."""

    call_id: str
    tool_name: str
    arguments_hash: str
    outcome: Mapping[str, Any] | None = field(default=None, repr=False)
    owner_alive: bool = True


class KeyStore(Protocol):
    """Idempotency keys: the first use reserves, every later use finds the record."""

    async def reserve(self, principal: Principal, key: str, record: KeyRecord) -> KeyRecord | None:
        """Reserve a key: None if it was free, else the record that holds it."""
        ...

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        """Keep the outcome that later uses of the key get."""
        ...

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        """Free a key whose call never began; with `call_id` only if it is still that call's."""
        ...


class CancelWish(NamedTuple):
    """When a cancellation was asked for, and whose calls are meant (None: everybody's); what began later is not."""

    at: float
    tenant: str | None


class CancelStore(Protocol):
    """Wishes to cancel a run or a call, seen by whichever process runs it."""

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        """Ask for a cancellation."""
        ...

    async def requested(self, target_ids: Sequence[str]) -> Mapping[str, Sequence[CancelWish]]:
        """Which of these were asked to be cancelled, and for which tenants."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    """A large or binary result, kept whole under the hash of its content."""

    id: str
    sha256: str
    size: int
    media_type: str
    name: str
    tenant: str
    run_id: str
    call_id: str
    tool_name: str
    created_at: float

    def to_dict(self) -> dict[str, Any]:
        """The reference as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class ArtifactStore(Protocol):
    """Content-addressed results; an id is good only within its tenant."""

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        """Keep `data`; `ref` says whose it is (its id, hash and size are filled in by the store)."""
        ...

    async def info(self, artifact_id: str, *, tenant: str | None) -> ArtifactRef | None:
        """What is known of an artifact."""
        ...

    async def read(self, artifact_id: str, *, tenant: str | None, offset: int = 0, limit: int | None = None) -> bytes:
        """Part of an artifact's bytes; KeyError when there is none for this tenant."""
        ...

    async def list(
        self, *, tenant: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> list[ArtifactRef]:
        """Artifacts, newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long and how much is kept; None keeps without limit."""

    max_age_s: float | None = None
    max_artifact_bytes: int | None = None


class Store(Protocol):
    """All that one Toolbox remembers."""

    @property
    def events(self) -> EventLog:
        """What is told of runs."""
        ...

    @property
    def journal(self) -> Journal:
        """Intents and results of calls with effects."""
        ...

    @property
    def pending(self) -> PendingStore:
        """Questions that wait."""
        ...

    @property
    def keys(self) -> KeyStore:
        """Idempotency keys."""
        ...

    @property
    def cancels(self) -> CancelStore:
        """Wishes to cancel."""
        ...

    @property
    def artifacts(self) -> ArtifactStore:
        """Large and binary results."""
        ...

    @property
    def tokens(self) -> TokenRows:
        """The tokens of connected accounts."""
        ...

    @property
    def state(self) -> StateStore:
        """What planners remember of their runs."""
        ...

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        """Remove whole finished runs, settled questions and artifacts past the limits; says how many of each."""
        ...

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Remove a person's tokens, questions, results and artifacts; says how many of each, and what is under way.

        Events of theirs, and those that name them, keep their place in the log and lose what they say.
        """
        ...

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Create a sealing key and seal everything anew with it; return how many values of each kind were sealed.

        `unreadable` counts values that no key opens. With `retire` the older keys are deleted, unless there are any.
        """
        ...

    async def close(self) -> None:
        """Write what waits and let go."""
        ...


class StateStore(Protocol):
    """A planner's memory of a run; the two `planner_state` methods are optional and found by name."""

    async def save_event(self, event: StoredEvent) -> None:
        """Keep one event."""
        ...

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        """A run's events in order."""
        ...

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        """Keep where a remote agent holds its side of the run."""
        ...


class PlannerStateStore(Protocol):
    """The optional part of a state store that makes pauses survive a restart."""

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        """Keep a pause under its token."""
        ...

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        """A pause by its token; {} when there is none."""
        ...


class TokenStore(Protocol):
    """Access tokens of users, by provider."""

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        """Keep a token."""
        ...

    async def get(self, user_id: str, provider: str) -> str | None:
        """A valid token; None when it is missing or expired."""
        ...

    async def delete(self, user_id: str, provider: str) -> None:
        """Forget a token."""
        ...


class Sealer(Protocol):
    """Seals bytes so that they open only with the same key and for the same row."""

    def mark(self) -> bytes:
        """How all that is sealed now begins; what begins otherwise was sealed with an older key."""
        ...

    def seal(self, data: bytes, *, row: str) -> bytes:
        """Encrypt `data`, bound to the identity of its row."""
        ...

    def open(self, sealed: bytes, *, row: str) -> bytes:
        """Decrypt; StoreError when the row or the key is another."""
        ...

    def rotate(self) -> None:
        """Create a key that seals from now on; the older ones go on opening."""
        ...

    def retire(self) -> None:
        """Delete all keys but the newest."""
        ...
