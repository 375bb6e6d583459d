"""Retries of requests to chat models, which end with the first piece of a reply."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from toolpost.contracts.config import RetryPolicy
from toolpost.contracts.errors import ToolError, ToolTimeoutError
from toolpost.runtime.resilience import backoff, may_repeat

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")

OVERLOADED = 529  # not of the standard, but what Anthropic answers
RETRY = RetryPolicy(
    wait_exponential_min_s=0.5,
    wait_exponential_max_s=8.0,
    retry_on_status=[408, 409, 429, 500, 502, 503, 504, OVERLOADED],
)
_LONGEST_WAIT_S = 60.0  # whoever asked can decide better than to wait for longer


async def ask_with_retries(
    attempt: Callable[[float], AsyncGenerator[T]], policy: RetryPolicy, *, timeout_s: float
) -> AsyncGenerator[T]:
    """Yield what an attempt yields; one that failed before its first item is made again where that may help.

    `attempt` takes the seconds that are left. A reply that was slow is not asked for again.
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
    # A completion changes nothing, so that it may be asked for again even if the first request arrived.
    return not isinstance(error, ToolTimeoutError) and may_repeat(error, "idempotent", policy)
