"""Everything the router needs to call one tool, computed at its first call and again when the tool changes."""

from __future__ import annotations

import asyncio
import copy
import json
import math
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakSet

from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_in_thread
from toolpost.contracts.calls import AuthorizedCall, RequestedCall, ToolOutput, ValidatedCall
from toolpost.contracts.errors import ToolNotFoundError, ToolSchemaError, ToolValidationError
from toolpost.contracts.events import CallRef
from toolpost.contracts.retries import RetryPolicy
from toolpost.contracts.sources import HoldingSource
from toolpost.contracts.spec import SafetyProfile, ToolSpec
from toolpost.policy.approvals import Approvals, CalledTool
from toolpost.policy.redaction import RedactingTool, Redactor, secret_values
from toolpost.runtime.resilience import CircuitBreaker, RetryBudget
from toolpost.schema.json_values import refuse_constant
from toolpost.schema.secrets import SecretPaths, is_secret_name
from toolpost.web.untrusted import TRUSTED, UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.auth.credentials import Authorizer, SourceAccess
    from toolpost.catalog.entry import Entry
    from toolpost.catalog.lock import Hold
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.sources import ToolSource
    from toolpost.policy.rules import Policy, Verdict
    from toolpost.runtime.event_emitter import EventEmitter

MOST_HOSTS = 4096
_LONGEST_HOST = 255  # RFC 1035 section 2.3.4: no name on the network is longer
_PORTS = {"http": 80, "https": 443}
_TOO_DEEP = "it is nested too deeply"
_NO_SECRETS: frozenset[Any] = frozenset()
_PLAIN = frozenset({str, int, float, bool, type(None)})


def context_secrets(request: RequestedCall) -> frozenset[str]:
    """Return what stands under secret-like names in the `tool_context` of a call, which only its tool may see."""
    if request.context is None:
        return _NO_SECRETS
    given = request.context.tool_context
    for name, value in given.items():
        if value.__class__ not in _PLAIN or is_secret_name(name):
            return frozenset(secret_values(given, _NO_SECRETS))
    return _NO_SECRETS  # most often: a user, a session, a trace


