"""Events, questions and the like, as the layers above would hand them to a store."""

from collections.abc import Mapping
from typing import Any

from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import PendingAction, Question
from toolpost.contracts.storage import ArtifactRef, JournalEntry, KeyRecord

ANN = Principal("acme", "ann")
BOB = Principal("acme", "bob")
EVE = Principal("evil", "eve")

REQUESTED = EventCode.TOOL_CALL_REQUESTED
STARTED = EventCode.TOOL_CALL_STARTED
COMPLETED = EventCode.TOOL_CALL_COMPLETED
FAILED = EventCode.TOOL_CALL_FAILED
PAUSED = EventCode.CALL_PAUSED
RESUMED = EventCode.CALL_RESUMED


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
    expires_at: float = 2000.0,
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
        created_at=1000.0,
        expires_at=expires_at,
        answerers=("acme:boss",),
    )


def intent(call_id: str = "call_1", step: str = "", *, who: Principal = ANN, run_id: str = "run_1") -> JournalEntry:
    call = {"arguments": {"to": "all@example.com", "body": "the-exact-words"}}
    return JournalEntry(
        call_id=call_id, step=step, run_id=run_id, tool_name="mail.send", principal=who, call=call, at=1000.0
    )


def key_record(call_id: str = "call_1") -> KeyRecord:
    return KeyRecord(call_id=call_id, tool_name="mail.send", arguments_hash="abc")


def artifact(*, who: Principal = ANN, run_id: str = "run_1", at: float = 1000.0) -> ArtifactRef:
    return ArtifactRef(
        id="",
        sha256="",
        size=0,
        media_type="text/plain",
        name="report.txt",
        tenant=who.tenant,
        user=who.user,
        run_id=run_id,
        call_id="call_1",
        tool_name="mail.send",
        created_at=at,
    )
