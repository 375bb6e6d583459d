"""State of a running call from request or resume to its end or pause, and the deadlines of all running calls."""

from __future__ import annotations

import asyncio
import json
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.events import CallRef, JsonText
from toolpost.contracts.questions import CallPreview
from toolpost.contracts.storage import JournalEntry
from toolpost.runtime.persistence import dump_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.calls import RequestedCall
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.sources import ToolSource
    from toolpost.policy.rules import Verdict
    from toolpost.runtime.tool_runtime import ToolRuntime

Stop = Literal["timeout", "cancelled", "stopping"]
PARKED = "restart"  # the key of the answer of a call that was suspended for restart
_OUTER_S = 0.5
NEVER = float("inf")
_SHORT_S = 0.01  # a shorter wait for a slot is not mentioned: taking a free one is a request to the store
_CANCEL_AGAIN_S = 1.0  # a tool that swallowed the cancellation is cancelled again after this long
_OTHER_LOOP = (
    "this Toolbox was opened in another event loop, and its connections live there: open one in this loop, or hand "
    "the call over with asyncio.run_coroutine_threadsafe(box.call(...), loop)"
)
_CLOSED = "this Toolbox is closed: its `async with` is over; make the call within it, or open a new one"


class Try(NamedTuple):
    """One attempt to run a call that was tried more than once; `began` is of the monotonic clock."""

    began: float
    took_s: float
    error_code: str | None

    def to_dict(self, clock: Clock) -> dict[str, Any]:
        """Return the attempt for the event that ends the call."""
        began_at = clock.wall() - (clock.monotonic() - self.began)
        return {"began": began_at, "took_ms": self.took_s * 1000, "error_code": self.error_code}


