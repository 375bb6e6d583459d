"""Protocols of the store: event log, journal, pending actions, idempotency keys, artifacts, tokens, planner state.

Every store, in memory as on disk, guarantees: writes are durable when the awaited call returns; a claim succeeds for
exactly one claimant in any number of processes; nothing is visible across tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from toolpost.contracts.callers import CallerKey, CallerSession, SignInTicket
from toolpost.contracts.events import (
    CallRef,
    EventCode,
    EventFilter,
    RemoteBinding,
    RunDetails,
    RunEvent,
    RunFilter,
    RunSummary,
    StoredEvent,
)
from toolpost.contracts.jobs import Job, JobStore, ScheduleStore
from toolpost.contracts.limits import LimitStore
from toolpost.contracts.metrics import Dimension, MetricRow
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.contracts.records import represent
from toolpost.contracts.store_status import StoreStatus
from toolpost.contracts.users import UserSummary

TokenStatus = Literal["live", "doubtful", "revoked"]
IdKind = Literal["pending", "open_pending", "run", "call", "artifact", "caller_key"]  # "call": runs, and their calls
OnProgress: TypeAlias = Callable[[int, int], None]  # the number of finished items, and of all
ARTIFACTS = "artifact://"  # the prefix of an artifact's URI


class TokenKey(NamedTuple):
    """The identity of a token row; its encrypted body opens for this identity only."""

    tenant: str
    user: str
    issuer: str
    resource: str
    client: str


class TokenRow(Struct, frozen=True, kw_only=True):
    """A stored token; `body` is JSON, encrypted at rest and bound to the key and the version.

    A version belongs to one body and is never reused. The refresh of a `doubtful` row was interrupted before its result
    was stored. A `revoked` row has no body. `holder` has the lease to refresh the token, until `until`.
    """

    key: TokenKey
    version: int
    status: TokenStatus
    body: Mapping[str, Any]
    changed_at: float
    holder: str = ""
    until: float = 0.0

    def __repr__(self) -> str:
        return represent(self, without=("body",))


class TokenRows(Protocol):
    """Token rows; each change compares the version, which prevents updates based on an older row."""

    async def get(self, key: TokenKey) -> TokenRow | None:
        """Return one row; StoreError if it was copied from another row or changed."""
        ...

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> list[TokenRow]:
        """Return rows in the order of their keys."""
        ...

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        """Store a live row in place of any other, and end its lease."""
        ...

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        """Store a live row in place of this version; None if the stored version is another."""
        ...

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        """Lease a live row of this version without a holder; return the stored row, or None if there is none.

        The lease is the intent to refresh, durable when this returns. If the process of the holder was terminated or
        the lease has expired, it may have been used: the row becomes doubtful.
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
        """End a lease with a new body, or only with this status; None if the holder has lost the lease.

        A late holder's body is still stored, unless the row was replaced.
        """
        ...

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        """Remove a row, of this version if one is given; return whether it existed."""
        ...


class EventSink(Protocol):
    """Receiver of events; `emit` must return immediately."""

    def emit(self, event: RunEvent) -> None:
        """Receive one event."""
        ...


@runtime_checkable
class EventRecorder(Protocol):
    """A sink that takes the parts of an event, and builds the event when it is read."""

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        """Receive an event with the current time; the same as `emit` of a RunEvent with these parts."""
        ...


class WriteHealth(NamedTuple):
    """Why the last write to a store failed (empty if it succeeded); the numbers of failures and of waiting events."""

    reason: str = ""
    failures: int = 0
    waiting: int = 0


