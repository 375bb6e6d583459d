"""Asks the source: under the breaker, within the limits, after the intent is written, and again where that is safe."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolError, ToolTimeoutError
from toolpost.contracts.events import EventCode
from toolpost.contracts.questions import Question
from toolpost.runtime.echoes import Echoes
from toolpost.runtime.failures import failure_of
from toolpost.runtime.retry import backoff, may_repeat
from toolpost.runtime.teller import why

if TYPE_CHECKING:
    from toolpost.auth.credentials import Authorizer
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.storage import Journal
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.lane import Lane
    from toolpost.runtime.teller import Teller
    from toolpost.runtime.upstream import Upstream


_REFUSALS = frozenset({401, 403})  # what is not let in has no effect, so that it may go again
_MOST_RENEWALS = 2
_now = time.monotonic
_STARTED = EventCode.TOOL_CALL_STARTED  # looking a member up runs Python code


class Invoker:
    """Runs one authorized call to an output, a question or an error."""

    def __init__(self, journal: Journal, teller: Teller, authorizer: Authorizer) -> None:
        self._journal = journal
        self._teller = teller
        self._authorizer = authorizer
        self._echoes = Echoes()

    async def ask(self, attempt: Attempt, lane: Lane, call: AuthorizedCall) -> ToolOutput | Question:
        """Run the call; a credential that is no longer taken is renewed, and the person asked where that is in vain."""
        for _ in range(_MOST_RENEWALS):
            try:
                return await self.invoke(attempt, lane, call)
            except ToolError as refused:
                better = await self._authorizer.renewed(call, refused) if refused.status_code in _REFUSALS else None
                if better is None:
                    raise
            if isinstance(better, Question):
                return better
            call = call._replace(credential=better)
        return await self.invoke(attempt, lane, call)

    async def invoke(self, attempt: Attempt, lane: Lane, call: AuthorizedCall) -> ToolOutput | Question:
        """Try until it works or must not be repeated; a failure of foreign code is an answer, not a crash."""
        self._start(attempt, call)
        upstream = lane.upstream if lane.hosts is None else lane.hosts.of(call)
        tries = 0
        while True:
            tries += 1
            upstream.admit(lane.name)
            if lane.limiters and not lane.try_acquire(attempt.request.held):
                await lane.acquire(attempt.request.held)
            began = _now()
            try:
                if lane.journaled and not attempt.journaled:
                    await self._intend(attempt)
                attempt.invoked = True
                output = await lane.invoke(call)
            except BaseException as raised:  # noqa: BLE001 - foreign code is called here
                error = _own_failure(raised, attempt, lane, upstream)
                error.conceal(self._teller.redactor_for(attempt.request, lane).message)
            else:
                upstream.succeeded()
                return output if isinstance(output, Question) else await self._without_echoes(output, call)
            finally:
                if lane.limiters:
                    lane.release(attempt.request.held)
            await self._before_next(attempt, lane, upstream, error, tries, took_s=_now() - began)

    async def _without_echoes(self, output: ToolOutput, call: AuthorizedCall) -> ToolOutput:
        credential, secrets = call.credential, self._authorizer.entrusted(call.tool.spec.source)
        return await self._echoes.without(output, credential, secrets) if credential.headers or secrets else output

    def _start(self, attempt: Attempt, call: AuthorizedCall) -> None:
        """Tell that the tool begins, once however often the call is resumed."""
        if not attempt.started:
            attempt.started = True
            self._teller.tell(attempt.call, _STARTED, {"input": attempt.input_of(call)})

    async def _intend(self, attempt: Attempt) -> None:
        """Write the intent; from here on the call may have had its effect."""
        attempt.journaled = True  # first: a deadline may strike while the intent is on its way to the disk
        try:
            await self._journal.begin(attempt.journal_entry(""))
        except Exception:
            attempt.journaled = False  # there is no intent, so nothing ran and there is no result to keep
            raise

    async def _before_next(
        self, attempt: Attempt, lane: Lane, upstream: Upstream, error: ToolError, tries: int, *, took_s: float
    ) -> None:
        """Wait until the next try, holding nothing; raise the error when there must not be one."""
        upstream.breaker.failed(error)
        wait = backoff(tries, error, lane.retry_policy)
        if (
            tries >= lane.retry_policy.max_attempts
            or not may_repeat(error, lane.spec.replay, lane.retry_policy)
            or wait + _least_s(error, took_s) >= attempt.remaining_s
            or not upstream.budget.withdraw()
        ):
            raise error
        self._teller.tell(attempt.call, EventCode.CALL_RETRIED, {"tries": tries, "wait_s": wait, **why(error)})
        await asyncio.sleep(wait)


def _least_s(error: ToolError, took_s: float) -> float:
    """How long the next try needs at least: after one that timed out, a shorter one would only time out again."""
    return took_s if isinstance(error, ToolTimeoutError) else 0.0


def _own_failure(raised: BaseException, attempt: Attempt, lane: Lane, upstream: Upstream) -> ToolError:
    """What a tool raised, as an error; a wish of others to stop is passed on."""
    stopped = isinstance(raised, asyncio.CancelledError) and attempt.is_cancelled
    if stopped or isinstance(raised, (KeyboardInterrupt, GeneratorExit)):
        upstream.breaker.abandoned()
        raise raised
    return failure_of(raised, lane.name)
