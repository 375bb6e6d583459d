"""Policy, credentials, circuit breakers, retry budgets and concurrency limits of calls."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.runtime.gates import Gates
from toolpost.runtime.resilience import CircuitBreaker, RetryBudget
from toolpost.runtime.slots import Limiter, SharedSlots, WaitingLine
from toolpost.runtime.trouble_feed import TroubleFeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.auth.credentials import Authorizer
    from toolpost.catalog.entry import Entry
    from toolpost.contracts.calls import AuthorizedCall
    from toolpost.contracts.limits import BreakerStatus, LimitStore, Troubles
    from toolpost.contracts.sources import ToolSource
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor
    from toolpost.policy.rules import Policy
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.resilience import BreakerState

MOST_HOSTS = 4096
_LONGEST_HOST = 255  # RFC 1035 section 2.3.4: longer names cannot be resolved
_PORTS = {"http": 80, "https": 443}


class CallGuards:
    """The policy, credentials and limits that the tools of all registries of a Toolbox share.

    Tools of one source share its breaker, retry budget and slots. A tool that takes a URL has a breaker and a budget
    per host and tenant: one unreachable host does not block the others.
    """

    def __init__(
        self,
        policy: Policy,
        authorizer: Authorizer,
        *,
        emitter: EventEmitter,
        redactor: Redactor,
        limits: LimitStore,
        background: BackgroundTasks,
        timeout_s: float = 30.0,
        retry_ratio: float = 0.1,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.policy = policy
        self.authorizer = authorizer
        self.redactor = redactor
        self.timeout_s = timeout_s
        self._emitter = emitter
        self._retry_ratio = retry_ratio
        self._clock = clock
        self._limits = limits
        self._background = background
        self.gates = Gates(limits, clock)
        self.feed = TroubleFeed(limits, self._apply_troubles, clock.monotonic)
        self._breakers = WeakValueDictionary[str, CircuitBreaker]()
        self._uncalled: dict[str, tuple[BreakerStatus, float]] = {}
        self._upstreams: dict[str, tuple[ToolSource | None, Upstream]] = {}
        self._hosts: dict[str, HostUpstreams] = {}
        self._line = WaitingLine(limits, background)
        self._limiters: dict[str, tuple[int, Limiter]] = {}

    def limiters(self, entry: Entry) -> tuple[Limiter, ...]:
        """Return the limiters of a tool's source and of the tool itself, as far as they have limits.

        Configured limits apply to all processes together. The default of a source applies to each process: a source
        without limits costs no request to the store.
        """
        spec, config = entry.spec, entry.config
        limiters: list[Limiter] = []
        if config is not None:
            is_shared = "max_concurrency" in config.model_fields_set
            limiters.append(self._limiter(f"source {config.name}", config.max_concurrency, is_shared=is_shared))
        if spec.max_concurrency is not None:
            limiters.append(self._limiter(f"tool {spec.name}", spec.max_concurrency))
        return tuple(limiters)

    def _limiter(self, name: str, limit: int, *, is_shared: bool = True) -> Limiter:
        known_limit, limiter = self._limiters.get(name, (None, None))
        is_known = known_limit == limit and isinstance(limiter, SharedSlots) == is_shared
        if limiter is None or not is_known:  # a source may be replaced by one with other limits
            limiter = SharedSlots(name, limit, self._line) if is_shared else asyncio.Semaphore(limit)
            self._limiters[name] = (limit, limiter)
        return limiter

    def upstream(self, entry: Entry) -> Upstream:
        """Return the upstream of a tool's source; a source that replaced another begins with a closed breaker."""
        group = entry.spec.source or entry.spec.name
        source, upstream = self._upstreams.get(group, (None, None))
        if upstream is None:
            upstream = self._make(group, lambda state: self._emitter.emit_breaker(group, state))
        elif entry.source is not None and source is not entry.source:
            upstream.breaker.reset()
        else:
            return upstream
        self._upstreams[group] = (entry.source, upstream)
        return upstream

    def breaker(self, source: str) -> CircuitBreaker | None:
        """Return the breaker of a source, if one of its tools was called, or if its calls failed in other processes."""
        breaker = self._breakers.get(source)
        if breaker is None and source in self._uncalled:
            return self._make_breaker(source, source, lambda _state: None)
        return breaker

    def hosts(self, spec: ToolSpec) -> HostUpstreams | None:
        """Return the upstreams of a tool that takes a URL; they outlive its runtime."""
        argument, name = spec.host_argument, spec.name
        if argument is None:
            return None

        def make(host: str, tenant: str) -> Upstream:
            label = f"{name} to {host}"
            key = f"{label} of {tenant}"
            return self._make(label, lambda state: self._emitter.emit_breaker(label, state, tenant=tenant), key=key)

        return self._hosts.get(name) or self._hosts.setdefault(name, HostUpstreams(argument, make))

    def _make(self, label: str, on_state: Callable[[BreakerState], None], *, key: str = "") -> Upstream:
        breaker = self._breakers[key or label] = self._make_breaker(label, key or label, on_state)
        self._uncalled.pop(key or label, None)
        return Upstream(breaker, RetryBudget(key or label, self._limits, ratio=self._retry_ratio))

    def _make_breaker(self, label: str, key: str, on_state: Callable[[BreakerState], None]) -> CircuitBreaker:
        now = self._clock.monotonic
        breaker = CircuitBreaker(
            label, self._limits, key=key, clock=now, on_state=on_state, background=self._background
        )
        if key in self._uncalled:
            status, read_at = self._uncalled[key]
            breaker.apply(status, read_at=math.inf, age_s=now() - read_at)
        return breaker

    def _apply_troubles(self, troubles: Troubles, read_at: float) -> None:
        """Apply what other processes have reported."""
        self.gates.apply(troubles.gates)
        for status in troubles.breakers:
            breaker = self._breakers.get(status.name)
            if breaker is not None:
                breaker.apply(status, read_at=read_at)
            elif status.failures and len(self._uncalled) < MOST_HOSTS:
                self._uncalled[status.name] = (status, read_at)
            else:
                self._uncalled.pop(status.name, None)


