"""What is told of a run."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from toolpost.contracts.events import CallRef, EventCode, RunEvent, RunSummary, StoredEvent


def masked(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: "masked" if key == "params" else value for key, value in facts.items()}


def event(code: EventCode, **facts: Any) -> RunEvent:
    return RunEvent(code, 1.0, CallRef("run_1", "call_1", "gh.issue", "acme", "ann", "corr_1", masked), facts)


def test_the_codes_of_a_call_are_the_ones_that_hosts_know() -> None:
    codes = {"TOOL_CALL_REQUESTED": 400, "TOOL_CALL_STARTED": 405, "TOOL_CALL_COMPLETED": 410, "TOOL_CALL_FAILED": 420}

    assert codes.items() <= {code.name: code.value for code in EventCode}.items()


@pytest.mark.req("MISC-27")
def test_the_events_of_one_call_carry_the_same_correlation_id() -> None:
    started = event(EventCode.TOOL_CALL_STARTED, input={})
    ended = [event(EventCode.TOOL_CALL_COMPLETED), event(EventCode.TOOL_CALL_FAILED)]

    assert {told.payload["correlation_id"] for told in [started, *ended]} == {"corr_1"}


def test_only_redacted_facts_are_ever_told() -> None:
    requested = event(EventCode.TOOL_CALL_REQUESTED, params={"password": "hunter22"})

    assert requested.payload == {"tool_name": "gh.issue", "correlation_id": "corr_1", "params": "masked"}


def test_a_stored_event_is_one_line_of_json_and_knows_its_run_by_both_names() -> None:
    stored = StoredEvent(
        id=7,
        run_id="run_1",
        seq=2,
        code=EventCode.TOOL_CALL_STARTED,
        at=1.5,
        call_id="call_1",
        tenant="acme",
        payload={"input": {}},
        hash="ab",
    )

    line = json.loads(json.dumps(stored.to_dict()))

    assert (line["code"], line["type"], line["seq"]) == (405, "TOOL_CALL_STARTED", 2)
    assert stored.trace_id == "run_1"


def test_a_run_at_a_glance_is_plain_data() -> None:
    summary = RunSummary(
        run_id="run_1",
        tenant="acme",
        user="ann",
        tool_name="add",
        status="completed",
        started_at=1.0,
        updated_at=2.0,
        events=3,
    )

    assert json.loads(json.dumps(summary.to_dict()))["status"] == "completed"
