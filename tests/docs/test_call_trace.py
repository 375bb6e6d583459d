"""The way of a call is short, and the picture of it is that of this code."""

import asyncio

import pytest

from tools.call_trace import PICTURE, CallTrace, draw, trace_calls

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def traces() -> list[CallTrace]:
    return asyncio.run(trace_calls())


def test_a_reader_opens_few_files_to_follow_a_call(traces: list[CallTrace]) -> None:
    assert {trace.title: len(trace.steps) for trace in traces if len(trace.steps) > trace.most} == {}


def test_the_picture_of_the_calls_is_up_to_date(traces: list[CallTrace]) -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(traces), "run `python -m tools.call_trace`"
