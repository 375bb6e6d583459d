"""Retries of requests to models."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from toolpost.contracts.errors import ToolError, ToolTimeoutError
from toolpost.contracts.retries import RetryPolicy
from toolpost.runtime.resilience import backoff, may_repeat

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")
OVERLOADED = 529  # Anthropic's status for an overloaded API; not a standard code
RETRY = RetryPolicy(
    wait_exponential_min_s=0.5,
    wait_exponential_max_s=8.0,
    retry_on_status=[408, 409, 429, 500, 502, 503, 504, OVERLOADED],
)
_LONGEST_WAIT_S = 60.0  # a longer wait is the caller's decision


async def request_with_retries(
    attempt: Callable[[float], AsyncGenerator[T]], policy: RetryPolicy, *, timeout_s: float
) -> AsyncGenerator[T]:
    """Yield the items of an attempt; repeat one that failed before its first item if a retry may help.

    `attempt` takes the remaining seconds. A slow reply is not requested again.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    tries = 0
    while True:
        tries += 1
        began = False
        try:
            async with aclosing(attempt(deadline - clock())) as items:
                async for item in items:
                    began = True
                    yield item
            return
        except ToolError as error:
            if began or tries >= policy.max_attempts or not _may_retry(error, policy):
                raise
            wait = backoff(tries, error, policy)
            if wait > min(_LONGEST_WAIT_S, deadline - clock()):
                raise
        await asyncio.sleep(wait)


def _may_retry(error: ToolError, policy: RetryPolicy) -> bool:
    # A completion has no effects, so it may be requested again even if the first request arrived.
    return not isinstance(error, ToolTimeoutError) and may_repeat(error, "idempotent", policy)
