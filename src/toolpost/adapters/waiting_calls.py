"""Calls that wait in a framework's run until a person has answered, for frameworks without an interrupt for tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from toolpost.adapters.framework_tools import FrameworkTool, block_in_loop, run_in_loop
from toolpost.contracts.outcomes import Completed, Outcome, Paused
from toolpost.runtime.model_messages import model_text

WAIT_S = 600.0
"""The time that a call waits for an answer, by default."""
_LONGEST_WAIT_S = 3600.0  # of one wait in the store; `wait_s` may be infinite
_MOST_LATE = 10_000
_WAITING = frozenset({"open", "claimed"})


class CallFailedError(RuntimeError):
    """A call that failed, or that was not answered in time; the message is for the model."""


class BlockingCalls:
    """Calls that end with their outcome, or with their pause if no person has answered within `wait_s`.

    The pending action of such a call stays open. The next call with the same user, tool and arguments is the same call:
    it continues to wait, or has the outcome that the answer led to. Call ids are unique within the `thread`.
    """

    def __init__(self, wait_s: float, thread: str | None = None) -> None:
        self._wait_s = wait_s
        self._thread = thread
        self._late: dict[str, str] = {}

    async def call(
        self,
        tool: FrameworkTool,
        arguments: Mapping[str, Any] | str | None,
        *,
        call_id: str | None = None,
        context: Any = None,
    ) -> Outcome:
        """Call the tool, and wait for the answer in the event loop of its Toolbox."""
        key = json.dumps([tool.user_of(context), tool.tool_name, arguments], sort_keys=True, default=str)
        return await run_in_loop(tool.box, self._call(tool, arguments, call_id, context, key))

    def block(self, tool: FrameworkTool, arguments: Mapping[str, Any] | str | None, *, context: Any = None) -> Outcome:
        """Call the tool from a thread without an event loop."""
        return block_in_loop(tool.box, self.call(tool, arguments, context=context))

    async def _call(
        self,
        tool: FrameworkTool,
        arguments: Mapping[str, Any] | str | None,
        call_id: str | None,
        context: Any,
        key: str,
    ) -> Outcome:
        id_ = self._late.pop(key, None) or call_id or tool.box.router.new_id("call")
        call = partial(tool.call, arguments, call_id=id_, thread=self._thread, context=context)
        outcome = await self._answered(tool, await call(), call)
        if isinstance(outcome, Paused):
            self._late[key] = id_
            while len(self._late) > _MOST_LATE:
                del self._late[next(iter(self._late))]
        return outcome

    async def _answered(
        self, tool: FrameworkTool, outcome: Outcome, repeat: Callable[[], Awaitable[Outcome]]
    ) -> Outcome:
        """Repeat a call when a pending action of it has ended, until it no longer waits or the time is over."""
        clock, pending = tool.box.router.clock, tool.box.store.pending
        deadline = clock.monotonic() + self._wait_s
        watched, known = list[str](), None
        while isinstance(outcome, Paused) and (left_s := deadline - clock.monotonic()) > 0:
            ids = [question.pending_id for question in outcome.questions]
            watched, known = ids, known if ids == watched else None
            known = await pending.wait(ids, known, timeout_s=min(left_s, _LONGEST_WAIT_S))
            actions = [await pending.get(id_) for id_ in ids]
            if any(action is None or action.status not in _WAITING for action in actions):
                outcome = await repeat()
        return outcome


def text_or_error(outcome: Outcome) -> str:
    """Return the text of a result; raise CallFailedError for a call that failed or still waits."""
    if isinstance(outcome, Completed):
        return model_text(outcome)
    raise CallFailedError(failure_text(outcome))


def failure_text(outcome: Outcome) -> str:
    """Return the text of a failed call, or of one that still waits after its time."""
    if not isinstance(outcome, Paused):
        return model_text(outcome)
    asked = "; ".join(question.question.prompt for question in outcome.questions)
    return (
        f"This call still waits for a person: {asked} ({outcome.pending_id}). "
        "To get its result later, call the tool again with the same arguments."
    )
