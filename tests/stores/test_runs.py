"""How a run stands, told by its events."""

import json

import pytest
from msgspec.structs import replace

from tests.stores.samples import COMPLETED, FAILED, PAUSED, REQUESTED, RESUMED, STARTED, call_ref, event
from toolpost.contracts.events import EventCode, JsonText
from toolpost.policy.redaction import Redactor
from toolpost.stores.chain import LogKey, RunHead, render_events

Told = list[tuple[str, EventCode]]


def status_after(told: Told) -> str:
    head = RunHead.of_first(call_ref("run_1", told[0][0]), 0.0)
    for call_id, code in told:
        ref = call_ref("run_1", call_id)
        head.append(ref, render_events(ref, [event(code, call=ref)]), 1, LogKey(b"k"))
    return head.status


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        ([REQUESTED], "running"),
        ([REQUESTED, STARTED], "running"),
        ([REQUESTED, STARTED, COMPLETED], "completed"),
        ([REQUESTED, FAILED], "failed"),
        ([REQUESTED, EventCode.APPROVAL_REQUESTED], "paused"),
        ([REQUESTED, STARTED, PAUSED], "paused"),
        ([REQUESTED, PAUSED, EventCode.APPROVAL_GRANTED, RESUMED], "running"),
        ([REQUESTED, PAUSED, RESUMED, STARTED, COMPLETED], "completed"),
        ([REQUESTED, STARTED, EventCode.CALL_RETRIED, EventCode.ARTIFACT_STORED], "running"),
        ([EventCode.CATALOG_CHANGED], "completed"),
        ([EventCode.CATALOG_CHANGED, REQUESTED], "running"),
    ],
)
def test_one_call_leads_its_run(codes: list[EventCode], status: str) -> None:
    assert status_after([("call_1", code) for code in codes]) == status


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "a@b.c", "password": "hunter22"},
        {"text": ',"params":', "none": None},
        {},
        JsonText('{"a":[1,2.5,"ä"]}'),
        5,
    ],
)
def test_the_arguments_of_a_call_are_the_same_in_its_request_and_its_start(arguments: object) -> None:
    ref = replace(call_ref(), redact=Redactor().plain)
    told = [
        event(REQUESTED, call=ref, facts={"params": arguments}),
        event(STARTED, call=ref, facts={"input": arguments}),
        event(STARTED, call=ref, facts={"input": {"other": 1}}),
        event(STARTED, call=ref, facts={"input": arguments, "more": 1}),
        event(COMPLETED, call=ref, facts={"summary": arguments}),
    ]

    together, alone = render_events(ref, told), [render_events(ref, [each]) for each in told]

    assert json.loads(together.text) == [entry for one in alone for entry in json.loads(one.text)]
    assert b"hunter22" not in together.text


def test_events_that_follow_one_another_lead_where_they_lead_one_by_one() -> None:
    told: Told = [("outer", code) for code in (REQUESTED, STARTED, PAUSED, RESUMED, STARTED, COMPLETED)]
    ref = call_ref("run_1", "outer")
    head = RunHead.of_first(ref, 0.0)

    head.append(ref, render_events(ref, [event(code, call=ref) for _, code in told]), 6, LogKey(b"k"))

    assert (head.status, head.open_calls, head.seq) == (status_after(told), 0, 6)


def test_the_end_of_a_nested_call_is_not_the_end_of_the_run() -> None:
    told: Told = [("outer", REQUESTED), ("outer", STARTED), ("inner", REQUESTED), ("inner", COMPLETED)]

    assert status_after(told) == "running"
    assert status_after([*told, ("outer", FAILED)]) == "failed"


def test_a_call_nested_in_a_finished_one_does_not_reopen_the_run() -> None:
    assert status_after([("outer", REQUESTED), ("outer", COMPLETED), ("inner", STARTED)]) == "completed"


def test_a_second_call_in_the_same_run_begins_it_anew() -> None:
    told: Told = [("one", REQUESTED), ("one", COMPLETED), ("two", REQUESTED)]

    assert status_after(told) == "running"
    assert status_after([*told, ("two", FAILED)]) == "failed"
