"""Records as a Toolbox hands them to its store: events, pending actions, intents, keys and artifacts."""

from collections.abc import Mapping
from typing import Any

from toolpost.contracts.callers import CallerKey
from toolpost.contracts.events import CallRef, EventCode, RemoteBinding, RunEvent, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, Question
from toolpost.contracts.storage import ArtifactRef, IdempotencyRecord, JournalEntry, TokenKey

ANN = Principal("acme", "ann")
BOB = Principal("acme", "bob")
EVE = Principal("evil", "eve")

REQUESTED = EventCode.TOOL_CALL_REQUESTED
STARTED = EventCode.TOOL_CALL_STARTED
COMPLETED = EventCode.TOOL_CALL_COMPLETED
FAILED = EventCode.TOOL_CALL_FAILED
PAUSED = EventCode.CALL_PAUSED
RESUMED = EventCode.CALL_RESUMED

APPROVE = Answer(
    decision="approve", reason="fine", changes=[{"op": "replace", "path": "/to", "value": "one@example.com"}]
)
STATE_EVENT = StoredEvent(
    id=1,
    run_id="trace_1",
    seq=1,
    code=REQUESTED,
    at=1000.0,
    call_id="call_1",
    tenant="acme",
    payload={"params": {"a": [1]}},
    hash="ab",
)
BINDING = RemoteBinding(
    trace_id="trace_1", context_id=None, task_id="task_1", agent_url="https://agent.example", metadata={"a": 1}
)


def call_ref(
    run_id: str = "run_1", call_id: str = "call_1", *, who: Principal = ANN, tool: str = "mail.send"
) -> CallRef:
    return CallRef(run_id, call_id, tool, who.tenant, who.user, "corr_1", dict)


def event(
    code: EventCode = REQUESTED,
    *,
    call: CallRef | None = None,
    at: float = 1000.0,
    facts: Mapping[str, Any] | None = None,
) -> RunEvent:
    return RunEvent(code, at, call or call_ref(), facts or {})


def whole_run(run_id: str, *, who: Principal = ANN, at: float = 1000.0) -> list[RunEvent]:
    ref = call_ref(run_id, f"call_of_{run_id}", who=who)
    return [event(code, call=ref, at=at) for code in (REQUESTED, STARTED, COMPLETED)]


def question(
    id_: str = "ask_1",
    *,
    who: Principal = ANN,
    run_id: str = "run_1",
    call_id: str = "call_1",
    created_at: float = 1000.0,
    expires_at: float = 2000.0,
    same_call: str = "",
) -> PendingAction:
    return PendingAction(
        id=id_,
        question=Question(kind="approval", prompt="Send it?", payload={"to": "all@example.com"}),
        call_id=call_id,
        run_id=run_id,
        tool_name="mail.send",
        arguments={"to": "all@example.com", "body": "the-exact-words"},
        arguments_hash="abc",
        asked_by=who,
        created_at=created_at,
        expires_at=expires_at,
        answerers=("acme:boss",),
        same_call=same_call,
    )


def intent(call_id: str = "call_1", step: str = "", *, who: Principal = ANN, run_id: str = "run_1") -> JournalEntry:
    call = {"arguments": {"to": "all@example.com", "body": "the-exact-words"}}
    return JournalEntry(
        call_id=call_id, step=step, run_id=run_id, tool_name="mail.send", principal=who, call=call, at=1000.0
    )


def key_record(call_id: str = "call_1") -> IdempotencyRecord:
    return IdempotencyRecord(call_id=call_id, tool_name="mail.send", arguments_hash="abc")


def caller_key(name: str, who: Principal, *, expires_at: float | None = None) -> CallerKey:
    return CallerKey(
        id=f"key_{name}",
        name=name,
        principal=who,
        scopes=frozenset({"call"}),
        digest=b"digest of the secret",
        created_at=1000.0,
        created_by="acme:boss",
        expires_at=expires_at,
    )


def token_key(who: Principal = ANN, client: str = "client") -> TokenKey:
    return TokenKey(*who, "https://issuer.example", "https://forgettable.example", client)


def artifact(
    *, who: Principal = ANN, run_id: str = "run_1", call_id: str = "call_1", at: float = 1000.0
) -> ArtifactRef:
    return ArtifactRef(
        id="",
        sha256="",
        size=0,
        media_type="text/plain",
        name="report.txt",
        tenant=who.tenant,
        user=who.user,
        run_id=run_id,
        call_id=call_id,
        tool_name="mail.send",
        created_at=at,
    )
