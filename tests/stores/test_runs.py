"""How a run stands, told by its events."""

import pytest
from msgspec.structs import replace

from tests.stores.samples import COMPLETED, FAILED, PAUSED, REQUESTED, RESUMED, STARTED, call_ref, event
from toolpost.contracts.events import EventCode, JsonText
from toolpost.policy.redaction import Redactor
from toolpost.stores.chain import EventRow, LogKey, RunHead, payload_text

Told = list[tuple[str, EventCode]]


def status_after(told: Told) -> str:
    head = RunHead.of_first(call_ref("run_1", told[0][0]), 0.0)
    for call_id, code in told:
        ref = call_ref("run_1", call_id)
        head.advance(event(code, call=ref), ref, 1, LogKey(b"k"))
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


@pytest.mark.parametrize("at", [1.5, 1763400000.1234567, 0.1, 1e-7, 2.0**50, 1e300, -3.25, 12])
def test_the_record_of_a_run_is_sealed_by_all_its_columns(at: float) -> None:
    key = LogKey(b"k")
    head = RunHead.of_first(call_ref("run_'1'", "call_\\1\n"), at, 7)
    head.advance(event(REQUESTED, at=at), call_ref(), 1, key)

    assert head.make_seal(key) == key.seal("run", head.columns())


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
    key, ref = LogKey(b"k"), replace(call_ref(), redact=Redactor().plain)
    head = RunHead.of_first(ref, 1.0)
    told = [
        event(STARTED, call=ref, facts={"input": None}),
        event(REQUESTED, call=ref, facts={"params": arguments}),
        event(STARTED, call=ref, facts={"input": arguments}),
        event(STARTED, call=ref, facts={"input": {"other": 1}}),
        event(STARTED, call=ref, facts={"input": arguments, "more": 1}),
        event(COMPLETED, call=ref, facts={"summary": arguments}),
    ]

    rows = [EventRow(*head.advance(each, ref, number, key)) for number, each in enumerate(told)]

    assert [row.payload for row in rows] == [payload_text(each) for each in told]
    assert "hunter22" not in "".join(row.payload for row in rows)


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