class EventLog(EventSink, Protocol):
    """The append-only log of runs: per run a sequence from 1 without gaps, chained by keyed digests.

    A run is identified by its id and its tenant. `None` for a tenant means every tenant. The `id` of a stored event is
    its position: an integer that is higher than the positions of all events that could be read before it. Positions
    follow the order of commits, not of row ids, and are opaque: they may have gaps, and say nothing about time. A
    reader that continues after the last position that it has read misses no event of any process.
    """

    @property
    def congested(self) -> bool:
        """Whether too many events wait to be written; emitters should then `drain` first."""
        ...

    @property
    def health(self) -> WriteHealth:
        """Whether emitted events can be written, as of the last attempt."""
        ...

    async def drain(self) -> None:
        """Wait until the queue has room again; StoreError if the store cannot write."""
        ...

    async def flush(self) -> None:
        """Wait until everything emitted so far is durable; StoreError if that fails."""
        ...

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        """Return events with a position above `after` and below `before`, in commit order.

        With `newest`, the last `limit` of them.
        """
        ...

    async def wait(self, after: int, *, timeout_s: float, run: tuple[str, str] | None = None) -> int:
        """Wait until the position of the newest event is not `after`; return it, or `after` at the timeout.

        With `run` (tenant and run id), only events of that run are considered: 0 is the position of a run without any.
        Processes that wait cost one poll, or one notification, together.
        """
        ...

    async def runs(
        self,
        *,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
    ) -> list[RunSummary]:
        """Return runs, newest first; notices without a call are not runs.

        With `before`, only runs that began before the tenant's run of this id.
        """
        ...

    async def count_runs(self, *, tenant: str | None = None, only: RunFilter | None = None) -> int:
        """Return the number of runs that `runs` lists without a limit."""
        ...

    async def run_details(self, runs: Sequence[RunSummary]) -> list[RunDetails]:
        """Return the details of each run, from its events."""
        ...

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        """Return one run, if it exists for this tenant."""
        ...

    async def adopt_orphans(self) -> list[RunSummary]:
        """Adopt the runs of terminated processes with unfinished calls; each goes to exactly one adopter.

        A call that waits for an answer is not unfinished in this sense.
        """
        ...

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        """Return the calls of a run that have not ended, innermost first, each as a separate summary."""
        ...

    async def verify(
        self, run_id: str | None = None, *, tenant: str | None = None, on_progress: OnProgress | None = None
    ) -> list[str]:
        """Return the signs of tampering in a run, or in the whole log, and the number of runs in the log.

        With a tenant, runs of other tenants are not mentioned. Erased and pruned events verify. `on_progress` is called
        with the number of verified runs and of all runs, from any thread; not for a single run.
        """
        ...


class JournalEntry(Struct, frozen=True, kw_only=True):
    """An intent, written before a call with effects, and its result, written after.

    `step` is "" for the call itself and the key of `ctx.once` for a step inside it. `call` contains the encrypted data
    for a later question to an approver. `owner` is the owner ID that this process had when the call began. `done`
    distinguishes a result of None from no result.
    """

    call_id: str
    step: str
    run_id: str
    tool_name: str
    principal: Principal
    call: Mapping[str, Any]
    at: float
    owner: str = ""
    done: bool = False
    result: Any = None

    def __repr__(self) -> str:
        return represent(self, without=("call", "result"))


class Journal(Protocol):
    """Intents and results of calls; an intent of a terminated process without a result is an orphan."""

    @property
    def owner_id(self) -> str:
        """The ID of this process, the owner of its intents; another one after it lost its lease."""
        ...

    async def is_alive(self, owner_id: str) -> bool:
        """Return whether the process with an ID is running; if not, it can no longer write."""
        ...

    async def begin(self, entry: JournalEntry) -> None:
        """Write an intent owned by this process; it replaces an earlier one of the same call and step.

        Raise TakenOverError if this process is no longer the `owner` of the entry.
        """
        ...

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        """Write the result of an intent; TakenOverError if another process has adopted it."""
        ...

    async def forget(self, call_id: str, step: str) -> None:
        """Remove an intent whose call certainly had no effect."""
        ...

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        """Return the entry of a call's step."""
        ...

    async def inner(self, call_id: str) -> Sequence[JournalEntry]:
        """Return the entries of calls nested in a call, at any depth: their ids begin with its id."""
        ...

    async def adopt_orphans(self) -> list[JournalEntry]:
        """Adopt the unfinished intents of calls (step "") of terminated processes; each goes to exactly one adopter."""
        ...


