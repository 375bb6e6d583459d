"""Tools and hooks for an agent of Haystack that call a Toolbox; a waiting call stops the run until it is answered."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.framework_tools import (
    ANY_PROVIDER,
    FrameworkTool,
    FrameworkTools,
    block_in_loop,
    describe_pause,
)
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from haystack.components.agents.state.state_utils import replace_values
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack.tools import Tool
except ImportError as missing:
    raise ConfigError("tools for Haystack need it; run: pip install haystack-ai") from missing

if TYPE_CHECKING:
    from haystack.components.agents.state import State

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

EXIT_REASON = "toolpost_waiting"
"""The `exit_reason` of a run that stopped because calls wait."""
_META = "toolpost"


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[Mapping[str, Any]], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> list[HaystackTool]:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=..., hooks=hooks(tools))`.

    Calls are for `user`, which may be a function of the `hook_context` of a run. `only` selects tools by name,
    collection or pattern.
    """
    return [HaystackTool(tool) for tool in await FrameworkTools(source, user=user, only=only, provider=provider).read()]


def hooks(
    tools: Sequence[Tool], *, thread: Callable[[Mapping[str, Any]], str] | None = None
) -> dict[str, list[HaystackHook]]:
    """Return the hooks of an agent that stop and resume its runs for calls that wait.

    A call is identified by the call id of the model; `thread` returns the id of a conversation from the `hook_context`,
    for models whose call ids are unique in a conversation only.
    """
    calls = {tool.name: tool.calls for tool in tools if isinstance(tool, HaystackTool)}
    return {point: [HaystackHook(point, calls, thread)] for point in ("before_llm", "before_tool", "after_tool")}


