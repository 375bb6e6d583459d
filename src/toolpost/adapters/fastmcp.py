"""A provider of FastMCP with the tools of a Toolbox; a call that waits returns an input request to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import PrivateAttr

from toolpost.adapters.framework_tools import (
    ANY_PROVIDER,
    FrameworkTool,
    FrameworkTools,
    Receive,
    describe_pause,
    run_in_loop,
)
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import OWN_META, Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.runtime.model_messages import model_text
from toolpost.schema.json_values import is_object
from toolpost.schema.provider_dialects import Provider

try:
    from fastmcp.server.dependencies import get_context
    from fastmcp.server.elicitation import AcceptedElicitation
    from fastmcp.server.providers import Provider as ComponentProvider
    from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
    from mcp_types import ClientCapabilities, ElicitationCapability, InputRequiredResult, ToolAnnotations
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS
except ImportError as missing:
    raise ConfigError("a provider for FastMCP needs it; run: pip install 'toolpost[mcp]'") from missing

if TYPE_CHECKING:
    from fastmcp import Context

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

OUTCOME = f"{OWN_META}outcome"
"""Key of the metadata of a result: the outcome as data, or the pending action of a call that waits."""
# The SDKs of Python, TypeScript, C# and Go raise an error after ten rounds, which ends the run of their agent.
_LAST_ROUND = 8
_SEPARATOR = "&"


def provider(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[Context], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
    wait_s: float | None = None,
) -> FastMCPTools:
    """Return the tools of a Toolbox, or of a table, for `FastMCP(providers=[...])` or `server.add_provider`.

    Every request has the tools of the catalog at that time. Calls are for `user`, which may be a function of the
    context of a request, for example of its access token; without it, all clients call as the same user. `only` selects
    tools by name, collection or pattern. A retry of a call that waits is answered after at most `wait_s`, by default
    the setting `server.pending_wait_s`.
    """
    return FastMCPTools(FrameworkTools(source, user=user, only=only, provider=provider), wait_s)


class FastMCPTools(ComponentProvider):
    """The tools of a Toolbox for a server of FastMCP."""

    def __init__(self, listing: FrameworkTools, wait_s: float | None) -> None:
        super().__init__()
        self._listing = listing
        self._wait_s = wait_s
        self._listed: dict[str, FastMCPTool] = {}

    async def _list_tools(self) -> Sequence[Tool]:
        self._listed = {tool.name: FastMCPTool.of(tool, self._wait_s) for tool in await self._listing.read()}
        return list(self._listed.values())

    async def _get_tool(self, name: str, version: Any = None) -> Tool | None:
        if name not in self._listed:
            await self._list_tools()
        return self._listed.get(name)


class FastMCPTool(Tool):
    """A tool that calls a Toolbox, which validates the arguments.

    The result of a failed call is an error. The metadata of a result has the outcome as data. A waiting call returns an
    `InputRequiredResult` to clients with protocol 2026-07-28, which retry it. Clients with older protocols are prompted
    to check again; those that support no prompts get an error with the pending action.
    """

    _calls: FrameworkTool = PrivateAttr()
    _wait_s: float = PrivateAttr()

    @classmethod
    def of(cls, tool: FrameworkTool, wait_s: float | None) -> FastMCPTool:
        """Return the tool of a server that makes the calls of a tool."""
        made = cls(
            name=tool.name, description=tool.description, parameters=tool.parameters, annotations=_annotations(tool)
        )
        made._calls = tool
        made._wait_s = tool.box.settings.server.pending_wait_s if wait_s is None else wait_s
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        context = get_context()
        call_id, number = self._state(context)
        outcome = await self._calls.call(arguments, call_id=call_id, context=context, receive=_progress(context))
        if isinstance(outcome, Paused) and number > 1:
            outcome = await self._wait(outcome)
        while isinstance(outcome, Paused):
            if _is_stateless(context) and number < _LAST_ROUND:
                state = f"{call_id}{_SEPARATOR}{number + 1}"
                asked = describe_pause(outcome, self._calls, call_id)
                return InputRequiredToolResult(InputRequiredResult(request_state=state, _meta={OUTCOME: asked}))
            if not await _checks_again(context, outcome):
                break
            outcome = await self._wait(outcome)
        return self._result(outcome, call_id)

    def _state(self, context: Context) -> tuple[str, int]:
        """Return the id of a call and the number of its round; the server verifies the state of a retry."""
        if context.request_state is None:
            return self._calls.box.router.new_id("call"), 1
        call_id, _, number = context.request_state.rpartition(_SEPARATOR)
        return call_id, int(number)

    async def _wait(self, paused: Paused) -> Outcome:
        """Return the outcome of a call that waits, after its answer or the time of one round."""
        box = self._calls.box
        return await run_in_loop(box, self._answered(box, paused))

    async def _answered(self, box: Toolbox, paused: Paused) -> Outcome:
        action = await box.store.pending.get(paused.pending_id)
        if action is None:
            return paused
        return await box.pending.outcome(paused.pending_id, by=str(action.asked_by), wait_s=self._wait_s)

    def _result(self, outcome: Outcome, call_id: str) -> ToolResult:
        text = model_text(outcome)
        match outcome:
            case Completed():
                content = outcome.content if is_object(outcome.content) and not outcome.artifacts else None
                return ToolResult(text, content, {OUTCOME: outcome_to_dict(outcome)})
            case Failed():
                return ToolResult(text, None, {OUTCOME: outcome_to_dict(outcome)}, is_error=True)
            case Paused():
                return ToolResult(text, None, {OUTCOME: describe_pause(outcome, self._calls, call_id)}, is_error=True)


def _annotations(tool: FrameworkTool) -> ToolAnnotations | None:
    """Return hints from the known effects of a tool, not from those that its source claims."""
    registry = tool.box.registry
    if not registry.has(tool.tool_name):
        return None
    spec = registry.find(tool.tool_name).spec
    return ToolAnnotations(
        read_only_hint=not spec.has_effects,
        destructive_hint=spec.safety.destructive is not False if spec.has_effects else None,
        open_world_hint=spec.safety.open_world,
    )


def _is_stateless(context: Context) -> bool:
    request = context.request_context
    return request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _checks_again(context: Context, paused: Paused) -> bool:
    """Prompt the user of a session-based client; return whether to check for the answer again."""
    asks = ClientCapabilities(elicitation=ElicitationCapability())
    if _is_stateless(context) or not context.session.check_client_capability(asks):
        return False
    prompt = f"{paused.question.prompt} Check again whether it is answered?"
    reply = await context.elicit(prompt, response_type=bool)
    return isinstance(reply, AcceptedElicitation) and reply.data


def _progress(context: Context) -> Receive:
    """Return a function that sends progress to the client of a request, from any thread."""
    loop = asyncio.get_running_loop()

    def receive(facts: dict[str, Any]) -> None:
        text = facts.get("text") or facts.get("value")
        sent = context.report_progress(
            cast("float", facts.get("fraction") or 0), 1, None if text is None else str(text)
        )
        asyncio.run_coroutine_threadsafe(sent, loop)

    return receive
