"""Everything the router needs to know about one tool, worked out once and used for each of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import ValidatedCall
from toolpost.contracts.makers import maker
from toolpost.policy.approvals import CalledTool
from toolpost.runtime.json_arguments import UnreadableArguments
from toolpost.web.untrusted import UNTRUSTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.catalog.entry import Entry
    from toolpost.contracts.calls import RequestedCall
    from toolpost.contracts.config import RetryPolicy
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.limits import Limiter
    from toolpost.runtime.upstream import HostUpstreams, Upstream
    from toolpost.schema.secrets import SecretPaths


_new_validated = maker(ValidatedCall)


class Lane:
    """One tool's way through the pipeline: validator, verdict, limits, breaker and deadline."""

    __slots__ = (
        "_called",
        "_fits",
        "cache_ttl_s",
        "entry",
        "hosts",
        "invoke",
        "journaled",
        "limiters",
        "name",
        "origin",
        "output_check",
        "output_fits",
        "previewer",
        "redact",
        "retry_policy",
        "secret_paths",
        "spec",
        "timeout_s",
        "tool",
        "upstream",
        "verdict",
        "verdicts",
    )

    def __init__(
        self,
        entry: Entry,
        *,
        verdict: Verdict,
        verdicts: Mapping[bool, Verdict] | None,
        upstream: Upstream,
        hosts: HostUpstreams | None,
        limiters: tuple[Limiter, ...],
        retry_policy: RetryPolicy,
        timeout_s: float,
        redact: Callable[[Mapping[str, Any]], dict[str, Any]],
        secret_paths: SecretPaths,
    ) -> None:
        self.entry = entry
        self.spec = entry.spec
        self.name = entry.spec.name
        self.tool = entry.tool
        self.invoke = entry.invoke
        self.verdict = verdict
        self.verdicts = verdicts  # of destructive calls and of others, where a call can be either
        self.previewer = None if verdicts is None else entry.previewer
        self.upstream = upstream
        self.hosts = hosts
        self.limiters = limiters
        self.retry_policy = retry_policy
        self.timeout_s = timeout_s
        self.redact = redact
        self.secret_paths = secret_paths
        self._called: CalledTool | None = None
        self.journaled = entry.spec.has_effects
        self.cache_ttl_s = None if self.journaled else entry.spec.cache_ttl_s
        plain = self.spec.validate_inputs != "off" and entry.overlay is None
        self._fits = entry.input_validator.is_valid if plain else None
        self.origin = _origin(entry)
        self.output_check = entry.output_check
        output = None if self.output_check == "off" else entry.output_validator
        self.output_fits = None if output is None else output.is_valid

    @property
    def called(self) -> CalledTool:
        """What is kept of the tool with its calls; worked out with the first one that is kept."""
        if self._called is None:
            self._called = CalledTool.of(self.spec, self.secret_paths)
        return self._called

    def validate(self, request: RequestedCall) -> ValidatedCall:
        """Check the arguments against the schema, and fill in what an operator fixed."""
        arguments = request.arguments
        try:
            fits = self._fits is not None and self._fits(arguments)
        except ValueError:  # something in them is not JSON at all
            fits = False
        return _new_validated((request, self.tool, arguments if fits else self._fitted(arguments)))

    def _fitted(self, arguments: Any) -> dict[str, Any]:
        if isinstance(arguments, UnreadableArguments):
            raise arguments.refusal(self.name)
        return self.entry.fit(arguments)

    def output_issues(self, content: Any) -> list[str]:
        """Where an output breaks its schema."""
        validator = self.entry.output_validator
        return [] if validator is None else validator.issues(content)

    def try_acquire(self, held: tuple[object, ...]) -> bool:
        """Take a place at the tool and at its source if both have one; what an outer call holds serves this one."""
        for count, limiter in enumerate(self.limiters):
            if limiter not in held and not limiter.try_acquire():
                for taken in self.limiters[:count]:
                    if taken not in held:
                        taken.release()
                return False
        return True

    async def acquire(self, held: tuple[object, ...]) -> None:
        """Wait for a place at the tool and at its source; what an outer call holds serves its inner calls, too."""
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
        """Give the places back."""
        for limiter in self.limiters:
            if limiter not in held:
                limiter.release()


def _origin(entry: Entry) -> dict[str, str] | None:
    """What is said of results that come from outside; functions of the operator's own are not."""
    return {"origin": entry.origin, "trust": UNTRUSTED} if entry.origin else None
