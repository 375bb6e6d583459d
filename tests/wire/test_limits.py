"""Deadlines on one timer, and cancellations that are somebody else's."""

import asyncio

import pytest

from toolpost.wire.messages import Deadlines


def soon(seconds: float = 0.02) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_what_takes_too_long_ends_in_a_timeout() -> None:
    with pytest.raises(TimeoutError), Deadlines().until(soon()):
        await asyncio.Event().wait()

    await asyncio.sleep(0)  # and no cancellation is left over


async def test_each_meets_its_own_deadline() -> None:
    async def wait(seconds: float) -> float:
        due = soon(seconds)
        with pytest.raises(TimeoutError), deadlines.until(due):
            await asyncio.Event().wait()
        return asyncio.get_running_loop().time() - due

    deadlines = Deadlines()
    last = asyncio.create_task(wait(600))
    late = await asyncio.gather(*(wait(seconds) for seconds in (0.1, 0.02, 0.3, 0.02)))

    assert min(late) >= 0
    assert not last.done()
    last.cancel()


async def test_what_ends_in_time_is_left_alone() -> None:
    deadlines = Deadlines()
    with deadlines.until(soon()):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)

    with deadlines.until(soon(60)):
        await asyncio.sleep(0)


async def test_a_deadline_that_is_over_ends_the_wait_at_once() -> None:
    with pytest.raises(TimeoutError), Deadlines().until(soon(-1)):
        await asyncio.Event().wait()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        with Deadlines().until(soon(60)):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_at_the_same_time_wins() -> None:
    async def work() -> None:
        with Deadlines().until(soon(0.01)):
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()

    task = asyncio.create_task(work())

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_its_own_is_not_hidden() -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Deadlines().until(soon(0.01)):
        await work()

    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
