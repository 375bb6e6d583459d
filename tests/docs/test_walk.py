"""The way of a call is short, and the picture of it is that of this code."""

import asyncio

import pytest

from tools.walk import PICTURE, Walk, draw, trace_calls

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def walks() -> list[Walk]:
    return asyncio.run(trace_calls())


def test_a_reader_opens_few_files_to_follow_a_call(walks: list[Walk]) -> None:
    assert {walk.title: len(walk.steps) for walk in walks if len(walk.steps) > walk.most} == {}


def test_the_picture_of_the_calls_is_up_to_date(walks: list[Walk]) -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(walks), "run `python -m tools.walk`"
