"""A gateway that is killed between a question and its answer, or during the answer: the call runs once."""

import asyncio

import pytest

from bench.rest.kills import kill_gateways


@pytest.mark.programs
@pytest.mark.parametrize("fork", [True, False])
async def test_a_call_runs_once_however_its_gateway_is_killed(fork: bool) -> None:
    kills = await asyncio.to_thread(kill_gateways, 6 if fork else 3, fork=fork)

    assert [kill.ran for kill in kills] == [1] * len(kills)