class ToolRuntime:
    """Validator, verdict, credentials, limiters, breaker, deadline and redaction of one tool.

    A call keeps the one that it began with, also when its tool or its source is replaced meanwhile.
    """

    __slots__ = (
        "_called",
        "_is_valid",
        "_redactor",
        "access",
        "asks_midway",
        "cache_ttl_s",
        "counts",
        "deadline_s",
        "entry",
        "hosts",
        "journaled",
        "limiters",
        "name",
        "origin",
        "output",
        "output_check",
        "output_fits",
        "own_try_s",
        "previewer",
        "redact",
        "retry_policy",
        "secret_paths",
        "spec",
        "start",
        "tool",
        "try_s",
        "upstream",
        "verdict",
        "verdicts",
    )

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
        try_s: float,
        deadline_s: float,
        redactor: Redactor,
    ) -> None:
        self.entry = entry
        self.counts = entry.counts
        self.spec = entry.spec
        self.name = entry.spec.name
        self.tool = tool = entry.tool
        self.start: Callable[[AuthorizedCall], Awaitable[Any]] = entry.invoke
        self.output: Callable[[Any], ToolOutput] | None = None  # of what `start` returns; None where that is one
        if entry.source is None and isinstance(tool, FunctionTool) and type(tool).invoke is FunctionTool.invoke:
            self.start, self.output = tool.start, tool.output  # without a coroutine around the function's own
        self.access = access
        self.verdict = verdict
        self.verdicts = verdicts  # by whether a call is destructive, where a preview says so
        self.previewer = None if verdicts is None else entry.previewer
        self.upstream = upstream
        self.hosts = hosts
        self.limiters = limiters
        self.retry_policy = retry_policy
        config = entry.config
        self.own_try_s = None if config is None or try_s == config.timeout_s else try_s
        self.try_s = try_s  # bounds one try; infinite where the deadline of the call alone does
        self.deadline_s = deadline_s
        self._redactor = redactor
        arguments, results = entry.secret_paths
        self.secret_paths: SecretPaths = arguments
        self.redact = redactor.for_tool(arguments=arguments, results=results)
        self._called: CalledTool | None = None
        self.journaled = entry.spec.has_effects
        self.asks_midway = self.journaled and _may_ask_midway(entry)
        self.cache_ttl_s = None if self.journaled else entry.spec.cache_ttl_s
        plain = self.spec.validate_inputs != "off" and entry.overlay is None
        self._is_valid = entry.input_validator.is_valid if plain else None
        # Metadata of results from outside; those of the operator's own functions have none, unless they fetch content.
        origin = entry.content_origin
        trust = TRUSTED if entry.is_trusted else UNTRUSTED
        self.origin = {"origin": origin, "trust": trust} if origin else None
        self.output_check = entry.output_check
        output = None if self.output_check == "off" else entry.output_validator
        self.output_fits = None if output is None else output.is_valid

    @property
    def called(self) -> CalledTool:
        """The facts of the tool that are kept with its calls; computed on first use."""
        if self._called is None:
            self._called = CalledTool.of(self.spec, self.secret_paths)
        return self._called

    def call_ref(self, request: RequestedCall) -> CallRef:
        """Return the reference to a call that its events carry."""
        call_id, (tenant, user) = request.call_id, request.principal
        redact = self.redact
        if self.secret_paths or request.context is not None:
            redactor = self.redactor_for(request)
            if redactor is not self._redactor:  # a call's own secrets must not come back in an error or a result
                arguments, results = self.entry.secret_paths
                redact = redactor.for_tool(arguments=arguments, results=results)
        return CallRef(request.run_id, call_id, self.name, tenant, user, request.correlation_id or call_id, redact)

    def redactor_for(self, request: RequestedCall) -> Redactor:
        """Return a redactor that also masks the secrets in a call's own arguments and context."""
        own = context_secrets(request)
        if self.secret_paths:
            own = own.union(secret_values(request.arguments, self.secret_paths))
        return self._redactor.with_secrets(own) if own else self._redactor

    def validate(self, request: RequestedCall) -> ValidatedCall:
        """Check the arguments against the schema, and fill in those that an override fixes."""
        arguments, is_valid = request.arguments, self._is_valid
        try:
            fits = is_valid is not None and is_valid(arguments)
        except ValueError:  # a value in them is not JSON
            fits = False
        return ValidatedCall(request, self.tool, arguments if fits else self._fitted(arguments))

    def _fitted(self, arguments: Any) -> dict[str, Any]:
        if isinstance(arguments, UnreadableArguments):
            raise arguments.refusal(self.name)
        return self.entry.fit(arguments)

    def output_issues(self, content: Any) -> list[str]:
        """Return where an output breaks its schema."""
        validator = self.entry.output_validator
        return [] if validator is None else validator.issues(content)

    def try_acquire(self, held: tuple[object, ...]) -> bool:
        """Take a slot of the tool and of its source if both are free; slots of an outer call are shared."""
        for count, limiter in enumerate(self.limiters):
            if limiter not in held and not limiter.try_acquire():
                for taken in self.limiters[:count]:
                    if taken not in held:
                        taken.release()
                return False
        return True

    async def acquire(self, held: tuple[object, ...]) -> None:
        """Wait for a slot of the tool and of its source; slots that an outer call holds are shared."""
        taken: list[Limiter] = []
        try:
            for limiter in self.limiters:
                if limiter not in held:
                    if not limiter.try_acquire():
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


