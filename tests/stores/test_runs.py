"""How a run stands, told by its events."""

import pytest

from tests.stores.samples import COMPLETED, FAILED, PAUSED, REQUESTED, RESUMED, STARTED, call_ref, event
from toolpost.contracts.events import EventCode
from toolpost.stores.chain import LogKey, RunHead

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


def test_the_record_of_a_run_is_sealed_by_all_its_columns() -> None:
    key = LogKey(b"k")
    head = RunHead.of_first(call_ref("run_'1'", "call_\\1\n"), 1.5, 7)
    head.advance(event(REQUESTED), call_ref(), 1, key)

    assert head.make_seal(key) == key.seal("run", head.columns())


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
