"""Rates, slots, circuit breakers and gates that all processes on a store share."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from toolpost.contracts.errors import ErrorCategory, StoreError


class Rate(NamedTuple):
    """A token bucket: `burst` tokens at most, and a new one every `interval_s` seconds."""

    interval_s: float
    burst: float

    @classmethod
    def per_minute(cls, count: int) -> Rate:
        """Return the rate of `count` per minute; after an idle minute, all of them can be taken immediately."""
        return cls(60 / count, count)


class BreakerStatus(NamedTuple):
    """A circuit breaker: consecutive failures, and for how long it has been open (None: it is closed)."""

    name: str
    failures: int = 0
    open_for_s: float | None = None


class GateStatus(NamedTuple):
    """A gate: requests of this name wait for `wait_s` seconds, as their server requested (Retry-After)."""

    name: str
    wait_s: float


class Troubles(NamedTuple):
    """Breakers and gates that have changed; a breaker without failures has closed."""

    breakers: tuple[BreakerStatus, ...] = ()
    gates: tuple[GateStatus, ...] = ()


class LimitStore(Protocol):
    """Limits that hold over all processes on the store; they are not durable, and end with the last process.

    Names are chosen by the callers. If the store cannot be reached, all methods raise the StoreError of
    `limits_unavailable`: a limit that cannot be checked admits nothing.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes can use the same limits."""
        ...

    async def take(self, bucket: str, rate: Rate, *, count: int = 1, returned: float = 0.0) -> float:
        """Take `count` tokens, after `returned` tokens were put back; return 0, or the seconds until there are as many.

        Tokens that are put back are ignored if no token was taken.
        """
        ...

    async def enter(self, slots: str, limit: int, *, waiting: int = 0) -> bool:
        """Take one of `limit` slots for this process; return whether there was one.

        `waiting` is the number of calls of this process that wait for a slot, with this one. Slots are divided between
        waiting processes: one that has fewer slots is first, of several with the same number the one that waits longer.
        A caller that is cancelled has no slot. The slots of a terminated process are free.
        """
        ...

    def leave(self, slots: str) -> None:
        """Return a slot of this process, now or soon."""
        ...

    async def slot_freed(self, *, timeout_s: float) -> None:
        """Wait until another process may have returned a slot, for at most `timeout_s`."""
        ...

    async def read_breaker(self, breaker: str) -> BreakerStatus:
        """Return the status of a breaker."""
        ...

    async def fail(self, breaker: str, *, threshold: int, streak: int) -> tuple[BreakerStatus, bool]:
        """Count a failure; return the status, and whether this failure opened the breaker.

        `streak` is the number of consecutive failures of this process. A breaker opens after `threshold` consecutive
        failures of one process, or after the failure of the process that probes. It also opens after as many failures
        of all processes without a success, if the first is old enough that all processes knew to report successes.
        """
        ...

    async def succeed(self, breaker: str) -> bool:
        """Close a breaker; return whether it was open."""
        ...

    async def claim_probe(self, breaker: str, *, cooldown_s: float) -> bool:
        """Become the process that probes a breaker that has been open for `cooldown_s`; True for one process at a time.

        The claim ends with the next failure or success, and after another `cooldown_s`.
        """
        ...

    async def abandon_probe(self, breaker: str) -> None:
        """Let another process probe."""
        ...

    async def close_gate(self, gate: str, *, wait_s: float) -> None:
        """Let requests of this name wait for at least `wait_s` seconds."""
        ...

    async def read_troubles(self, *, within_s: float | None = None) -> Troubles:
        """Return the breakers and gates that have changed within the last `within_s` seconds (None: all)."""
        ...

    async def trouble_reported(self, *, timeout_s: float) -> None:
        """Wait until another process may have changed a breaker or a gate, for at most `timeout_s`."""
        ...


def limits_unavailable(cause: StoreError) -> StoreError:
    """Return the error of a limit that cannot be checked, because its store cannot be reached."""
    return StoreError(
        f"the limits that all processes share cannot be checked, so nothing was run; call again. {cause}",
        category=ErrorCategory.RETRYABLE_SERVER,
        code="limits_unavailable",
        retry_after_s=1.0,
        cause=cause,
    )
