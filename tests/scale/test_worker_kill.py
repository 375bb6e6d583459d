"""A worker is killed while it works: another one finishes its jobs, and nothing happens twice."""

import asyncio
from pathlib import Path

import pytest

from tests.scale.workers import Deployment, job, outcome_of
from toolpost.contracts.outcomes import Completed, Paused

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.waits]


@pytest.mark.req("SCALE-06")
async def test_the_jobs_of_a_killed_worker_are_finished_by_another(postgres_url: str, tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, postgres_url, concurrency=4)
    reads, payments = [f"read-{number}" for number in range(6)], ["pay-1", "pay-2"]
    async with deployment.client() as box:
        with deployment.worker() as first:
            for name in payments:
                await box.engine.enqueue(job(name, "local.pay", seconds=120.0))
            for name in reads:
                await box.engine.enqueue(job(name, seconds=1.0))
            while not {*payments} <= deployment.effects().keys():  # both are being made
                await asyncio.sleep(0.05)
            first.kill()
            with deployment.worker():
                while None in (outcomes := {name: await outcome_of(box, name) for name in reads + payments}).values():
                    await asyncio.sleep(0.2)

    assert [type(outcomes[name]) for name in reads] == [Completed] * len(reads)
    # What a payment did is not known, so a person is asked, and it is not made again.
    assert [type(outcomes[name]) for name in payments] == [Paused] * len(payments)
    assert [deployment.effects()[name] for name in payments] == [1, 1]
