"""A gateway that is killed between a question and its answer, or during the answer: the call runs once."""

import asyncio

import pytest

from bench.rest.kills import count_runs


@pytest.mark.programs
async def test_a_call_runs_once_however_its_gateway_is_killed() -> None:
    assert await asyncio.to_thread(count_runs, 3) == {1: 3}