class Upstream(NamedTuple):
    """Circuit breaker and retry budget of one server."""

    breaker: CircuitBreaker
    budget: RetryBudget

    async def succeeded(self) -> None:
        """Record a successful attempt; not needed while there are neither failures nor spent retries."""
        if self.breaker.failures:
            await self.breaker.succeeded()
        if self.budget.spent:
            self.budget.deposit()


class HostUpstreams:
    """One upstream per host and tenant, for a tool whose argument is a URL.

    At most `MOST_HOSTS` are stored. The least recently used is evicted first; its breaker then starts closed again.
    """

    def __init__(self, argument: str, make: Callable[[str, str], Upstream]) -> None:
        self._argument = argument
        self._make = make
        self._upstreams: OrderedDict[tuple[str, str], Upstream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._upstreams)

    def of(self, call: AuthorizedCall) -> Upstream:
        """Return the upstream for the host in the arguments of a call and the tenant of its principal."""
        key = (host_of(call.arguments.get(self._argument)), call.request.principal.tenant)
        upstream = self._upstreams.get(key)
        if upstream is not None:
            self._upstreams.move_to_end(key)
            return upstream
        upstream = self._upstreams[key] = self._make(*key)
        if len(self._upstreams) > MOST_HOSTS:
            self._upstreams.popitem(last=False)
        return upstream


def host_of(url: object) -> str:
    """Return host and port of a URL; empty for a URL without them, which is refused later."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        host, port = (None, None) if parts is None else (parts.hostname, parts.port or _PORTS.get(parts.scheme.lower()))
    except ValueError:
        return ""
    return f"{host.rstrip('.')}:{port}" if host and len(host) <= _LONGEST_HOST else ""
