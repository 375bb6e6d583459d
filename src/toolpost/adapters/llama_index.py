"""Tools of LlamaIndex that call a Toolbox; in a workflow, a waiting call waits for an event."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.framework_tools import (
    FrameworkTool,
    FrameworkTools,
    block_in_loop,
    describe_pause,
    outcome_data,
)
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Outcome, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from llama_index.core.tools import FunctionTool, ToolMetadata, ToolOutput
    from llama_index.core.workflow import Context, Event, InputRequiredEvent
    from llama_index_instrumentation.dispatcher import active_instrument_tags
    from workflows.runtime.types.results import AddWaiter, StepWorkerStateContextVar, WaitingForEvent
except ImportError as missing:
    raise ConfigError("tools for LlamaIndex need it; run: pip install llama-index-core") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_SHORT: Provider = "openai"  # the framework rejects descriptions of more than 1024 characters
_THREAD = "toolpost_thread"
_CONTEXT = "toolpost_context"
_RUN = "llamaindex.run_id"
_MOST_ENDED = 10_000


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[Context], Awaitable[str]] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = _SHORT,
) -> list[LlamaIndexTool]:
    """Return the tools of a Toolbox, or of a table, for `FunctionAgent(tools=...)` or another agent.

    Calls are for `user`, which may be an asynchronous function of the context of the workflow. `only` selects tools by
    name, collection or pattern.
    """
    listing = FrameworkTools(source, user=_given if callable(user) else user, only=only, provider=provider)
    return [LlamaIndexTool(tool, user if callable(user) else None) for tool in await listing.read()]


class CallsAnswered(Event):  # type: ignore[misc, unused-ignore]
    """Resumes a workflow whose calls wait, when it is sent: calls that still wait continue to wait.

    The event does not approve a call: a person answers the pending action in the Toolbox.
    """


class CallWaiting(InputRequiredEvent):  # type: ignore[misc, unused-ignore]
    """A call that waits for a person, until `CallsAnswered`; `pending` is its pending action as data."""

    pending: dict[str, Any]


class WorkflowProgress(Event):  # type: ignore[misc, unused-ignore]
    """Progress of a call: `facts` contains a text and a fraction, or a streamed value."""

    facts: dict[str, Any]


class LlamaIndexTool(FunctionTool):  # type: ignore[misc, unused-ignore]
    """A tool of LlamaIndex that calls a Toolbox, which validates the arguments.

    The output of a failed call is an error. The `raw_output` is the outcome as data. A waiting call writes
    `CallWaiting` to the stream of its workflow and waits for `CallsAnswered`. Outside of a workflow, the output is an
    error that says that the call waits.
    """

    def __init__(self, tool: FrameworkTool, user: Callable[[Context], Awaitable[str]] | None) -> None:
        super().__init__(async_fn=_declared, metadata=_Metadata(tool))
        self.requires_context, self.ctx_param_name = True, _CONTEXT
        self._tool = tool
        self._user = user
        self._ended: dict[str, None] = {}

    async def acall(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        ctx: Context | None = arguments.pop(_CONTEXT, None)
        arguments = {**dict(zip(self._tool.parameters.get("properties") or {}, args, strict=False)), **arguments}
        user = await self._user(ctx) if self._user is not None and ctx is not None else None
        if ctx is None:
            return self._output(arguments, await self._tool.call(arguments, call_id=None, context=user))
        step = _Step(ctx)
        outcome = await self._tool.call(
            arguments, call_id=step.call_id, thread=await step.thread(), context=user, receive=step.receive
        )
        if isinstance(outcome, Paused):
            await step.wait(outcome, describe_pause(outcome, self._tool, step.call_id))
        await step.end_wait(self._ended)
        return self._output(arguments, outcome)

    def call(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        return block_in_loop(self._tool.box, self.acall(*args, **arguments))

    def _output(self, arguments: dict[str, Any], outcome: Outcome) -> ToolOutput:
        return ToolOutput(
            tool_name=self._tool.name,
            content=model_text(outcome),
            raw_input=arguments,
            raw_output=outcome_data(outcome),
            is_error=not isinstance(outcome, Completed),
        )


class _Never(Event):  # type: ignore[misc, unused-ignore]
    """An event that is never sent."""


class _Metadata(ToolMetadata):  # type: ignore[misc, unused-ignore]
    """The metadata of a tool, with its own schema."""

    def __init__(self, tool: FrameworkTool) -> None:
        super().__init__(description=tool.description, name=tool.name, fn_schema=None)
        self._tool = tool

    def get_parameters_dict(self) -> dict[str, Any]:
        return {"properties": {}, **self._tool.parameters}


class _Step:
    """The step of a workflow that makes a call, which the workflow repeats after each wait."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._step = StepWorkerStateContextVar.get(None)
        self._loop = asyncio.get_running_loop()
        self.call_id: str | None = getattr(self._step and self._step.event, "tool_id", None)
        self._item = f"{self.call_id}/{self._step and self._step.state.work_item_id}"

    async def thread(self) -> str:
        """Return an id of the context and of this step in it: some models repeat the ids of their calls."""
        async with self._ctx.store.edit_state() as state:
            state[_THREAD] = context = state.get(_THREAD) or uuid.uuid4().hex
        return f"{context}/{self._item}"

    def receive(self, facts: dict[str, Any]) -> None:
        """Write progress to the stream of the workflow, from any thread."""
        self._loop.call_soon_threadsafe(self._ctx.write_event_to_stream, WorkflowProgress(facts=facts))

    async def wait(self, paused: Paused, pending: dict[str, Any]) -> None:
        """End this step: the workflow repeats it after the next event."""
        asked = CallWaiting(prefix=paused.question.prompt, pending=pending)
        await self._wait(asked)
        raise WaitingForEvent(AddWaiter(waiter_id=self._item, event_type=CallsAnswered))  # the event was for others

    async def end_wait(self, ended: dict[str, None]) -> None:
        """Remove the wait of a call that has ended, and add the call to those that have `ended`.

        Several events repeat the step several times, and so does restoring a context. A call has one result: the other
        steps end without one, waiting for an event that never comes.
        """
        call = f"{active_instrument_tags.get().get(_RUN)}/{self._item}"
        if call in ended:
            raise WaitingForEvent(AddWaiter(waiter_id=f"{self._item}/repeated", event_type=_Never))
        waiters = self._step.state.collected_waiters if self._step else []
        waiter = next((one for one in waiters if one.waiter_id == self._item), None)
        if waiter is None:
            return
        ended[call] = None
        while len(ended) > _MOST_ENDED:
            del ended[next(iter(ended))]
        if waiter.resolved_event is not None:
            await self._wait(None)

    async def _wait(self, asked: CallWaiting | None) -> None:
        await self._ctx.wait_for_event(CallsAnswered, waiter_event=asked, waiter_id=self._item, timeout=None)


async def _declared() -> None:
    """Declare a function: the tool makes the calls itself, with a context."""
    raise NotImplementedError


def _given(user: Any) -> str:
    return cast("str", user)
