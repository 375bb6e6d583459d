"""How a run stands, told by its events."""

import json

import pytest
from msgspec.structs import replace

from toolpost.contracts.events import EventCode, JsonText
from toolpost.policy.redaction import Redactor
from toolpost.stores.chain import LogKey
from toolpost.stores.event_rendering import render_events
from toolpost.stores.run_heads import RunHead
from toolpost.testing.stores.samples import COMPLETED, PAUSED, REQUESTED, RESUMED, STARTED, call_ref, event

Told = list[tuple[str, EventCode]]


def status_after(told: Told) -> str:
    head = RunHead.of_first(call_ref("run_1", told[0][0]), 0.0)
    for call_id, code in told:
        ref = call_ref("run_1", call_id)
        head.append(ref, render_events(ref, [event(code, call=ref)]), 1, LogKey(b"k"))
    return head.status


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
