"""Providers in order: the next is asked when one fails, and each such step is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from toolpost.builtin.providers.protocols import Provider
from toolpost.contracts.errors import (
    ErrorCategory,
    ToolConnectionError,
    ToolError,
    ToolPermissionError,
    ToolServerError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from toolpost.contracts.context import ToolContext

P = TypeVar("P", bound=Provider)
P_co = TypeVar("P_co", bound=Provider, covariant=True)
T = TypeVar("T")


class Chain(Generic[P_co]):
    """Providers of one kind, in the order of the configuration."""

    def __init__(self, providers: Sequence[P_co]) -> None:
        if not providers:
            raise ValueError("a chain needs at least one provider")
        self.providers = tuple(providers)

    async def first(self, ask: Callable[[P_co], Awaitable[T]], ctx: ToolContext) -> T:
        """What the first provider says that does not fail; all failures together when there is none.

        A refusal of the guard holds for all of them: what one must not reach, another is not asked for.
        """
        failures: list[tuple[P_co, ToolError]] = []
        for provider in self.providers:
            if failures:
                _tell(ctx, failures[-1], provider)
            try:
                return await ask(_within(provider, ctx))
            except ToolPermissionError:
                raise
            except ToolError as failed:
                failures.append((provider, failed))
        raise _all_failed(failures)

    async def close(self) -> None:
        """Close every provider."""
        for provider in self.providers:
            await provider.close()


def _within(provider: P, ctx: ToolContext) -> P:
    within: Callable[[ToolContext], P] | None = getattr(provider, "within", None)
    return provider if within is None else within(ctx)


def _tell(ctx: ToolContext, failure: tuple[P, ToolError], following: P) -> None:
    provider, error = failure
    ctx.fell_back(provider.name, to=following.name, error=error)


def _all_failed(failures: Sequence[tuple[P, ToolError]]) -> ToolError:
    if len(failures) == 1:
        return failures[0][1]
    told = "; ".join(f"{provider.name}: {error}" for provider, error in failures)
    errors = [error for _, error in failures]
    waits = [error.retry_after_s for error in errors if error.retry_after_s is not None]
    retryable = any(error.is_retryable for error in errors)
    if all(isinstance(error, ToolConnectionError) and not error.sent for error in errors):
        return ToolConnectionError(f"all providers failed: {told}", sent=False, code="all_providers_failed")
    return ToolServerError(
        f"all providers failed: {told}",
        category=ErrorCategory.RETRYABLE_SERVER if retryable else ErrorCategory.NON_RETRYABLE_CLIENT,
        code="all_providers_failed",
        retry_after_s=min(waits, default=None),
    )
