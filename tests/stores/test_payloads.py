"""Whatever a tool puts into an event becomes JSON that can be stored."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolpost.contracts.events import RunEvent
from toolpost.stores import event_rendering
from toolpost.stores.event_rendering import render_events, render_segments
from toolpost.testing.stores.samples import call_ref, event


def facts_text(told: RunEvent) -> str:
    """The text of an event's facts in its segment, without its code and its time."""
    text = render_events(told.call, [told]).text.decode()
    start, end = "[[400,1000.0,", "]]"
    assert (text[: len(start)], text[-len(end) :]) == (start, end)
    return text[len(start) : -len(end)]


def text_of(value: Any) -> str:
    return facts_text(event(facts={"value": value}))


def test_text_is_compact_and_readable() -> None:
    assert text_of({"a": [1, "é"]}) == '{"value":{"a":[1,"é"]}}'


def test_values_that_json_does_not_have_are_reported_as_text() -> None:
    assert json.loads(text_of({1, 2})) == {"value": "{1, 2}"}


@pytest.mark.parametrize(("number", "name"), [("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")])
def test_numbers_that_json_does_not_have_are_named(number: str, name: str) -> None:
    assert json.loads(text_of([1.5, float(number)])) == {"value": [1.5, name]}


def test_lone_surrogates_survive_as_escapes() -> None:
    text = text_of("a\ud800b")

    assert text.isascii()
    assert json.loads(text) == {"value": "a\ud800b"}


def test_an_event_that_cannot_be_told_is_kept_with_the_reason() -> None:
    def broken(_: Mapping[str, Any]) -> NoReturn:
        raise LookupError("no rule")

    endless: list[Any] = []
    endless.append(endless)

    assert facts_text(event(call=replace(call_ref(), redact=broken))) == '{"unrenderable":"LookupError"}'
    assert text_of(endless) == '{"unrenderable":"RecursionError"}'
    assert text_of({(1, 2): 3}) == '{"unrenderable":"TypeError"}'


def test_an_event_too_large_for_the_database_is_kept_without_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rendering, "MAX_BYTES", 100)

    assert text_of("é" * 100) == '{"unrenderable":"OverflowError"}'
    assert text_of("e" * 100) == '{"unrenderable":"OverflowError"}'


def test_an_event_that_cannot_be_told_leaves_those_beside_it_as_they_are() -> None:
    ref = call_ref()
    told = [event(call=ref, facts={"value": value}) for value in (1, {(1, 2): 3}, float("nan"), "\ud800")]

    rendered = render_events(ref, told)

    assert [facts for _, _, facts in json.loads(rendered.text)] == [
        {"value": 1},
        {"unrenderable": "TypeError"},
        {"value": "NaN"},
        {"value": "\ud800"},
    ]
    assert (rendered.tool_name, rendered.correlation_id) == ("mail.send", "corr_1")


def test_a_time_that_json_does_not_have_is_no_reason_to_lose_an_event() -> None:
    (entry,) = json.loads(render_events(call_ref(), [event(at=float("nan"))]).text)

    assert entry == [400, 0.0, {}]


def test_large_events_become_segments_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rendering, "LARGE_SEGMENT", 200)
    told = [event(facts={"value": "x" * size}) for size in (10, 100, 10, 10, 300)]

    segments = render_segments(call_ref(), told)

    assert [len(segment.events) for segment in segments] == [2, 1, 1, 1]
    assert [event for segment in segments for event in segment.events] == told


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    text = text_of(value)

    text.encode()
    assert json.loads(text) == {"value": value}
