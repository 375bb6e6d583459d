"""Function tools of the OpenAI Agents SDK that call a Toolbox; a call that needs approval interrupts the run."""

# The checkers run without the SDK, which needs other versions of the libraries beside them.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause, outcome_data
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Failed, Outcome, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from agents import FunctionTool, RunState, SpanError, get_current_span
except ImportError as missing:
    raise ConfigError("tools for the OpenAI Agents SDK need it; run: pip install openai-agents") from missing

if TYPE_CHECKING:
    from agents import RunContextWrapper, RunResultBase, ToolApprovalItem
    from agents.tool_context import ToolContext

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[RunContextWrapper[Any]], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
    thread: Callable[[RunContextWrapper[Any]], str] | None = None,
) -> list[OpenAIAgentsTool]:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=...)`.

    Calls are for `user`, which may be a function of the run context. `only` selects tools by name, collection or
    pattern. A call is identified by the call id of the model; `thread` returns the id of a conversation, for models
    whose call ids are unique in a conversation only.
    """
    return [_of(tool, thread) for tool in await FrameworkTools(source, user=user, only=only, provider=provider).read()]


async def waiting(run: RunResultBase | RunState[Any]) -> list[dict[str, Any]]:
    """Return the pending actions that a run was interrupted for and that still wait, as data.

    `run` is its result, or its state, which may be one that was stored.
    """
    described = [(item, await _outcome_of(item, run)) for item in _interruptions(run)]
    return [
        describe_pause(outcome, _tool_of(item).calls, item.call_id)
        for item, outcome in described
        if isinstance(outcome, Paused)
    ]


async def resumable(run: RunResultBase | RunState[Any]) -> RunState[Any]:
    """Return the state to resume an interrupted run with, in which the calls that no longer wait continue.

    `run` is the result of the run, or its state. Calls that still wait interrupt the run again, and so do interruptions
    of other tools. Approval in the state does not approve a call: a person answers the pending action in the Toolbox,
    and a denied call fails.
    """
    state = run if isinstance(run, RunState) else cast("RunState[Any]", cast("Any", run).to_state())
    for item in _interruptions(run):
        if not isinstance(await _outcome_of(item, run), Paused):
            state.approve(item)
    return state


@dataclass
class OpenAIAgentsTool(FunctionTool):  # type: ignore[misc, unused-ignore]
    """A function tool that calls a Toolbox, which validates the arguments.

    The output of a failed call is the text of its error, and the span of the call has the error. `custom_data` of an
    output is the outcome as data. A call that pauses while it runs, for a sign-in or a question of the tool, has an
    output that says that it waits.
    """

    calls: FrameworkTool = field(kw_only=True)
    thread: Callable[[RunContextWrapper[Any]], str] | None = field(kw_only=True, default=None)

    async def outcome_of(
        self, context: RunContextWrapper[Any], call_id: str, arguments: Mapping[str, Any] | str
    ) -> Outcome:
        """Return the outcome of a call: it is made once, and repeating it returns the same."""
        thread = None if self.thread is None else self.thread(context)
        return await self.calls.call(arguments, call_id=call_id, thread=thread, context=context)


def _of(tool: FrameworkTool, thread: Callable[[RunContextWrapper[Any]], str] | None) -> OpenAIAgentsTool:
    ended: dict[str, Outcome] = {}

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        outcome = ended[context.tool_call_id] = await made.outcome_of(context, context.tool_call_id, arguments)
        if isinstance(outcome, Failed):
            error = outcome.error
            get_current_span().set_error(
                SpanError(message=error.error_code, data={"tool_name": tool.name, "error": error.message})
            )
        return model_text(outcome)

    async def needs_approval(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        if await tool.would_ask(arguments, context=context) is None:
            return False
        return isinstance(await made.outcome_of(context, call_id, arguments), Paused)

    made = OpenAIAgentsTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        strict_json_schema=False,
        on_invoke_tool=invoke,
        needs_approval=needs_approval,
        custom_data_extractor=lambda called: _data(ended.pop(called.tool_context.tool_call_id, None)),
        calls=tool,
        thread=thread,
    )
    return made


def _data(outcome: Outcome | None) -> dict[str, Any] | None:
    """Return an outcome as JSON data; None if the call was not made, because a guardrail replaced its output."""
    return None if outcome is None else outcome_data(outcome)


def _interruptions(run: RunResultBase | RunState[Any]) -> list[ToolApprovalItem]:
    """Return the interruptions of calls to a Toolbox."""
    found = run.get_interruptions() if isinstance(run, RunState) else cast("Any", run).interruptions
    items: list[ToolApprovalItem] = list(found)
    return [item for item in items if _find_tool(item) is not None]


def _find_tool(item: ToolApprovalItem) -> OpenAIAgentsTool | None:
    tools = cast("list[Any]", item.agent.tools)
    return next((tool for tool in tools if isinstance(tool, OpenAIAgentsTool) and tool.name == item.tool_name), None)


def _tool_of(item: ToolApprovalItem) -> OpenAIAgentsTool:
    tool = _find_tool(item)
    assert tool is not None  # noqa: S101 - selected by _interruptions
    return tool


async def _outcome_of(item: ToolApprovalItem, run: RunResultBase | RunState[Any]) -> Outcome:
    # A state has no public attribute for its context.
    context = cast("Any", run)._context if isinstance(run, RunState) else run.context_wrapper  # noqa: SLF001
    return await _tool_of(item).outcome_of(context, item.call_id or "", item.arguments or "")
