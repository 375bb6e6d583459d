"""A toolset of Pydantic AI that calls a Toolbox; a waiting call is deferred until a person has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from pydantic_ai import ApprovalRequired, CustomEvent, RunContext, ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as missing:
    raise ConfigError("a toolset for Pydantic AI needs it; run: pip install pydantic-ai-slim") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_ANY_ARGUMENTS = SchemaValidator(core_schema.any_schema())  # the Toolbox validates them


def toolset(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[RunContext[Any]], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
    id: str = "toolpost",
) -> ToolboxToolset:
    """Return the tools of a Toolbox, or of a table, for `Agent(toolsets=[...])`.

    Every step of a run has the tools of the catalog at that time. Calls are for `user`, which may be a function of the
    run context. `only` selects tools by name, collection or pattern. To let calls wait for a person, give the agent
    `DeferredToolRequests` among its output types.
    """
    return ToolboxToolset(FrameworkTools(source, user=user, only=only, provider=provider), id=id)


@dataclass(kw_only=True)
class ToolProgress(CustomEvent):
    """Progress of a call: `facts` contains a text and a fraction, or a streamed value."""

    facts: dict[str, Any]


class ToolboxToolset(AbstractToolset[Any]):
    """The tools of a Toolbox, which validates the arguments.

    A failed call raises ToolFailed. A waiting call raises ApprovalRequired, whose metadata contains the pending action.
    When the run is resumed with an approval, the call has the outcome that the person's answer led to, or waits again:
    an approval in the framework does not approve it. The `metadata` of a result is the outcome as data.
    """

    def __init__(self, listing: FrameworkTools, *, id: str) -> None:
        self._listing = listing
        self._id = id

    @property
    def id(self) -> str:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {tool.name: ListedTool.of(tool, self) for tool in await self._listing.read()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        assert isinstance(tool, ListedTool)  # noqa: S101 - from get_tools
        progress = _Progress(ctx)
        outcome = await tool.calls.call(
            tool_args, call_id=ctx.tool_call_id, thread=ctx.conversation_id, context=ctx, receive=progress.receive
        )
        if progress.emitting:
            await asyncio.gather(*progress.emitting, return_exceptions=True)  # listeners of events may fail
        return _result(outcome, tool.calls, ctx.tool_call_id)


@dataclass(kw_only=True)
class ListedTool(ToolsetTool[Any]):
    """A tool as one step of a run lists it."""

    calls: FrameworkTool

    @classmethod
    def of(cls, tool: FrameworkTool, toolset: ToolboxToolset) -> ListedTool:
        """Return the tool of a toolset that makes the calls of a tool."""
        return cls(
            toolset=toolset,
            tool_def=ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
            ),
            max_retries=1,
            args_validator=_ANY_ARGUMENTS,
            calls=tool,
        )


def _result(outcome: Outcome, tool: FrameworkTool, call_id: str | None) -> ToolReturn[Any]:
    match outcome:
        case Completed():
            return ToolReturn(model_text(outcome), metadata=outcome_to_dict(outcome))
        case Failed():
            raise ToolFailed(model_text(outcome))
        case Paused():
            raise ApprovalRequired(metadata=describe_pause(outcome, tool, call_id))


class _Progress:
    """Progress of one call, as events of the run in their order."""

    def __init__(self, ctx: RunContext[Any]) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self.emitting: list[asyncio.Task[Any]] = []

    def receive(self, facts: dict[str, Any]) -> None:
        """Emit progress from any thread."""
        self._loop.call_soon_threadsafe(self._emit, facts)

    def _emit(self, facts: dict[str, Any]) -> None:
        self.emitting.append(self._loop.create_task(self._ctx.emit(ToolProgress(facts=facts))))
