"""Backoff and budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost import RetryPolicy
from toolpost.errors import ToolRateLimitError, ToolServerError
from toolpost.runtime.resilience import RetryBudget, backoff, may_repeat
from toolpost.stores.memory.limits import MemoryLimits

POLICY = RetryPolicy()


@pytest.mark.req("TEST-11")
@given(tries=st.integers(1, 10), chance=st.floats(0, 1))
def test_a_wait_is_between_half_and_all_of_the_exponential_step(tries: int, chance: float) -> None:
    step = min(5.0, 0.1 * 2 ** (tries - 1))
    wait = backoff(tries, ToolServerError("busy"), POLICY, chance=lambda: chance)
    assert step / 2 <= wait <= step


@pytest.mark.req("ERR-06", "TEST-11")
def test_a_retry_after_is_the_least_that_is_waited() -> None:
    assert backoff(1, ToolRateLimitError("slow", retry_after_s=7), POLICY) == 7
    assert backoff(1, ToolRateLimitError("slow"), POLICY) == 1


@pytest.mark.req("CFG-07")
def test_only_the_listed_statuses_are_repeated() -> None:
    policy = RetryPolicy(retry_on_status=[503])
    assert may_repeat(ToolServerError("x", status_code=503), "idempotent", policy)
    assert not may_repeat(ToolServerError("x", status_code=500), "idempotent", policy)
    assert may_repeat(ToolServerError("x"), "idempotent", policy)


async def test_a_budget_pays_for_retries_out_of_successes() -> None:
    now = [0.0]
    limits = MemoryLimits("own_a", lambda: now[0])
    budget, other = (RetryBudget("api", limits, ratio=0.5, capacity=2) for _ in range(2))
    assert [await one.withdraw() for one in (budget, other, budget)] == [True, True, False]
    other.deposit()
    assert not await other.withdraw()
    other.deposit()
    other.deposit()  # it has returned all that it took
    assert [await one.withdraw() for one in (other, budget)] == [True, False]
    now[0] = 60.0
    assert [await budget.withdraw() for _ in range(2)] == [True, False]
