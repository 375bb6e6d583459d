"""Asks the source: under the breaker, within the limits, after the intent is written, and again where that is safe."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolError
from toolpost.contracts.events import EventCode
from toolpost.runtime.failures import failure_of
from toolpost.runtime.retry import backoff, may_repeat
from toolpost.runtime.teller import why

if TYPE_CHECKING:
    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.questions import Question
    from toolpost.contracts.storage import Journal
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.inflight import Flight
    from toolpost.runtime.lane import Lane
    from toolpost.runtime.teller import Teller


class Invoker:
    """Runs one authorized call to an output, a question or an error."""

    def __init__(self, journal: Journal, teller: Teller) -> None:
        self._journal = journal
        self._teller = teller

    async def invoke(self, attempt: Attempt, lane: Lane, flight: Flight, call: AuthorizedCall) -> ToolOutput | Question:
        """Try until it works or must not be repeated; nothing is held while waiting to try again."""
        if not attempt.started:
            attempt.started = True
            self._teller.tell(attempt.call, EventCode.TOOL_CALL_STARTED, {"input": attempt.input_of(call)})
        tries = 0
        while True:
            tries += 1
            output = await self._try(attempt, lane, call)
            if not isinstance(output, ToolError):
                return output
            wait = backoff(tries, output, lane.retry_policy)
            if (
                tries >= lane.retry_policy.max_attempts
                or not may_repeat(output, lane.spec.replay, lane.retry_policy)
                or wait >= flight.remaining_s
                or not lane.budget.withdraw()
            ):
                raise output
            self._teller.tell(attempt.call, EventCode.CALL_RETRIED, {"tries": tries, "wait_s": wait, **why(output)})
            await asyncio.sleep(wait)

    async def _try(self, attempt: Attempt, lane: Lane, call: AuthorizedCall) -> ToolOutput | Question | ToolError:
        """One try; a failure of foreign code is an answer, not an exception."""
        lane.breaker.admit(lane.spec.name)
        if lane.limiters:
            await lane.acquire()
        try:
            if lane.journaled and not attempt.journaled:
                await self._journal.begin(attempt.journal_entry(""))
                attempt.journaled = True
            output = await lane.invoke(call)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - foreign code is called here
            error = failure_of(raised, lane.spec.name)
            lane.failed(error)
            return error
        except BaseException:
            lane.breaker.abandoned()
            raise
        finally:
            if lane.limiters:
                lane.release()
        lane.succeeded()
        return output
