"""Records are immutable, and their representations tell the shape of what may hold a secret."""

import copy
import pickle
from typing import Any

import pytest

from toolpost import Completed, Principal, ToolContext, ToolResult
from toolpost.agents.results import PlannerFinish
from toolpost.agents.steps import ActionResult, PlanStep
from toolpost.contracts.calls import RequestedCall, ToolOutput, ValidatedCall
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.outcomes import Paused
from toolpost.contracts.questions import Answer, PendingAction, Question
from toolpost.contracts.storage import IdempotencyRecord, JournalEntry

SECRET = "hunter22"
HELD: dict[str, Any] = {"note": SECRET, "list": [SECRET]}
ANN = Principal("acme", "ann")
QUESTION = Question(kind="input", prompt="Which?", payload=HELD, state=HELD)
ANSWER = Answer(decision="answer", value=SECRET, changes=[HELD], state=HELD)
CALL = RequestedCall(
    "c", "r", "t", HELD, ANN, idempotency_key=SECRET, answers={"k": ANSWER}, context=ToolContext(tool_context=HELD)
)
PENDING = PendingAction(
    id="ask",
    question=QUESTION,
    call_id="c",
    run_id="r",
    tool_name="t",
    arguments=HELD,
    arguments_hash="0",
    asked_by=ANN,
    created_at=0.0,
    expires_at=1.0,
    answers={"k": ANSWER},
    idempotency_key=SECRET,
    context=HELD,
    answer=ANSWER,
    outcome=HELD,
)
JOURNAL = JournalEntry(
    call_id="c", step="", run_id="r", tool_name="t", principal=ANN, call=HELD, at=0.0, done=True, result=SECRET
)
RECORDS = [
    Completed("c", "r", "t", SECRET, text=SECRET, meta=HELD),
    Completed("c", "r", "t", HELD),
    Paused("c", "r", "t", "ask", QUESTION),
    QUESTION,
    ANSWER,
    PENDING,
    CALL,
    ToolOutput(HELD, text=SECRET, meta=HELD),
    ToolOutput(SECRET.encode()),
    ToolResult(success=True, result=HELD, content_text=SECRET),
    RunEvent(EventCode.CALL_PAUSED, 0.0, CallRef("r", "c", "t", "acme", "ann", "", dict), {"raw": SECRET}),
    JOURNAL,
    IdempotencyRecord(call_id="c", tool_name="t", arguments_hash="0", outcome=HELD),
    PlanStep(id="s", tool_name="t", params=HELD),
    ActionResult(step_id="s", tool_name="t", params=HELD, success=True, result=SECRET),
    PlannerFinish(reason="answer_complete", payload=HELD, metadata={}),
]


@pytest.mark.parametrize("record", RECORDS)
def test_no_secret_is_in_the_representation_of_a_record(record: Any) -> None:
    assert SECRET not in repr(record)
    assert SECRET not in f"{record}"
    assert SECRET not in repr([record])


def test_a_validated_call_shows_the_names_of_its_arguments() -> None:
    nobody: Any = None
    call = ValidatedCall(CALL, nobody, HELD)

    assert repr(call).endswith("arguments={'note': ..., 'list': ...})")
    assert SECRET not in repr(call)


def test_numbers_and_shapes_are_shown() -> None:
    assert "content=5," in repr(Completed("c", "r", "t", 5))
    assert "content={'a': ...}," in repr(Completed("c", "r", "t", {"a": 1}))
    assert "content=<list of 2>," in repr(Completed("c", "r", "t", [1, 2]))
    assert "content=<text of 3 characters>," in repr(Completed("c", "r", "t", "abc"))


@pytest.mark.parametrize("record", [Completed("c", "r", "t", 1, meta={}), ToolOutput("text", meta={}), RECORDS[10]])
def test_a_record_cannot_be_changed_and_is_copied_and_pickled(record: Any) -> None:
    name = type(record).__struct_fields__[0]

    with pytest.raises(AttributeError):
        setattr(record, name, None)
    assert not hasattr(record, "__dict__")
    for other in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert other == record
        assert type(other) is type(record)
