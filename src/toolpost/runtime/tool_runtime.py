"""Everything that the router needs to call one tool, computed at its first call and again when the tool changes."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.calls import AuthorizedCall, RequestedCall, ToolOutput, ValidatedCall
from toolpost.contracts.errors import ToolNotFoundError, ToolSchemaError
from toolpost.contracts.events import CallRef
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.sources import HoldingSource
from toolpost.contracts.spec import SafetyProfile, ToolSpec
from toolpost.policy.approvals import Approvals
from toolpost.policy.call_hashes import CalledTool
from toolpost.policy.redaction import RedactingTool, Redactor, secret_values
from toolpost.policy.untrusted import TRUSTED, UNTRUSTED
from toolpost.runtime.arguments import UnreadableArguments
from toolpost.schema.secrets import SecretPaths, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.auth.credentials import SourceAccess
    from toolpost.catalog.entry import Entry
    from toolpost.catalog.lock import Hold
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.guards import CallGuards, HostUpstreams, Upstream
    from toolpost.runtime.slots import Limiter

_NO_SECRETS: frozenset[Any] = frozenset()
_PLAIN = frozenset({str, int, float, bool, type(None)})


class CallTraits(NamedTuple):
    """The facts that a host needs before a call.

    `runs_once`: repeating the call must not run it again, because it has effects or may pause. `may_report`: the call
    can report progress or stream values.
    """

    runs_once: bool = True
    may_report: bool = True


class ToolRuntime:
    """Validator, verdict, credentials, limiters, breaker, deadline and redaction of one tool.

    A call uses the same runtime until its end, even if its tool or its source is replaced while it runs.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        access: SourceAccess,
        verdict: Verdict,
        verdicts: Mapping[bool, Verdict] | None,
        upstream: Upstream,
        hosts: HostUpstreams | None,
        limiters: tuple[Limiter, ...],
        retry_policy: RetryPolicy,
        attempt_s: float,
        deadline_s: float,
        redactor: Redactor,
    ) -> None:
        self.entry = entry
        self.counts = entry.counts
        self.spec = entry.spec
        self.name = entry.spec.name
        self.tool = tool = entry.tool
        self.start: Callable[[AuthorizedCall], Awaitable[Any]] = entry.invoke
        self.output: Callable[[Any], ToolOutput] | None = None  # converts the value of `start`, unless it is an output
        if entry.source is None and isinstance(tool, FunctionTool) and type(tool).invoke is FunctionTool.invoke:
            self.start, self.output = tool.start, tool.output  # without a coroutine around the function's own
        self.access = access
        self.verdict = verdict
        self.verdicts = verdicts  # by whether the preview of a call is destructive
        self.previewer = None if verdicts is None else entry.previewer
        self.upstream = upstream
        self.hosts = hosts
        self.gated_source = None if entry.source is None else entry.spec.source or entry.spec.name
        self.limiters = limiters
        self.retry_policy = retry_policy
        config = entry.config
        self.own_attempt_s = None if config is None or attempt_s == config.timeout_s else attempt_s
        self.attempt_s = attempt_s  # the limit of one attempt; infinite if the call has only a deadline
        self.deadline_s = deadline_s
        self._redactor = redactor
        arguments, results = entry.secret_paths
        self.secret_paths: SecretPaths = arguments
        self.redact = redactor.for_tool(arguments=arguments, results=results)
        self._called: CalledTool | None = None
        self.journaled = entry.spec.has_effects
        asks_midway = _may_ask_midway(entry)
        self.asks_midway = self.journaled and asks_midway
        may_pause = asks_midway or verdict.action == "ask" or verdicts is not None or access.provider is not None
        may_report = not isinstance(tool, FunctionTool) or tool.may_report
        self.traits = CallTraits(self.journaled or may_pause, may_report)
        self.cache_ttl_s = None if self.journaled else entry.spec.cache_ttl_s
        plain = self.spec.validate_inputs != "off" and entry.overlay is None
        self._is_valid = entry.input_validator.is_valid if plain else None
        # Metadata of untrusted content; results of the operator's own functions have none, unless they fetch content.
        origin = entry.content_origin
        trust = TRUSTED if entry.is_trusted else UNTRUSTED
        self.origin = {"origin": origin, "trust": trust} if origin else None
        self.output_check = entry.output_check
        output = None if self.output_check == "off" else entry.output_validator
        self.output_fits = None if output is None else output.is_valid

    @property
    def called(self) -> CalledTool:
        """The facts of the tool that are stored with its calls; computed on first use."""
        if self._called is None:
            self._called = CalledTool.of(self.spec, self.secret_paths)
        return self._called

    def call_ref(self, request: RequestedCall) -> CallRef:
        """Return the reference to a call for its events."""
        call_id, (tenant, user) = request.call_id, request.principal
        redact = self.redact
        if self.secret_paths or request.context is not None:
            redactor = self.redactor_for(request)
            if redactor is not self._redactor:  # secrets in the arguments must not appear in an error or a result
                arguments, results = self.entry.secret_paths
                redact = redactor.for_tool(arguments=arguments, results=results)
        return CallRef(request.run_id, call_id, self.name, tenant, user, request.correlation_id or call_id, redact)

    def redactor_for(self, request: RequestedCall) -> Redactor:
        """Return a redactor that also masks the secrets in the arguments and the context of a call."""
        own = context_secrets(request)
        if self.secret_paths:
            own = own.union(secret_values(request.arguments, self.secret_paths))
        return self._redactor.with_secrets(own) if own else self._redactor

    def validate(self, request: RequestedCall) -> ValidatedCall:
        """Validate the arguments against the schema, and add those that an override fixes."""
        arguments, is_valid = request.arguments, self._is_valid
        try:
            fits = is_valid is not None and is_valid(arguments)
        except ValueError:  # a value in them is not JSON
            fits = False
        if not fits and isinstance(arguments, UnreadableArguments):
            raise arguments.refusal(self.name)
        return ValidatedCall(request, self.tool, arguments if fits else self.entry.fit(arguments))

    def output_issues(self, content: Any) -> list[str]:
        """Return the schema violations of an output."""
        validator = self.entry.output_validator
        return [] if validator is None else validator.issues(content)

    async def acquire(self, held: tuple[object, ...]) -> None:
        """Wait for a slot of the tool and of its source; a nested call shares the slots of its parent call."""
        taken: list[Limiter] = []
        try:
            for limiter in self.limiters:
                if limiter not in held:
                    await limiter.acquire()
                    taken.append(limiter)
        except BaseException:
            for limiter in taken:
                limiter.release()
            raise

    def release(self, held: tuple[object, ...]) -> None:
        """Return the slots."""
        for limiter in self.limiters:
            if limiter not in held:
                limiter.release()