class PendingStore(Protocol):
    """Pending actions; arguments, payloads and answers are encrypted."""

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        """Store a new pending action in place of the journaled intent of its call, and return None.

        Both change in one transaction, so a crash neither loses the call nor leaves it with both. Raise TakenOverError
        if this process is no longer the `owner` of the action. With `unless_waiting`, if an open action has the same
        `same_call`, store nothing and return that action. Of several processes that add the same call concurrently, one
        stores it.
        """
        ...

    @property
    def may_wait(self) -> bool:
        """Whether any call may wait; if False, callers need not compute the hash of a call."""
        ...

    async def find_waiting(self, same_call: str, *, at: float) -> PendingAction | None:
        """Return the open action of the same call that has not expired."""
        ...

    async def renew(self, pending_id: str, question: Question) -> None:
        """Replace the question of an open action, such as by one with a new link to sign in."""
        ...

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        """Return one pending action, if it exists for this tenant."""
        ...

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[PendingAction]:
        """Return pending actions, of one user or call or of all, newest first.

        `before` is the id of the last action of the previous page, regardless of its status now; if it was removed, the
        page is empty. A page with fewer than `limit` actions is the last one.
        """
        ...

    async def wait(self, pending_ids: Sequence[str], known: object = None, *, timeout_s: float = 0.0) -> object:
        """Wait until the state of these actions is not `known`; return it, or `known` at the timeout.

        The state is an opaque value. Without the `known` state of an earlier call it is returned immediately. A caller
        that reads the actions after each call misses no answer, no outcome and no removal.
        """
        ...

    async def claim(
        self, pending_id: str, answer: Answer, *, by: str, at: float, then: Job | None = None
    ) -> PendingAction | None:
        """Claim an open, unexpired action for its answer; return it with the answer, or None if it was not open.

        With `then`, no process owns the claim. The same commit stores that job, as the next one of its run; the process
        that runs it continues with `take_claim`.
        """
        ...

    async def take_claim(self, pending_id: str) -> PendingAction | None:
        """Take a claimed action that no process has taken; None if the action is not claimed, or is taken."""
        ...

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        """Close a claimed action with its outcome; `reopen` makes it open again instead."""
        ...

    async def expire(self, at: float) -> Sequence[PendingAction]:
        """Close every open action past its expiry; each is returned to exactly one caller."""
        ...

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Sequence[PendingAction]:
        """Close the actions of a tenant's cancelled call (or run) that are open, or claimed and left to a job."""
        ...

    async def adopt_claims(self) -> Sequence[PendingAction]:
        """Adopt actions that a terminated process claimed, expired or cancelled, but did not settle.

        Each goes to exactly one adopter.
        """
        ...


class IdempotencyRecord(Struct, frozen=True, kw_only=True):
    """The call of an idempotency key, and its outcome (None: not finished)."""

    call_id: str
    tool_name: str
    arguments_hash: str
    outcome: Mapping[str, Any] | None = None
    owner_alive: bool = True

    def __repr__(self) -> str:
        return represent(self, without=("outcome",))


class IdempotencyStore(Protocol):
    """Idempotency keys: the first use reserves, every later use finds the record."""

    async def reserve(self, principal: Principal, key: str, record: IdempotencyRecord) -> IdempotencyRecord | None:
        """Reserve a key; return None if it was free, else its record."""
        ...

    async def find(self, principal: Principal, call_id: str) -> IdempotencyRecord | None:
        """Return the record of a principal's call that has a key."""
        ...

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        """Store the outcome that later uses of the key return."""
        ...

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        """Free a key whose call never began; with `call_id` only if it is still that call's."""
        ...


class CallerKeyStore(Protocol):
    """Keys of the gateway's callers."""

    async def add(self, key: CallerKey) -> None:
        """Store a new key."""
        ...

    async def find(self, key_id: str) -> CallerKey | None:
        """Return a key of any tenant, expired or not."""
        ...

    async def list(self, *, tenant: str | None = None) -> list[CallerKey]:
        """Return keys, oldest first."""
        ...

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        """Remove a key; return whether the tenant had it."""
        ...


class KeyUseStore(Protocol):
    """The last uses of callers' keys, in any process."""

    async def save(self, key: CallerKey, *, at: float) -> None:
        """Store a use of a key, unless a later one is stored."""
        ...

    async def list(self) -> Mapping[str, float]:
        """Return the last use of each key that was used, by its ID."""
        ...

    async def remove(self, key_id: str) -> None:
        """Remove the use of a revoked key."""
        ...


class SessionStore(Protocol):
    """Console sessions and the tickets that open them; every process on the store sees a change immediately."""

    async def add(self, session: CallerSession) -> None:
        """Store a new session, and delete those that expired long ago."""
        ...

    async def find(self, session_id: str) -> CallerSession | None:
        """Return a session of any tenant; whether it has expired is for the caller to see."""
        ...

    async def list(self, *, tenant: str, user: str | None = None) -> list[CallerSession]:
        """Return the sessions of a tenant, or of one of its users, oldest first."""
        ...

    async def use(self, session: CallerSession, *, at: float) -> None:
        """Store when a session was used; nothing if it was removed."""
        ...

    async def remove(self, session_id: str) -> None:
        """Remove a session."""
        ...

    async def add_ticket(self, ticket: SignInTicket) -> None:
        """Store a new ticket."""
        ...

    async def find_ticket(self, ticket_id: str) -> tuple[SignInTicket, bool] | None:
        """Return a ticket, and whether it was used."""
        ...

    async def use_ticket(self, ticket: SignInTicket) -> bool:
        """Use a ticket; True for exactly one caller."""
        ...