class Attempt(Struct, eq=False):
    """State of one call while it runs."""

    request: RequestedCall
    runtime: ToolRuntime | None
    call: CallRef
    snapshot: Any
    began: float  # monotonic clock, like the deadline
    deadline: float
    timeout_s: float
    task: asyncio.Task[Any] | None
    cancelling: int  # cancellations of the task before this call began
    started: bool
    clock: Clock
    cancels: int = 0
    stopped: Stop | None = None
    expires: float = NEVER  # the end of the current attempt, if it has a limit
    expiries: int = 0  # cancellations of the task because the current attempt expired
    announced: bool = False
    invoked: bool = False
    has_inner: bool = False  # nested calls with effects, which another attempt would repeat
    joined: bool = False  # the same call waits already, and this one waits for it
    renewals: int = 0  # of a rejected credential
    journaled: bool = False
    intent_written: bool = False  # unlike `journaled`, only after the store has confirmed it
    artifact_ids: tuple[str, ...] = ()
    summary: Any = None
    preview: CallPreview | None = None
    verdict: Verdict | None = None  # None for that of the tool; a preview may choose another
    result_json: str | None = None  # of the content, if the search for credentials has encoded it
    auth_s: float = 0.0  # until there was a credential
    queue_s: float = 0.0  # until there was a free slot, of all attempts
    tries: tuple[Try, ...] = ()  # from the first that failed
    owner: str = ""  # the ID that this process had in the store when the call began

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the attempt began."""
        return (self.clock.monotonic() - self.began) * 1000

    @property
    def began_at(self) -> float:
        """Wall-clock time at which the attempt began."""
        return self.clock.wall() - self.elapsed_ms / 1000

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - self.clock.monotonic()

    def finish_try(self, began: float, error: ToolError | None) -> None:
        """End an attempt, and record it if it is not the first; the first is recorded if it fails."""
        self.end_try()
        if self.tries:
            took_s = self.clock.monotonic() - began
            self.tries = (*self.tries, Try(began, took_s, None if error is None else error.error_code))

    def stages(self, error: ToolError | None) -> dict[str, Any]:
        """Return the waits for a slot and the attempts, for the event that ends the call, possibly with an error."""
        stages: dict[str, Any] = {"queue_ms": self.queue_s * 1000} if self.queue_s >= _SHORT_S else {}
        if len(self.tries) > 1:
            *failed, last = self.tries
            code = last.error_code or (None if error is None else error.error_code)
            stages["tries"] = [one.to_dict(self.clock) for one in (*failed, last._replace(error_code=code))]
        return stages

    def stop(self, reason: Stop) -> None:
        """Cancel the call's task and record the reason for its error."""
        self.stopped = self.stopped or reason
        if self.task is not None:
            self.cancels += 1
            self.task.cancel()

    def expire(self) -> None:
        """Cancel the current attempt; the call continues."""
        if self.task is not None:
            self.expiries += 1
            self.task.cancel()

    def end_try(self) -> bool:
        """Undo the cancellations of an expired attempt; return whether it had expired."""
        expiries, self.expires, self.expiries = self.expiries, NEVER, 0
        if self.task is None or not expiries:
            return False
        for _ in range(expiries):
            self.task.uncancel()
        return True

    @property
    def may_be_parked(self) -> bool:
        """Whether the call can resume in another process: it stops here, and may run from its start again."""
        runtime = self.runtime
        is_stopping = self.stopped == "stopping" and self.started and runtime is not None
        return is_stopping and (not self.invoked or (runtime is not None and runtime.spec.replay != "unsafe"))

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was cancelled since the call began; a tool can also raise CancelledError."""
        return self.task is not None and self.task.cancelling() > self.cancelling

    def uncancel(self) -> bool:
        """Undo the runtime's cancellations of the caller's task; return whether the caller has cancelled it, too."""
        if self.task is None:
            return False
        for _ in range(self.cancels):
            self.task.uncancel()
        self.began = self.clock.monotonic()
        self.cancels = 0
        return self.task.cancelling() > self.cancelling

    @property
    def original_arguments(self) -> dict[str, Any]:
        """The requested arguments, even if the tool has changed them."""
        arguments: dict[str, Any] = self.request.arguments
        if isinstance(self.snapshot, JsonText):
            arguments = json.loads(self.snapshot)
        return arguments

    def journal_data(self) -> dict[str, Any]:
        """Return the call for the journal: enough to run it again or to create a question about it."""
        request = self.request
        return {
            "arguments": self.original_arguments,
            "answers": {key: _answer_dict(answer) for key, answer in request.answers.items()},
            "correlation_id": request.correlation_id,
            "task_id": request.task_id,
            "timeout_s": request.timeout_s,
            "idempotency_key": request.idempotency_key,
            "context": dump_context(request.context),
            "replay": self.runtime.spec.replay if self.runtime else "unsafe",
            "resumes": self.runtime is not None and self.runtime.spec.resumes,
            "tool": self.runtime.called if self.runtime else (),
        }

    def journal_entry(self, step: str) -> JournalEntry:
        """Build the journal entry of this call, or of a step in it, which only its call can run again."""
        request = self.request
        return JournalEntry(
            call_id=request.call_id,
            step=step,
            run_id=request.run_id,
            tool_name=self.call.tool_name,
            principal=request.principal,
            call={} if step else self.journal_data(),
            at=self.clock.wall(),
            owner=self.owner,
        )


def _answer_dict(answer: Any) -> dict[str, Any]:
    return {
        "decision": answer.decision,
        "value": answer.value,
        "reason": answer.reason,
        "changes": None if answer.changes is None else [dict(change) for change in answer.changes],
        "state": answer.state,
    }


class InFlightCalls:
    """All running calls of one Toolbox; one loop timer is set for the earliest deadline.

    After `bind`, calls are possible only in that event loop; after `close`, in none.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._now = clock.monotonic
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None  # of the loop
        self._is_closed = False
        self._attempts: dict[Attempt, None] = {}  # in the order in which they began
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = NEVER

    def __len__(self) -> int:
        return len(self._attempts)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of all calls; None if calls of any loop are possible."""
        return self._loop

    def bind(self) -> None:
        """Raise an error for calls in other event loops from now on."""
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()

    def begin(
        self,
        request: RequestedCall,
        runtime: ToolRuntime | None,
        call: CallRef,
        snapshot: Any,
        timeout_s: float,
    ) -> Attempt:
        """Add a call of the current task, with its deadline, and return its state."""
        # Saves 0.1 µs per call over get_running_loop: in the thread of the loop, the task is one of that loop.
        task = asyncio.current_task(self._loop) if get_ident() == self._thread else None
        if task is None:
            self.check_loop()
            task = asyncio.current_task()
        began = self._now()
        deadline, cancelling = began + timeout_s, 0 if task is None else task.cancelling()
        attempt = Attempt(
            request, runtime, call, snapshot, began, deadline, timeout_s, task, cancelling, request.started, self._clock
        )
        self._attempts[attempt] = None
        if deadline < self._armed_for:
            self._arm(deadline)
        return attempt

    def leave(self, attempt: Attempt) -> None:
        """Remove a call; the timer stays armed and checks the calls left."""
        self._attempts.pop(attempt, None)

    def move_deadline(self, attempt: Attempt, timeout_s: float) -> None:
        """Change the timeout of a running call, from its start."""
        attempt.deadline += timeout_s - attempt.timeout_s
        attempt.timeout_s = timeout_s
        if attempt.deadline < self._armed_for:
            self._arm(attempt.deadline)

    def bound_try(self, attempt: Attempt, expires: float) -> None:
        """Cancel the current attempt of a call at a time, if it has not ended by then."""
        attempt.expires = expires
        if expires < self._armed_for:
            self._arm(expires)

    def check_loop(self) -> None:
        """Raise RuntimeError if calls are not possible in the current event loop, or no longer possible."""
        if self._is_closed:
            raise RuntimeError(_CLOSED)
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(_OTHER_LOOP)

    def close(self) -> None:
        """Raise an error for further calls."""
        self._is_closed, self._thread = True, None

    def cancel(self, target_id: str, *, tenant: str | None = None, before: float = float("inf")) -> int:
        """Cancel a call, or every call of a run that began before a time, and return their number."""
        self.check_loop()  # a task belongs to its loop
        found = [a for a in self._attempts if target_id in (a.call.call_id, a.call.run_id)]
        mine = [a for a in found if tenant in (None, a.call.tenant) and a.began_at <= before]
        for attempt in mine:
            attempt.stop("cancelled")
        return len(mine)

    def ids(self) -> list[str]:
        """Return the call and run ids by which running calls can be cancelled."""
        return [an_id for a in self._attempts for an_id in (a.call.call_id, a.call.run_id)]

    def tool_names(self) -> list[str]:
        """Return the tool of each running call."""
        return [attempt.call.tool_name for attempt in self._attempts]

    async def stop_all(self, *, patience_s: float = 5.0) -> None:
        """Cancel every call except that of the current task, and wait until they have ended."""
        me = asyncio.current_task()
        others = [attempt for attempt in self._attempts if attempt.task is not me]
        for attempt in others:
            attempt.stop("stopping" if PARKED in attempt.request.answers else "cancelled")
        await _poll(lambda: self._attempts.keys().isdisjoint(others), within_s=patience_s)

    async def finish(self, source: ToolSource | None = None, *, within_s: float) -> None:
        """Wait until no call is running, or none on a source, for at most `within_s` seconds."""
        await _poll(lambda: not any(_runs_on(attempt, source) for attempt in self._attempts), within_s=within_s)

    async def park_all(self, *, patience_s: float = 5.0) -> None:
        """Stop every call and wait until all have ended; repeatable calls resume in another process.

        A call that waits for a nested call has a moment to pause or fail by its outcome.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        outer_at: dict[str, float] = {}  # when a call was last seen to wait for a nested call
        while (now := loop.time()) < until and self._attempts:
            running = {attempt.call.call_id: attempt for attempt in self._attempts}
            outer_at |= {call_id.rpartition(".")[0]: now for call_id in running}
            for call_id, attempt in running.items():
                if attempt.stopped is None and now - outer_at.get(call_id, 0.0) > _OUTER_S:
                    attempt.stop("stopping")
            await asyncio.sleep(0.005)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = asyncio.get_running_loop().call_later(when - self._now(), self._check)

    def _check(self) -> None:
        now = self._now()
        self._timer, self._armed_for = None, NEVER
        for attempt in list(self._attempts):
            if attempt.deadline <= now:
                attempt.stop("timeout")
                attempt.deadline = now + _CANCEL_AGAIN_S
            elif attempt.expires <= now:
                attempt.expire()
                attempt.expires = now + _CANCEL_AGAIN_S
        if self._attempts:
            self._arm(min(min(attempt.deadline, attempt.expires) for attempt in self._attempts))


def _runs_on(attempt: Attempt, source: ToolSource | None) -> bool:
    return source is None or (attempt.runtime is not None and attempt.runtime.entry.source is source)


async def _poll(is_done: Callable[[], bool], *, within_s: float) -> None:
    """Wait for calls by polling: their tasks belong to the callers and continue, so they cannot be awaited."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while loop.time() < until and not is_done():  # noqa: ASYNC110 - as the docstring says
        await asyncio.sleep(0.005)
