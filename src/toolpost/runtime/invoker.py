"""Call a tool's source: under its breaker and limiters, after the intent is journaled, with retries where safe."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolConnectionError, ToolError, ToolExecutionError, ToolTimeoutError
from toolpost.contracts.events import EventCode
from toolpost.contracts.questions import Question
from toolpost.runtime.event_emitter import error_facts
from toolpost.runtime.resilience import backoff, may_repeat
from toolpost.runtime.results import CredentialScrubber

if TYPE_CHECKING:
    from toolpost.auth.credentials import Authorizer
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.storage import Journal
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.resilience import Upstream
    from toolpost.runtime.tool_runtime import ToolRuntime

_REFUSALS = frozenset({401, 403})  # a refused request has no effect, so that it may be sent again
_MOST_RENEWALS = 2
_now = time.monotonic
_STARTED = EventCode.TOOL_CALL_STARTED  # looking up an enum member runs Python code
# Network errors of the operating system without an exception class of their own.
_NETWORK_ERRNOS = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
)


class Invoker:
    """Run authorized calls to an output, a question or an error."""

    def __init__(self, journal: Journal, emitter: EventEmitter, authorizer: Authorizer) -> None:
        self._journal = journal
        self._emitter = emitter
        self._authorizer = authorizer
        self._scrubber = CredentialScrubber()

    async def invoke(self, attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call; renew a credential that the server refuses, and ask the user where that fails."""
        for _ in range(_MOST_RENEWALS):
            try:
                return await self._run(attempt, runtime, call)
            except ToolError as refused:
                better = await self._authorizer.renewed(call, refused) if refused.status_code in _REFUSALS else None
                if better is None:
                    raise
            if isinstance(better, Question):
                return better
            call = call._replace(credential=better)
        return await self._run(attempt, runtime, call)

    async def _run(self, attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall) -> ToolOutput | Question:
        """Try until the call succeeds or must not be repeated; whatever the tool raises becomes a ToolError."""
        if not attempt.started:  # emitted once, however often the call is resumed
            attempt.started = True
            self._emitter.emit(attempt.call, _STARTED, {"input": attempt.input_of(call)})
        upstream = runtime.upstream if runtime.hosts is None else runtime.hosts.of(call)
        tries = 0
        while True:
            tries += 1
            upstream.admit(runtime.name)
            if runtime.limiters and not runtime.try_acquire(attempt.request.held):
                await runtime.acquire(attempt.request.held)
            began = _now()
            try:
                if runtime.journaled and not attempt.journaled:
                    await self._journal_intent(attempt)
                attempt.invoked = True
                output = await runtime.invoke(call)
            except BaseException as raised:  # noqa: BLE001 - foreign code is called here
                error = _tool_failure(raised, attempt, runtime, upstream)
                error.conceal(runtime.redactor_for(attempt.request).message)
            else:
                upstream.succeeded()
                if isinstance(output, Question):
                    return output
                credential, secrets = call.credential, self._authorizer.secrets_for(call.tool.spec.source)
                if credential.headers or secrets:
                    output, attempt.result_json = await self._scrubber.scrub(output, credential, secrets)
                return output
            finally:
                if runtime.limiters:
                    runtime.release(attempt.request.held)
            await self._wait_for_retry(attempt, runtime, upstream, error, tries, took_s=_now() - began)

    async def _journal_intent(self, attempt: Attempt) -> None:
        """Write the intent to the journal; from here on the call may have had its effect."""
        attempt.journaled = True  # first: the deadline may pass while the intent is being written
        try:
            await self._journal.begin(attempt.journal_entry(""))
            attempt.intent_written = True
        except Exception:
            attempt.journaled = False  # without an intent nothing ran, and there is no result to record
            raise

    async def _wait_for_retry(
        self, attempt: Attempt, runtime: ToolRuntime, upstream: Upstream, error: ToolError, tries: int, *, took_s: float
    ) -> None:
        """Wait until the next try without holding a slot; raise the error when there must not be one."""
        upstream.breaker.failed(error)
        wait = backoff(tries, error, runtime.retry_policy)
        if (
            tries >= runtime.retry_policy.max_attempts
            or not may_repeat(error, runtime.spec.replay, runtime.retry_policy)
            # After a timeout, a try with less time than the last would only time out again.
            or wait + (took_s if isinstance(error, ToolTimeoutError) else 0.0) >= attempt.remaining_s
            or not upstream.budget.withdraw()
        ):
            raise error
        self._emitter.emit(attempt.call, EventCode.CALL_RETRIED, {"tries": tries, "wait_s": wait, **error_facts(error)})
        await asyncio.sleep(wait)


def _tool_failure(raised: BaseException, attempt: Attempt, runtime: ToolRuntime, upstream: Upstream) -> ToolError:
    """Return the error for what a tool raised; a cancellation from outside is raised again."""
    stopped = isinstance(raised, asyncio.CancelledError) and attempt.is_cancelled
    if stopped or isinstance(raised, (KeyboardInterrupt, GeneratorExit)):
        upstream.breaker.abandoned()
        raise raised
    return failure_of(raised, runtime.name)


def failure_of(raised: BaseException, tool_name: str) -> ToolError:
    """Return the ToolError for an exception; the message names its type, because its own message often says little."""
    if isinstance(raised, ToolError):
        raised.tool_name = raised.tool_name or tool_name
        return raised
    message = f"{type(raised).__name__}: {str(raised) or 'no message'}"
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(message, tool_name=tool_name, cause=raised)
    if isinstance(raised, ConnectionError) or (isinstance(raised, OSError) and raised.errno in _NETWORK_ERRNOS):
        return ToolConnectionError(message, tool_name=tool_name, cause=raised)
    return ToolExecutionError(message, tool_name=tool_name, cause=raised)