class WebhookProgress(Struct, frozen=True, kw_only=True):
    """The progress of a webhook: `position` is the last event that was delivered, or that the webhook does not receive.

    `failures` are consecutive, and `error` is the last one. After a failure, `next_try_at` is the time of the next
    attempt; None means that there is none.
    """

    name: str
    position: int
    delivered: int = 0
    failures: int = 0
    error: str = ""
    failing_since: float | None = None
    next_try_at: float | None = None


class WebhookStore(Protocol):
    """Progress of webhooks; one running process at a time sends for each."""

    async def take(self, name: str, *, begin: int) -> WebhookProgress | None:
        """Become the process that sends for a webhook; None while another running process does.

        A webhook of a new name begins after the event `begin`.
        """
        ...

    async def save(self, progress: WebhookProgress) -> bool:
        """Store the progress of a webhook that this process sends for; return whether it still does."""
        ...

    async def release(self, name: str) -> None:
        """Let other processes send for the webhook."""
        ...

    async def list(self) -> list[WebhookProgress]:
        """Return the progress of all webhooks, by name."""
        ...


class MetricStore(Protocol):
    """Metrics of calls and questions, counted from the event log."""

    async def count(self, *, limit: int = 500) -> int:
        """Count up to `limit` records of the log after the last counted one; return how many were read.

        Each event is counted once, in any number of processes: counts and position are one commit.
        """
        ...

    async def read(
        self,
        dimension: Dimension,
        *,
        tenant: str | None,
        width: int,
        since: float,
        until: float,
        key: str | None = None,
    ) -> list[MetricRow]:
        """Return the rows of a tenant (None: of all) that begin within [since, until), ordered by begin and key."""
        ...

    async def begin(self, *, tenant: str) -> int | None:
        """Return the begin of the first hour with a row; None without rows."""
        ...


class CancelRequest(NamedTuple):
    """A request to cancel the calls of a tenant (None: of all) that began before `at`."""

    at: float
    tenant: str | None


class CancelStore(Protocol):
    """Requests to cancel a run or a call, read by the process that runs it."""

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        """Store a request to cancel."""
        ...

    async def requested(self, target_ids: Sequence[str]) -> Mapping[str, Sequence[CancelRequest]]:
        """Return the requests to cancel any of these ids."""
        ...

    async def wait(self, after: int, *, timeout_s: float) -> int:
        """Wait until the number of the newest request is not `after`; return it, or `after` at the timeout."""
        ...


