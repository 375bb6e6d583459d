"""How a call ends, and how that is told."""

import json

import pytest

from toolpost.contracts.errors import ToolTimeoutError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, ToolResult, outcome_to_dict
from toolpost.contracts.questions import Question


@pytest.mark.req("PTYPE-03")
def test_a_result_has_its_success_its_value_and_its_times() -> None:
    result = ToolResult(success=True, result=3, started_at=1000.0, completed_at=1250.0, duration_ms=250.0)

    assert (result.success, result.result, result.error) == (True, 3, None)
    assert (result.started_at, result.completed_at, result.duration_ms) == (1000.0, 1250.0, 250.0)


@pytest.mark.req("PTYPE-03")
def test_a_failed_result_says_why_and_the_rest_may_be_left_out() -> None:
    result = ToolResult(success=False, error="no such file")

    assert (result.success, result.result, result.error) == (False, None, "no such file")
    assert (result.completed_at, result.duration_ms) == (None, None)


def test_every_outcome_has_its_word() -> None:
    question = Question(kind="approval", prompt="May it?")
    outcomes: list[Outcome] = [
        Completed("c", "r", "t", 1),
        Failed("c", "r", "t", ToolTimeoutError()),
        Paused("c", "r", "t", "ask_1", question),
    ]

    assert [outcome.status for outcome in outcomes] == ["completed", "failed", "paused"]


def test_outcomes_can_be_matched() -> None:
    outcome: Outcome = Completed("call_1", "run_1", "add", {"sum": 3})

    match outcome:
        case Completed(content=content):
            assert content == {"sum": 3}
        case Failed() | Paused():
            pytest.fail("it completed")


def told(outcome: Outcome) -> dict[str, object]:
    plain = json.loads(json.dumps(outcome_to_dict(outcome)))
    return {key: plain[key] for key in ("status", "content", "error", "pending", "artifacts", "duration_ms")}


def test_a_completed_call_tells_its_content_and_its_artifacts() -> None:
    outcome = Completed("call_1", "run_1", "add", 3, duration_ms=1.23456, artifacts=("art_1",))

    assert told(outcome) == {
        "status": "completed",
        "content": 3,
        "error": None,
        "pending": None,
        "artifacts": ["art_1"],
        "duration_ms": 1.235,
    }


@pytest.mark.req("ERR-19")
def test_a_failed_call_tells_its_error() -> None:
    plain = told(Failed("call_1", "run_1", "slow", ToolTimeoutError(timeout_ms=50.0)))

    assert (plain["status"], plain["content"], plain["pending"]) == ("failed", None, None)
    assert plain["error"] == ToolTimeoutError(timeout_ms=50.0).to_dict()


def test_a_paused_call_tells_an_address_and_a_question_but_no_payload() -> None:
    question = Question(kind="approval", prompt="May it?", payload={"detail": "for the person only"})

    plain = told(Paused("call_1", "run_1", "rm", "ask_1", question))

    assert plain["pending"] == {"id": "ask_1", "tool_name": "rm", **question.to_dict(), "others": []}
    assert "for the person only" not in json.dumps(plain)
