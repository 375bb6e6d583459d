"""The router's lanes, one per tool, made when a tool is first called and again when it changes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.config import RetryPolicy
from toolpost.contracts.errors import ToolNotFoundError, ToolSchemaError
from toolpost.contracts.spec import SafetyProfile, ToolSpec
from toolpost.policy.redaction import RedactingTool
from toolpost.runtime.breaker import CircuitBreaker
from toolpost.runtime.lane import Lane
from toolpost.runtime.limits import Limiter
from toolpost.runtime.retry import RetryBudget
from toolpost.runtime.upstream import HostUpstreams, Upstream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.catalog.entry import Entry
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.policy.approvals import Approvals
    from toolpost.policy.rules import Policy, Verdict
    from toolpost.runtime.teller import Teller


class Lanes:
    """Breaker, budget and limit are shared by the tools of a source; a tool of no source has its own.

    A tool that takes a URL has a breaker and a budget per host and tenant: one dead host is no reason to refuse others.
    """

    def __init__(
        self, registry: ToolRegistry, policy: Policy, teller: Teller, *, timeout_s: float, retry_ratio: float
    ) -> None:
        self._registry = registry
        self._policy = policy
        self._teller = teller
        self._timeout_s = timeout_s
        self._retry_ratio = retry_ratio
        self._lanes: dict[str, Lane] = {}
        self._upstreams: dict[str, Upstream] = {}
        self._hosts: dict[str, HostUpstreams] = {}
        self._limiters: dict[str, Limiter] = {}
        self._preparing: dict[str, tuple[Entry, asyncio.Task[None]]] = {}
        registry.subscribe(lambda _change: self._lanes.clear())

    def find(self, name: str) -> Lane | None:
        """The lane of a tool; None when there is no such tool, its schema cannot be used, or it must be prepared."""
        lane = self._lanes.get(name)
        if lane is not None:
            return lane
        try:
            return self.of(name) if self._registry.find(name).is_prepared else None
        except (ToolNotFoundError, ToolSchemaError):
            return None

    def knows(self, name: str) -> bool:
        """Whether there is such a tool."""
        return self._registry.has(name)

    async def prepared(self, name: str) -> Lane:
        """The lane of a tool; what large schemas need for it is worked out in a thread, once for all who wait."""
        while not (entry := self._registry.find(name)).is_prepared:
            preparing = self._preparing.get(name)
            if preparing is None or preparing[0] is not entry:
                task = asyncio.get_running_loop().create_task(run_in_thread(entry.prepare))
                preparing = self._preparing[name] = (entry, task)
                task.add_done_callback(partial(self._forget, name))
            await asyncio.shield(preparing[1])
        return self.of(name)

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # whoever waits is told; perhaps nobody waits any more
        if name in self._preparing and self._preparing[name][1] is task:
            del self._preparing[name]

    def of(self, name: str) -> Lane:
        """The lane of a tool; ToolNotFoundError or ToolSchemaError when there is none."""
        lane = self._lanes.get(name)
        if lane is None:
            entry = self._registry.find(name)
            if entry.hold is not None and entry.hold.is_settled():
                entry = self._registry.find(name)
            lane = self._make(entry)
            if entry.hold is None:  # else somebody may agree to the tool before its next call, in another process
                self._lanes[name] = lane
        return lane

    def approvals(self, name: str) -> Approvals:
        """Who may answer questions about a tool; of one that is not here, as far as its name tells."""
        lane = self.find(name)
        if lane is not None:
            return lane.verdict.approvals
        unknown = SafetyProfile(destructive=None)
        return self._policy.verdict(ToolSpec(name=name, source=name.partition(".")[0], safety=unknown)).approvals

    def _verdict(self, entry: Entry) -> Verdict:
        verdict = self._policy.verdict(entry.spec)
        return verdict if entry.hold is None else verdict.with_question(entry.hold.question())

    def _make(self, entry: Entry) -> Lane:
        spec, config, redactor = entry.spec, entry.config, self._teller.redactor
        if isinstance(entry.tool, RedactingTool):
            redactor.join(entry.tool.redactor)
        group = spec.source or spec.name
        arguments, results = entry.secret_paths
        return Lane(
            entry,
            verdict=self._verdict(entry),
            verdicts=self._verdicts(entry),
            upstream=self._upstreams.get(group) or self._upstreams.setdefault(group, self._new_upstream(group)),
            hosts=self._hosts_of(spec),
            limiters=self._limits(entry),
            retry_policy=config.retry_policy if config else RetryPolicy(),
            timeout_s=spec.timeout_s or (config.timeout_s if config else self._timeout_s),
            redact=redactor.for_tool(arguments=arguments, results=results),
            secret_paths=arguments,
        )

    def _verdicts(self, entry: Entry) -> Mapping[bool, Verdict] | None:
        """What holds for destructive calls of a tool and for others; None where no call needs a closer look."""
        if entry.previewer is None or entry.hold is not None:
            return None
        spec = entry.spec
        verdicts = {flag: self._policy.verdict(spec, destructive=flag) for flag in (True, False)}
        if spec.safety.destructive != entry.original.safety.destructive:  # the operator has said what they are
            verdicts = dict.fromkeys((True, False), self._policy.verdict(spec))
        asks = {verdict.action for verdict in (*verdicts.values(), self._policy.verdict(spec))}
        return verdicts if "ask" in asks or len(asks) > 1 else None

    def _limits(self, entry: Entry) -> tuple[Limiter, ...]:
        spec, config = entry.spec, entry.config
        limits: list[Limiter] = []
        if config is not None:
            limits.append(self._limiters.setdefault(f"source {config.name}", Limiter(config.max_concurrency)))
        if spec.max_concurrency is not None:
            limits.append(self._limiters.setdefault(f"tool {spec.name}", Limiter(spec.max_concurrency)))
        return tuple(limits)

    def _new_upstream(self, group: str) -> Upstream:
        breaker = CircuitBreaker(group, tell=lambda state: self._teller.breaker(group, state))
        return Upstream(breaker, RetryBudget(ratio=self._retry_ratio))

    def _hosts_of(self, spec: ToolSpec) -> HostUpstreams | None:
        """Return the upstreams of a tool that takes a URL; they outlive its lane."""
        argument, name = spec.host_argument, spec.name
        if argument is None:
            return None

        def make(host: str, tenant: str) -> Upstream:
            told = f"{name} to {host}"
            breaker = CircuitBreaker(told, tell=lambda state: self._teller.breaker(told, state, tenant=tenant))
            return Upstream(breaker, RetryBudget(ratio=self._retry_ratio))

        return self._hosts.get(name) or self._hosts.setdefault(name, HostUpstreams(argument, make))