class ArtifactRef(Struct, frozen=True, kw_only=True):
    """A large or binary result, stored under the hash of its content; `user` is its owner."""

    id: str
    sha256: str
    size: int
    media_type: str
    name: str
    tenant: str
    user: str
    run_id: str
    call_id: str
    tool_name: str
    created_at: float

    @property
    def uri(self) -> str:
        """The URI under which MCP clients read the artifact as a resource."""
        return f"{ARTIFACTS}{self.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return the reference as JSON data."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class ArtifactStore(Protocol):
    """Content-addressed results; an id is valid only within its tenant, and with a `user` only for that user."""

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        """Store `data` for the call of `ref`; return `ref` with id, hash and size filled in."""
        ...

    async def info(self, artifact_id: str, *, tenant: str | None, user: str | None = None) -> ArtifactRef | None:
        """Return the reference of an artifact."""
        ...

    async def read(
        self,
        artifact_id: str,
        *,
        tenant: str | None,
        user: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        """Return part of an artifact's bytes; KeyError if this tenant and user have no such artifact."""
        ...

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[ArtifactRef]:
        """Return artifacts, newest first; `before` is the id of the last one of the previous page."""
        ...


class Retention(Struct, frozen=True, kw_only=True):
    """Limits of age and size of stored data; None means unlimited."""

    max_age_s: float | None = None
    max_artifact_bytes: int | None = None


class AgentRecords(Protocol):
    """Task logs, sessions and memory of agents, which are pruned and erased with the store."""

    async def prune(self, before: float) -> dict[str, int]:
        """Delete task logs and sessions that were last written before a time; return the number of each.

        Tasks that wait for an answer stay, and so does a session that an agent has open.
        """
        ...

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Delete the task logs, sessions and memory of a user; the memory that the tenant shares stays.

        `under_way` counts a session that an agent has open. It stays, and so do the logs of tasks that have not ended.
        """
        ...


class Store(Protocol):
    """The store of one Toolbox: a part for each kind of record."""

    @property
    def events(self) -> EventLog: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def pending(self) -> PendingStore: ...
    @property
    def idempotency(self) -> IdempotencyStore: ...
    @property
    def caller_keys(self) -> CallerKeyStore: ...
    @property
    def key_uses(self) -> KeyUseStore: ...
    @property
    def sessions(self) -> SessionStore: ...
    @property
    def webhooks(self) -> WebhookStore: ...
    @property
    def metrics(self) -> MetricStore: ...
    @property
    def jobs(self) -> JobStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def cancels(self) -> CancelStore: ...
    @property
    def artifacts(self) -> ArtifactStore: ...
    @property
    def tokens(self) -> TokenRows: ...
    @property
    def limits(self) -> LimitStore: ...
    @property
    def state(self) -> PlannerStates: ...

    async def find_ids(self, kind: IdKind, prefix: str, *, tenant: str | None = None, limit: int = 50) -> list[str]:
        """Return the ids of a kind that begin with `prefix`, newest first."""
        ...

    def mac(self, kind: str, message: bytes) -> bytes:
        """Return a MAC over a message with the key of this store, the same in every process on the store."""
        ...

    async def status(self) -> StoreStatus:
        """Return the processes of the store, and counts of unfinished work, of all tenants."""
        ...

    async def users(self, *, tenant: str | None = None) -> list[UserSummary]:
        """Return the users of a tenant, or of all tenants, by name."""
        ...

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        """Remove finished runs, pending actions and artifacts past the limits; count them."""
        ...

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Delete the stored data of a user, except events; count the records of each kind, and those still in use.

        Events of the user, and those that name the user, keep their place in the log and lose their payload.
        """
        ...

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Create an encryption key and re-encrypt all values with it; return the number of values of each kind.

        `unreadable` counts values that no key can decrypt. With `retire`, the older keys are deleted if there are none.
        """
        ...

    async def close(self) -> None:
        """Write waiting events and close the store."""
        ...


class StateStore(Protocol):
    """The state of a planner's runs; the methods of PlannerStateStore are optional and found by name."""

    async def save_event(self, event: StoredEvent) -> None:
        """Store one event."""
        ...

    async def load_history(self, trace_id: str) -> Sequence[StoredEvent]:
        """Return a run's events in order."""
        ...

    async def save_remote_binding(self, binding: RemoteBinding) -> None:
        """Store the address of the run's state at a remote agent."""
        ...


class PlannerStateStore(Protocol):
    """The optional part of a state store that makes pauses survive a restart."""

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        """Store a pause under its token."""
        ...

    async def load_planner_state(self, token: str) -> dict[str, Any]:
        """Return a pause by its token; {} if there is none."""
        ...


class PlannerStates(StateStore, PlannerStateStore, Protocol):
    """The planner state of a `Store`: records by token, which exactly one process can claim."""

    async def load_remote_bindings(self, trace_id: str) -> Sequence[RemoteBinding]:
        """Return the remote bindings of a run."""
        ...

    async def claim_planner_state(self, token: str, payload: dict[str, Any]) -> bool:
        """Store a record for this process under a token that has none; True for exactly one caller."""
        ...

    async def is_claimed(self, token: str) -> bool:
        """Return whether the process that claimed a token still runs; False for a token without a claim."""
        ...

    async def drop_planner_states(self, tokens: Sequence[str]) -> None:
        """Delete the records of these tokens."""
        ...


class TokenStore(Protocol):
    """Access tokens of users, by provider."""

    async def store(self, user_id: str, provider: str, token: str, expires_at: float | None) -> None:
        """Store a token."""
        ...

    async def get(self, user_id: str, provider: str) -> str | None:
        """Return a valid token; None if it is missing or expired."""
        ...

    async def delete(self, user_id: str, provider: str) -> None:
        """Delete a token."""
        ...


class Cipher(Protocol):
    """Encryption of bytes, bound to a key and to a row."""

    def describe_key(self) -> str:
        """Return the place of the key, for messages: "that of PLACE"."""
        ...

    def prefix(self) -> bytes:
        """Return the prefix of everything encrypted with the newest key."""
        ...

    def knows(self, encrypted: bytes) -> bool:
        """Return whether the key that encrypted the data is available, by its prefix."""
        ...

    def encrypt(self, data: bytes, *, row: str) -> bytes:
        """Encrypt `data`, bound to the identity of its row."""
        ...

    def decrypt(self, encrypted: bytes, *, row: str) -> bytes:
        """Decrypt `encrypted`; StoreError for another row or an unknown key."""
        ...

    def rotate(self) -> None:
        """Create a key that encrypts from now on; older keys still decrypt."""
        ...

    def retire(self) -> None:
        """Delete all keys but the newest."""
        ...
