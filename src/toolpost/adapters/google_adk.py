"""A toolset of Google's Agent Development Kit that calls a Toolbox; a waiting call requests a confirmation."""

# The checkers run without the kit, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause, run_in_loop
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.genai import types
except ImportError as missing:
    raise ConfigError("a toolset for Google ADK needs it; run: pip install google-adk") from missing

_CONFIRMATION = "adk_request_confirmation"
_WAITING = frozenset({"open", "claimed"})

if TYPE_CHECKING:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.events.event import Event
    from google.adk.tools.tool_context import ToolContext

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox


def toolset(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[ToolContext], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> AdkToolset:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=[...])`.

    Every invocation has the tools of the catalog at that time. Calls are for `user`, which may be a function of the
    tool context. `only` selects tools by name, collection or pattern.
    """
    return AdkToolset(FrameworkTools(source, user=user, only=only, provider=provider))


async def confirmations(box: Toolbox, events: Iterable[Event]) -> list[types.Part]:
    """Return the parts of the message that resumes a run, for those of its calls that no longer wait.

    `events` are the events of the run or of its session. The kit asks once for each confirmation, so that a call which
    is resumed before its answer cannot wait again: send these parts, and nothing if there are none.
    """
    answered: list[types.Part] = []
    for call in [call for event in events for call in event.get_function_calls() if call.name == _CONFIRMATION]:
        asked = ((call.args or {}).get("toolConfirmation") or {}).get("payload") or {}
        pending_id = asked.get("pending_id") if isinstance(asked, dict) else None
        action = None if pending_id is None else await run_in_loop(box, box.store.pending.get(pending_id))
        if action is not None and action.status not in _WAITING:
            response = types.FunctionResponse(id=call.id, name=_CONFIRMATION, response={"confirmed": True})
            answered.append(types.Part(function_response=response))
    return answered


class AdkToolset(BaseToolset):  # type: ignore[misc, unused-ignore]
    """The tools of a Toolbox, which validates the arguments."""

    def __init__(self, listing: FrameworkTools) -> None:
        super().__init__()
        self._listing = listing

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [AdkTool(tool) for tool in await self._listing.read()]

    async def close(self) -> None:
        """Leave the Toolbox open: its owner closes it."""


class AdkTool(BaseTool):  # type: ignore[misc, unused-ignore]
    """A tool that calls a Toolbox.

    The response of a failed call has an `error`. A waiting call requests a confirmation, whose payload contains the
    pending action. When the run is resumed with a confirmation, the call has the outcome that the person's answer led
    to: the confirmation itself does not approve the call. Resume with `confirmations`, after the answer.
    """

    def __init__(self, tool: FrameworkTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self._tool.name, description=self._tool.description, parameters_json_schema=self._tool.parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str]:
        call_id, session = cast("str | None", tool_context.function_call_id), tool_context.session
        outcome = await self._tool.call(args, call_id=call_id, thread=session.id, context=tool_context)
        match outcome:
            case Completed():
                return {"result": model_text(outcome)}
            case Failed():
                return {"error": model_text(outcome)}
            case Paused():
                tool_context.request_confirmation(
                    hint=outcome.question.prompt, payload=describe_pause(outcome, self._tool, call_id)
                )
                tool_context.actions.skip_summarization = True
                return {"error": model_text(outcome)}
