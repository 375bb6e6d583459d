"""The circuit breaker on a clock of its own."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.stores.conftest import open_store
from toolpost import ToolError
from toolpost.contracts.limits import BreakerStatus
from toolpost.errors import (
    ToolAuthError,
    ToolCircuitOpenError,
    ToolConnectionError,
    ToolRateLimitError,
    ToolServerError,
)
from toolpost.runtime.resilience import CircuitBreaker, RetryBudget
from toolpost.stores.memory.limits import MemoryLimits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def breaker(clock: Clock, told: list[str]) -> CircuitBreaker:
    return CircuitBreaker("api", MemoryLimits("own_a", clock), clock=clock, on_state=told.append)


async def fail(breaker: CircuitBreaker, times: int, error: ToolError | None = None) -> None:
    for _ in range(times):
        await breaker.failed(error or ToolServerError("down"))


@pytest.mark.req("GEN-04", "RES-07")
async def test_it_opens_after_five_failures_in_a_row(breaker: CircuitBreaker, told: list[str]) -> None:
    await fail(breaker, 4)
    await breaker.admit("api.get")
    await fail(breaker, 1)
    assert breaker.state == "open"
    assert told == ["open"]
    with pytest.raises(ToolCircuitOpenError) as refused:
        await breaker.admit("api.get")
    assert not refused.value.is_retryable
    assert refused.value.retry_after_s == 30


class ReadMidway:
    """Limits of a store that another task reads while a failure is recorded."""

    def __init__(self, limits: Any, clock: Clock) -> None:
        self.limits = limits
        self.breaker = CircuitBreaker("api", self, clock=clock)  # type: ignore[arg-type]
        self.clock = clock

    async def fail(self, name: str, *, threshold: int, streak: int) -> tuple[BreakerStatus, bool]:
        read_at, before = self.clock(), await self.limits.read_breaker(name)
        recorded = await self.limits.fail(name, threshold=threshold, streak=streak)
        self.breaker.apply(before, read_at=read_at)
        return cast("tuple[BreakerStatus, bool]", recorded)


async def test_a_status_that_is_read_while_a_failure_is_recorded_takes_nothing_back(
    tmp_path: Path, clock: Clock
) -> None:
    async with open_store(tmp_path) as store:
        breaker = ReadMidway(store.limits, clock).breaker
        await fail(breaker, 5)

        assert breaker.state == "open"


async def test_a_success_between_starts_the_count_again(breaker: CircuitBreaker) -> None:
    await fail(breaker, 4)
    await breaker.succeeded()
    await fail(breaker, 4)
    assert breaker.state == "closed"


@pytest.mark.req("RES-07")
async def test_after_the_cooldown_exactly_one_probe_goes_through(breaker: CircuitBreaker, clock: Clock) -> None:
    await fail(breaker, 5)
    clock.now = 30
    assert breaker.state == "half_open"
    await breaker.admit("api.get")
    with pytest.raises(ToolCircuitOpenError, match="probe"):
        await breaker.admit("api.get")


@pytest.mark.req("RES-07")
async def test_a_good_probe_closes_it_and_a_bad_one_opens_it_again(
    breaker: CircuitBreaker, clock: Clock, told: list[str]
) -> None:
    await fail(breaker, 5)
    clock.now = 30
    await breaker.admit("api.get")
    await fail(breaker, 1, ToolConnectionError("still down"))
    assert told == ["open"]
    clock.now = 60
    await breaker.admit("api.get")
    await breaker.succeeded()
    assert breaker.state == "closed"
    assert told == ["open", "closed"]


async def test_a_cancelled_probe_lets_the_next_one_through(breaker: CircuitBreaker, clock: Clock) -> None:
    await fail(breaker, 5)
    clock.now = 31
    await breaker.admit("api.get")
    breaker.abandoned()
    await breaker.admit("api.get")


@pytest.mark.parametrize("error", [ToolAuthError("no"), ToolRateLimitError("slow"), ToolError("odd")])
async def test_an_error_that_concerns_one_caller_does_not_count(breaker: CircuitBreaker, error: ToolError) -> None:
    await fail(breaker, 20, error)
    assert breaker.state == "closed"


async def test_a_probe_that_is_answered_at_all_shows_that_the_source_lives(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    await fail(breaker, 5)
    clock.now = 31
    await breaker.admit("api.get")
    await fail(breaker, 1, ToolAuthError("who are you"))
    assert breaker.state == "closed"


async def test_a_connection_that_broke_under_many_calls_is_one_failure(breaker: CircuitBreaker) -> None:
    for incident in (object(), object()):
        for _ in range(9):
            error = ToolConnectionError("lost")
            error.incident = incident
            await breaker.failed(error)
    assert (breaker.failures, breaker.state) == (2, "closed")


async def test_without_the_store_each_process_counts_its_own_failures_and_retries_nothing(tmp_path: Path) -> None:
    now = [0.0]
    async with open_store(tmp_path) as store:
        (tmp_path / "limits.db").mkdir()  # as if the database could not be reached
        breaker = CircuitBreaker("api", store.limits, clock=lambda: now[0])
        await fail(breaker, 5)
        with pytest.raises(ToolCircuitOpenError):
            await breaker.admit("api.get", is_retry=True)
        now[0] = 30.0
        await breaker.admit("api.get")
        with pytest.raises(ToolCircuitOpenError, match="probe"):
            await breaker.admit("api.get")
        await breaker.succeeded()

        assert breaker.state == "closed"
        assert not await RetryBudget("api", store.limits).withdraw()
