"""The fair limiter."""

import asyncio

import pytest

from toolpost.runtime.tool_runtime import Limiter


async def test_places_are_given_in_the_order_of_asking() -> None:
    limiter, order = Limiter(1), list[int]()
    await limiter.acquire()

    async def one(n: int) -> None:
        await limiter.acquire()
        order.append(n)
        limiter.release()

    tasks = [asyncio.create_task(one(n)) for n in range(5)]
    await asyncio.sleep(0)
    assert not limiter.try_acquire()
    limiter.release()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]
    assert limiter.try_acquire()


async def test_a_place_given_to_someone_cancelled_is_passed_on() -> None:
    limiter = Limiter(1)
    await limiter.acquire()
    gone, waiting = asyncio.create_task(limiter.acquire()), asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()  # gives the place to `gone` ...
    gone.cancel()  # ... who is cancelled before it wakes
    with pytest.raises(asyncio.CancelledError):
        await gone
    await asyncio.wait_for(waiting, 30)
