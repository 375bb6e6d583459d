"""A search engine with a rate, and whoever keeps to it; the clock is given to both."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from tests.builtin.recorded import recorded
from tests.wire.site import Received, Site
from toolpost.builtin.providers.protocols import SearchProvider, SearchResults
from toolpost.contracts.errors import ToolRateLimitError

_MOST_REFUSALS = 5


async def searched_at_their_rate(
    provider: SearchProvider, queries: Iterable[str], *, wait: Callable[[float], Awaitable[None]]
) -> list[SearchResults]:
    """One search after the other; after a refusal as long is waited as the provider says, and asked again."""
    found: list[SearchResults] = []
    for query in queries:
        for refusals in range(_MOST_REFUSALS + 1):
            try:
                found.append(await provider.search(query, 1))
                break
            except ToolRateLimitError as limited:
                if refusals == _MOST_REFUSALS or limited.retry_after_seconds is None:
                    raise
                await wait(limited.retry_after_seconds)
    return found


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class OneASecond(Site):
    """Brave with a small plan: a second request in the same second is refused."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(answer=self._answer)
        self.clock = clock
        self.answered: list[tuple[float, str]] = []
        self.refused = 0

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        fine = not self.answered or self.clock.now - self.answered[-1][0] >= 1
        if fine:
            self.answered.append((self.clock.now, received.path))
        else:
            self.refused += 1
        writer.write(recorded("brave/found" if fine else "brave/too_fast"))
        await writer.drain()