class ToolRuntimes:
    """Cache of the runtimes of the tools in one registry."""

    def __init__(self, registry: ToolRegistry, guards: CallGuards) -> None:
        self.registry = registry
        self.guards = guards
        self._runtimes: dict[str, ToolRuntime] = {}
        self._preparing: dict[str, tuple[Entry, asyncio.Task[None]]] = {}
        self._policy = guards.policy
        registry.subscribe(lambda _changes: self._runtimes.clear())

    def over(self, registry: ToolRegistry) -> ToolRuntimes:
        """Return the cache for another registry, with the same policy, breakers, budgets and limiters."""
        return ToolRuntimes(registry, self.guards)

    def find(self, name: str) -> ToolRuntime | None:
        """Return the runtime of a tool; None if the tool is unknown, its schema unusable or not yet compiled."""
        runtime = self._runtimes.get(name)
        if runtime is not None and self._policy is self.guards.policy:
            return runtime
        try:
            return self.get(name) if self.registry.find(name).is_prepared else None
        except (ToolNotFoundError, ToolSchemaError):
            return None

    async def prepare(self, name: str) -> ToolRuntime:
        """Return the runtime of a tool; large schemas are compiled in a thread, once for all waiting calls."""
        while not (entry := self.registry.find(name)).is_prepared:
            preparing = self._preparing.get(name)
            if preparing is None or preparing[0] is not entry:
                task = asyncio.get_running_loop().create_task(run_in_thread(entry.prepare))
                preparing = self._preparing[name] = (entry, task)
                task.add_done_callback(partial(self._forget, name))
            await asyncio.shield(preparing[1])
        return self.get(name)

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved here, because no call may be waiting for it
        if name in self._preparing and self._preparing[name][1] is task:
            del self._preparing[name]

    def get(self, name: str) -> ToolRuntime:
        """Return the runtime of a tool, or raise ToolNotFoundError or ToolSchemaError."""
        if self._policy is not self.guards.policy:
            self._policy = self.guards.policy
            self._runtimes.clear()
        runtime = self._runtimes.get(name)
        if runtime is None:
            entry = self.registry.find(name)
            hold = self._hold_of(entry)
            if hold is not None and hold.is_settled():
                entry = self.registry.find(name)
            runtime = self._make(entry)
            if self._hold_of(entry) is None:  # a held tool may be approved in another process before its next call
                self._runtimes[name] = runtime
        return runtime

    def approvals(self, name: str) -> Approvals:
        """Return who may answer questions about a tool; for an unknown tool the policy has only its name."""
        runtime = self.find(name)
        if runtime is not None:
            return runtime.verdict.approvals
        unknown = SafetyProfile(destructive=None)
        spec = ToolSpec(name=name, source=name.partition(".")[0], safety=unknown)
        return self.guards.policy.verdict(spec).approvals

    def _hold_of(self, entry: Entry) -> Hold | None:
        """Return what blocks the calls of a tool: a hold, or under a strict policy a change of its definition."""
        return entry.unaccepted if self.guards.policy.blocks_changes else entry.hold

    def _make(self, entry: Entry) -> ToolRuntime:
        spec, config, guards, hold = entry.spec, entry.config, self.guards, self._hold_of(entry)
        if isinstance(entry.tool, RedactingTool):
            guards.redactor.join(entry.tool.redactor)
        verdict = guards.policy.verdict(spec)
        # A tool without a source has only a deadline for the whole call.
        attempt_s = math.inf if config is None else spec.timeout_s or config.timeout_s
        return ToolRuntime(
            entry,
            access=guards.authorizer.of(entry.original.source),
            verdict=verdict if hold is None else verdict.with_question(hold.question()),
            verdicts=self._verdicts(entry),
            upstream=guards.upstream(entry),
            hosts=guards.hosts(spec),
            limiters=guards.limiters(entry),
            retry_policy=config.retry_policy if config else RetryPolicy.defaults(),
            attempt_s=attempt_s,
            deadline_s=spec.timeout_s or guards.timeout_s if config is None else config.deadline_for(attempt_s),
            redactor=guards.redactor,
        )

    def _verdicts(self, entry: Entry) -> Mapping[bool, Verdict] | None:
        """Return the verdicts for destructive and other calls; None if a preview cannot change the verdict."""
        if entry.previewer is None or self._hold_of(entry) is not None:
            return None
        spec, policy = entry.spec, self.guards.policy
        verdicts = {flag: policy.verdict(spec, destructive=flag) for flag in (True, False)}
        if spec.safety.destructive != entry.original.safety.destructive:  # an override decides for all calls
            verdicts = dict.fromkeys((True, False), policy.verdict(spec))
        actions = {verdict.action for verdict in (*verdicts.values(), policy.verdict(spec))}
        return verdicts if "ask" in actions or len(actions) > 1 else None


def context_secrets(request: RequestedCall) -> frozenset[str]:
    """Return the values under secret-like names in the `tool_context` of a call, which only its tool may see."""
    if request.context is None:
        return _NO_SECRETS
    given = request.context.tool_context
    for name, value in given.items():
        if value.__class__ not in _PLAIN or is_secret_name(name):
            return frozenset(secret_values(given, _NO_SECRETS))
    return _NO_SECRETS  # in most calls: a user, a session, a trace


def _may_ask_midway(entry: Entry) -> bool:
    """Return whether a tool may pause after it has started: one with a context, a workflow, or an MCP server's."""
    if isinstance(entry.tool, FunctionTool):
        return entry.tool.takes_context
    return entry.source is None or entry.spec.resumes or isinstance(entry.source, HoldingSource)