def waiting(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the pending actions that a run stopped for, as data. To resume it, run the agent with its `messages`."""
    return list(result["last_message"].meta[_META]) if result["exit_reason"] == EXIT_REASON else []


class HaystackTool(Tool):  # type: ignore[misc, unused-ignore]
    """A tool of Haystack that calls a Toolbox, which validates the arguments.

    A failed call is a failed tool invocation. The `meta` of its message has the outcome as data.
    """

    def __init__(self, tool: FrameworkTool) -> None:
        self.calls = tool
        super().__init__(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            function=self._call,
            async_function=self._call_async,
        )

    def _call(self, **arguments: Any) -> str:
        return block_in_loop(self.calls.box, self._call_async(**arguments))

    async def _call_async(self, **arguments: Any) -> str:
        step = _STEP.get()
        outcome = await (self.calls.call(arguments, call_id=None) if step is None else step.call(self.calls, arguments))
        if isinstance(outcome, Completed) or (step is not None and isinstance(outcome, Paused)):
            return model_text(outcome)
        raise ToolError(model_text(outcome), tool_name=self.calls.tool_name)


class HaystackHook:
    """A hook of an agent, for one point of its runs.

    Calls that wait leave their step: they are the last message of the run, which stops with `EXIT_REASON` before the
    model is asked again. A run that begins with this message adds their results, or stops again.
    """

    def __init__(
        self,
        point: str,
        tools: Mapping[str, FrameworkTool],
        thread: Callable[[Mapping[str, Any]], str] | None,
    ) -> None:
        self.allowed_hook_points = (point,)
        self._point = point
        self._tools = tools
        self._thread = thread

    def run(self, state: State) -> None:
        waiting = self._begin(state)
        if waiting is not None:
            block_in_loop(self._tools[waiting.tool_calls[0].tool_name].box, self._settle(waiting, state))

    async def run_async(self, state: State) -> None:
        waiting = self._begin(state)
        if waiting is not None:
            await self._settle(waiting, state)

    def _begin(self, state: State) -> ChatMessage | None:
        """Do everything but calls, in the context of the run; return the message of calls that have to be settled."""
        messages: list[ChatMessage] = state.data["messages"]
        match self._point:
            case "before_tool":
                _STEP.set(self._step(messages[-1].tool_calls, state))
            case "after_tool":
                self._set_aside(messages, state)
            case _ if messages[-1].tool_calls and _META in messages[-1].meta:
                return messages[-1]
        return None

    def _step(self, calls: Sequence[ToolCall], state: State) -> _Step:
        context = state.data["hook_context"]
        return _Step(calls, context, None if self._thread is None else self._thread(context))

    def _set_aside(self, messages: list[ChatMessage], state: State) -> None:
        """Move the calls of a step that wait behind its results."""
        step = _STEP.get()
        outcomes = {} if step is None else step.outcomes
        at = next(index for index in reversed(range(len(messages))) if messages[index].tool_calls)
        results: list[ChatMessage] = []
        for message in messages[at + 1 :]:
            outcome = outcomes.get(message.tool_call_result.origin.id)
            if outcome is not None:
                message.meta[_META] = outcome_to_dict(outcome)
            if not isinstance(outcome, Paused):
                results.append(message)
        waits = {call_id for call_id, outcome in outcomes.items() if isinstance(outcome, Paused)}
        if not waits:
            return
        moved = [call for call in messages[at].tool_calls if call.id in waits]
        asked = ChatMessage.from_assistant(tool_calls=moved, meta={_META: []})
        kept = [_without(messages[at], waits)] if results or messages[at].text else []
        state.set("messages", [*messages[:at], *kept, *results, asked], handler_override=replace_values)

    async def _settle(self, message: ChatMessage, state: State) -> None:
        """Add the results of calls that waited, or stop the run."""
        step = self._step(message.tool_calls, state)
        calls = [(call, self._tools[call.tool_name]) for call in message.tool_calls]
        outcomes = await asyncio.gather(*(step.call(tool, call.arguments) for call, tool in calls))
        waits = [
            describe_pause(outcome, tool, call.id)
            for (call, tool), outcome in zip(calls, outcomes, strict=True)
            if isinstance(outcome, Paused)
        ]
        if waits:
            message.meta[_META] = waits
            state.set("stop_run", EXIT_REASON)
            return
        results = [
            ChatMessage.from_tool(
                model_text(outcome), call, isinstance(outcome, Failed), {_META: outcome_to_dict(outcome)}
            )
            for (call, _), outcome in zip(calls, outcomes, strict=True)
        ]
        asked = ChatMessage.from_assistant(tool_calls=message.tool_calls)
        state.set("messages", [*state.data["messages"][:-1], asked, *results], handler_override=replace_values)


class _Step:
    """The calls of one message, which the framework runs without their ids, and their outcomes."""

    def __init__(self, calls: Sequence[ToolCall], context: Mapping[str, Any], thread: str | None) -> None:
        self._left = list(calls)
        self._context = context
        self._thread = thread
        self.outcomes: dict[str, Outcome] = {}

    async def call(self, tool: FrameworkTool, arguments: dict[str, Any]) -> Outcome:
        """Make one of the calls; those that are equal may be made in any order."""
        call_id = self._claim(tool.name, arguments)
        outcome = await tool.call(arguments, call_id=call_id, thread=self._thread, context=self._context)
        if call_id is not None:
            self.outcomes[call_id] = outcome
        return outcome

    def _claim(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Return the id of a call, once; None if the state of the run has changed its arguments."""
        for call in self._left:
            if call.tool_name == name and call.arguments == arguments:
                self._left.remove(call)
                return cast("str | None", call.id)
        return None


_STEP: ContextVar[_Step | None] = ContextVar("step", default=None)


def _without(message: ChatMessage, ids: set[str]) -> ChatMessage:
    """Return a message of the model without some of its calls."""
    calls = [call for call in message.tool_calls if call.id not in ids]
    return ChatMessage.from_assistant(
        message.text, message.meta, message.name, calls or None, reasoning=message.reasoning
    )
