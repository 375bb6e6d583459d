"""Gates of sources: after a Retry-After, no process sends requests with the same credential before its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ErrorCategory, StoreError, ToolError, ToolRateLimitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.limits import GateStatus, LimitStore

_LONGEST_S = 3600.0  # a server cannot stop its tools for longer by one response
_UNAVAILABLE = 503


class Gates:
    """The gates of all sources that this process knows; while `opens_at` is empty, `wait` need not be called."""

    def __init__(self, limits: LimitStore, clock: Clock) -> None:
        self.opens_at: dict[str, float] = {}
        self._limits = limits
        self._now, self._chance = clock.monotonic, clock.chance

    async def wait(self, source: str, credential: Credential, *, tool_name: str, deadline: float) -> None:
        """Wait until requests can be sent; raise ToolRateLimitError if the deadline of the call is earlier."""
        name = _gate_name(source, credential)
        while name in self.opens_at:
            now = self._now()
            left = self.opens_at[name] - now
            if left <= 0:
                del self.opens_at[name]
                return
            wait_s = left + self._chance() * min(1.0, left / 10)  # not all processes at the same moment
            if now + wait_s >= deadline:
                message = f"{source!r} requested a pause (Retry-After), so nothing was sent; call again in {left:.0f} s"
                raise ToolRateLimitError(message, tool_name=tool_name, retry_after_s=left)
            await asyncio.sleep(wait_s)

    async def close(self, source: str, credential: Credential, error: ToolError) -> None:
        """Close the gate of a source and a credential if the error of the server contains a Retry-After."""
        is_busy = error.category is ErrorCategory.RETRYABLE_RATE_LIMIT or error.status_code == _UNAVAILABLE
        if error.retry_after_s is None or not is_busy:
            return
        name, wait_s = _gate_name(source, credential), min(error.retry_after_s, _LONGEST_S)
        self.opens_at[name] = max(self.opens_at.get(name, 0.0), self._now() + wait_s)
        if self._limits.is_shared:
            with suppress(StoreError):  # the gate of this process is closed
                await self._limits.close_gate(name, wait_s=wait_s)

    def apply(self, gates: Iterable[GateStatus]) -> None:
        """Close gates that other processes have closed."""
        now = self._now()
        for name, opens_at in list(self.opens_at.items()):
            if opens_at <= now:
                del self.opens_at[name]
        for gate in gates:
            self.opens_at[gate.name] = max(self.opens_at.get(gate.name, 0.0), now + gate.wait_s)


def _gate_name(source: str, credential: Credential) -> str:
    """Return the name of a gate; the store does not contain the names of users."""
    return f"{source} {blake2b(credential.key.encode(), digest_size=16).hexdigest()}"
