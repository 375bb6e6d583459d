"""NodeSpecs of penguiflow that call a Toolbox; a waiting call pauses the planner.

`toolpost.compat.penguiflow` is the opposite: programs of penguiflow that run on Toolpost's own planner.
"""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, create_model

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Completed, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from penguiflow.catalog import NodeSpec
    from penguiflow.node import Node
except ImportError as missing:
    raise ConfigError("NodeSpecs need penguiflow; run: pip install penguiflow") from missing

if TYPE_CHECKING:
    from penguiflow.planner import ToolContext

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_CALLS = "toolpost_calls"
"""Key of the metadata of a trajectory: the ids of its calls that have not ended, by tool and arguments."""


async def node_specs(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[Mapping[str, Any]], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> list[NodeSpec]:
    """Return the tools of a Toolbox, or of a table, for `ReactPlanner(catalog=...)`.

    Calls are for `user`, which may be a function of the tool context. `only` selects tools by name, collection or
    pattern.
    """
    listed = await FrameworkTools(source, user=user, only=only, provider=provider).read()
    return [PenguiflowTool(tool).spec() for tool in listed]


class ToolText(BaseModel):
    """The result of a call, as text for a model."""

    result: str


class PenguiflowTool:
    """The calls of a node, made in a Toolbox, which validates the arguments.

    A failed call raises ToolError, and its step has the error. A waiting call pauses the planner with the pending
    action as payload. The planner does not repeat a call that it paused for: its model has to request the call again,
    which then has the outcome that the person's answer led to, or pauses again.
    """

    def __init__(self, tool: FrameworkTool) -> None:
        self._tool = tool
        self._running: set[str] = set()

    def spec(self) -> NodeSpec:
        """Return the node of a catalog."""
        registry = self._tool.box.registry
        known = registry.find(self._tool.tool_name).spec if registry.has(self._tool.tool_name) else None
        return NodeSpec(
            Node(self.run, name=self._tool.name),
            self._tool.name,
            self._tool.description,
            self._arguments_model(),
            ToolText,
            "write" if known is None else known.side_effects,
        )

    def _arguments_model(self) -> type[BaseModel]:
        """Return the class that a node needs for its schema; it accepts any arguments."""
        schema = dict(self._tool.parameters)
        return create_model(
            "Arguments", __config__=ConfigDict(extra="allow", json_schema_extra=lambda shown: _replace(shown, schema))
        )

    async def run(self, args: BaseModel, ctx: ToolContext) -> ToolText:
        """Make a call; raise ToolError if it failed."""
        arguments = args.model_dump()
        # The context has no id of a call, and its `tool_context` is lost when a run is resumed with another one.
        calls = ctx._trajectory.metadata.setdefault(_CALLS, {})  # noqa: SLF001
        waiting = calls.setdefault(json.dumps([self._tool.name, arguments], sort_keys=True, default=str), [])
        call_id = next((one for one in waiting if one not in self._running), None)
        if call_id is None:
            call_id = self._tool.box.router.new_id("call")
            waiting.append(call_id)
        self._running.add(call_id)
        try:
            outcome = await self._tool.call(arguments, call_id=call_id, context=ctx.tool_context)
        finally:
            self._running.discard(call_id)
        if isinstance(outcome, Paused):
            await ctx.pause("approval_required", describe_pause(outcome, self._tool, call_id))
        waiting.remove(call_id)
        if isinstance(outcome, Completed):
            return ToolText(result=model_text(outcome))
        raise ToolError(model_text(outcome), tool_name=self._tool.tool_name)


def _replace(shown: dict[str, Any], schema: dict[str, Any]) -> None:
    shown.clear()
    shown.update(schema)