class Limiter:
    """Semaphore whose fast path is one comparison; waiters are served first in, first out."""

    __slots__ = ("_free", "_waiting", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Take a slot if one is free and nobody waits."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    async def acquire(self) -> None:
        """Take a slot, waiting for one if need be."""
        if self.try_acquire():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # the slot was given just before the cancellation arrived
            raise

    def release(self) -> None:
        """Return a slot, to the first waiter if there is one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Upstream:
    """Circuit breaker and retry budget of one server."""

    __slots__ = ("breaker", "budget")

    def __init__(self, breaker: CircuitBreaker, budget: RetryBudget) -> None:
        self.breaker = breaker
        self.budget = budget

    def succeeded(self) -> None:
        """Record a try that ended well; not needed where none failed and nothing of the budget is spent."""
        if self.breaker.failures:
            self.breaker.succeeded()
        if self.budget.spent:
            self.budget.deposit()


class HostUpstreams:
    """One upstream per host and tenant, for a tool whose argument is a URL.

    At most `MOST_HOSTS` are kept, the least recently used is dropped first; its breaker then starts closed again.
    """

    def __init__(self, argument: str, make: Callable[[str, str], Upstream]) -> None:
        self._argument = argument
        self._make = make
        self._upstreams: OrderedDict[tuple[str, str], Upstream] = OrderedDict()

    def __len__(self) -> int:
        return len(self._upstreams)

    def of(self, call: AuthorizedCall) -> Upstream:
        """Return the upstream of the host that a call goes to, for the tenant that it is made for."""
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
    """Return host and port of a URL; empty where there are none, since such a call is refused anyway."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        host, port = (None, None) if parts is None else (parts.hostname, parts.port or _PORTS.get(parts.scheme.lower()))
    except ValueError:
        return ""
    return f"{host.rstrip('.')}:{port}" if host and len(host) <= _LONGEST_HOST else ""


class ToolRuntimes:
    """Cache of tool runtimes. Tools of one source share its breaker, retry budget and limiter.

    A tool that takes a URL has a breaker and a budget per host and tenant: one dead host must not block the others.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        policy: Policy,
        authorizer: Authorizer,
        *,
        emitter: EventEmitter,
        redactor: Redactor,
        timeout_s: float,
        retry_ratio: float,
    ) -> None:
        self._registry = registry
        self._policy = policy
        self._authorizer = authorizer
        self._emitter = emitter
        self._redactor = redactor
        self._timeout_s = timeout_s
        self._retry_ratio = retry_ratio
        self._runtimes: dict[str, ToolRuntime] = {}
        self._upstreams: dict[str, tuple[ToolSource | None, Upstream]] = {}
        self._hosts: dict[str, HostUpstreams] = {}
        self._limiters: dict[str, Limiter] = {}
        self._preparing: dict[str, tuple[Entry, asyncio.Task[None]]] = {}
        self._copies = WeakSet([self])
        registry.subscribe(lambda _changes: self._runtimes.clear())

    def set_policy(self, policy: Policy) -> None:
        """Judge calls that begin from now on by another policy, also those over other registries."""
        for each in self._copies:
            each._policy = policy  # noqa: SLF001 - a copy of itself
            each._runtimes.clear()  # noqa: SLF001

    def over(self, registry: ToolRegistry) -> ToolRuntimes:
        """Return the cache for another registry; breakers, budgets and limiters of sources are shared."""
        other = copy.copy(self)
        other._registry, other._runtimes, other._preparing = registry, {}, {}  # noqa: SLF001 - a copy of itself
        self._copies.add(other)
        registry.subscribe(lambda _changes: other._runtimes.clear())  # noqa: SLF001
        return other

    def find(self, name: str) -> ToolRuntime | None:
        """Return the runtime of a tool; None when the tool is unknown, its schema unusable or not yet compiled."""
        runtime = self._runtimes.get(name)
        if runtime is not None:
            return runtime
        try:
            return self.get(name) if self._registry.find(name).is_prepared else None
        except (ToolNotFoundError, ToolSchemaError):
            return None

    async def prepare(self, name: str) -> ToolRuntime:
        """Return the runtime of a tool; large schemas are compiled in a thread, once for all waiting calls."""
        while not (entry := self._registry.find(name)).is_prepared:
            preparing = self._preparing.get(name)
            if preparing is None or preparing[0] is not entry:
                task = asyncio.get_running_loop().create_task(run_in_thread(entry.prepare))
                preparing = self._preparing[name] = (entry, task)
                task.add_done_callback(partial(self._forget, name))
            await asyncio.shield(preparing[1])
        return self.get(name)

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved here, because perhaps no call waits any more
        if name in self._preparing and self._preparing[name][1] is task:
            del self._preparing[name]

    def get(self, name: str) -> ToolRuntime:
        """Return the runtime of a tool; ToolNotFoundError or ToolSchemaError when there is none."""
        runtime = self._runtimes.get(name)
        if runtime is None:
            entry = self._registry.find(name)
            hold = self._hold_of(entry)
            if hold is not None and hold.is_settled():
                entry = self._registry.find(name)
            runtime = self._make(entry)
            if self._hold_of(entry) is None:  # a held tool may be approved in another process before its next call
                self._runtimes[name] = runtime
        return runtime

    def approvals(self, name: str) -> Approvals:
        """Return who may answer questions about a tool; an unknown tool is judged by its name."""
        runtime = self.find(name)
        if runtime is not None:
            return runtime.verdict.approvals
        unknown = SafetyProfile(destructive=None)
        return self._policy.verdict(ToolSpec(name=name, source=name.partition(".")[0], safety=unknown)).approvals

    @property
    def blocks_changes(self) -> bool:
        """Whether the policy blocks the calls of a tool whose definition has changed."""
        return self._policy.blocks_changes

    def denies(self, name: str) -> bool:
        """Return whether the policy refuses every call of a tool of the catalog."""
        return self._policy.verdict(self._registry.find(name).spec).action == "deny"

    def _verdict(self, entry: Entry) -> Verdict:
        verdict, hold = self._policy.verdict(entry.spec), self._hold_of(entry)
        return verdict if hold is None else verdict.with_question(hold.question())

    def _hold_of(self, entry: Entry) -> Hold | None:
        """Return what blocks the calls of a tool: a hold, or under a strict policy a change of its definition."""
        return entry.unaccepted if self._policy.blocks_changes else entry.hold

    def _make(self, entry: Entry) -> ToolRuntime:
        spec, config = entry.spec, entry.config
        if isinstance(entry.tool, RedactingTool):
            self._redactor.join(entry.tool.redactor)
        try_s, deadline_s = self._bounds(entry)
        return ToolRuntime(
            entry,
            access=self._authorizer.of(entry.original.source),
            verdict=self._verdict(entry),
            verdicts=self._verdicts(entry),
            upstream=self._upstream(entry),
            hosts=self._hosts_of(spec),
            limiters=self._limits(entry),
            retry_policy=config.retry_policy if config else RetryPolicy.defaults(),
            try_s=try_s,
            deadline_s=deadline_s,
            redactor=self._redactor,
        )

    def _bounds(self, entry: Entry) -> tuple[float, float]:
        """Return the seconds of one try and of a whole call; a tool without a source has the latter alone."""
        spec, config = entry.spec, entry.config
        if config is None:
            return math.inf, spec.timeout_s or self._timeout_s
        try_s = spec.timeout_s or config.timeout_s
        return try_s, config.deadline_for(try_s)

    def _verdicts(self, entry: Entry) -> Mapping[bool, Verdict] | None:
        """Return the verdicts for destructive and other calls; None where a preview cannot change the verdict."""
        if entry.previewer is None or self._hold_of(entry) is not None:
            return None
        spec = entry.spec
        verdicts = {flag: self._policy.verdict(spec, destructive=flag) for flag in (True, False)}
        if spec.safety.destructive != entry.original.safety.destructive:  # an override decides for all calls
            verdicts = dict.fromkeys((True, False), self._policy.verdict(spec))
        asks = {verdict.action for verdict in (*verdicts.values(), self._policy.verdict(spec))}
        return verdicts if "ask" in asks or len(asks) > 1 else None

    def _limits(self, entry: Entry) -> tuple[Limiter, ...]:
        spec, config = entry.spec, entry.config
        limits: list[Limiter] = []
        if config is not None:
            limits.append(self._limiter(f"source {config.name}", config.max_concurrency))
        if spec.max_concurrency is not None:
            limits.append(self._limiter(f"tool {spec.name}", spec.max_concurrency))
        return tuple(limits)

    def _limiter(self, name: str, limit: int) -> Limiter:
        limiter = self._limiters.get(name)
        if limiter is None or limiter.limit != limit:  # a source may be replaced by one with other limits
            limiter = self._limiters[name] = Limiter(limit)
        return limiter

    def _upstream(self, entry: Entry) -> Upstream:
        """Return the upstream of a tool's source; a source that replaced another begins with a closed breaker."""
        group = entry.spec.source or entry.spec.name
        source, upstream = self._upstreams.get(group, (None, None))
        if upstream is None or (entry.source is not None and source is not entry.source):
            breaker = CircuitBreaker(group, on_state=lambda state: self._emitter.emit_breaker(group, state))
            upstream = Upstream(breaker, RetryBudget(ratio=self._retry_ratio))
            self._upstreams[group] = (entry.source, upstream)
        return upstream

    def _hosts_of(self, spec: ToolSpec) -> HostUpstreams | None:
        """Return the upstreams of a tool that takes a URL; they outlive the runtime."""
        argument, name = spec.host_argument, spec.name
        if argument is None:
            return None

        def make(host: str, tenant: str) -> Upstream:
            label = f"{name} to {host}"
            breaker = CircuitBreaker(
                label, on_state=lambda state: self._emitter.emit_breaker(label, state, tenant=tenant)
            )
            return Upstream(breaker, RetryBudget(ratio=self._retry_ratio))

        return self._hosts.get(name) or self._hosts.setdefault(name, HostUpstreams(argument, make))


class UnreadableArguments:
    """Placeholder for arguments whose text is not JSON; without the text, because secrets in it cannot be found."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def refusal(self, tool_name: str) -> ToolValidationError:
        """Return the error by which a model can correct its call."""
        message = f"$: the arguments are not JSON: {self.reason}; send one JSON object, such as {{}}"
        return ToolValidationError(message, tool_name=tool_name)


def read_arguments(text: str) -> Any:
    """Parse arguments written as JSON text; blank text counts as no arguments."""
    if not text.strip():
        return {}
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        return UnreadableArguments(f"{error.msg} at line {error.lineno} column {error.colno}")
    except ValueError as error:  # NaN, infinities, and numbers with too many digits
        return UnreadableArguments(str(error))
    except RecursionError:
        return UnreadableArguments(_TOO_DEEP)


def _may_ask_midway(entry: Entry) -> bool:
    """Return whether a tool may ask a person after it has begun: one with a context, a workflow, or an MCP server's."""
    if isinstance(entry.tool, FunctionTool):
        return entry.tool.takes_context
    return entry.source is None or entry.spec.resumes or isinstance(entry.source, HoldingSource)
