"""A context provider of Microsoft's agent-framework with the tools of a Toolbox; a waiting call requests approval."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import (
    ANY_PROVIDER,
    FrameworkTool,
    FrameworkTools,
    describe_pause,
    outcome_data,
)
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from agent_framework import Content, ContextProvider, FunctionMiddleware, FunctionTool
    from agent_framework.exceptions import ToolExecutionException, UserInputRequiredException
except ImportError as missing:
    raise ConfigError("tools for agent-framework need it; run: pip install agent-framework-core") from missing

if TYPE_CHECKING:
    from agent_framework import AgentSession, FunctionInvocationContext, SessionContext

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_OCCURRENCE = "function_call_occurrence_id"
_PENDING = "toolpost_pending"


def provider(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[FunctionInvocationContext], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> ToolboxProvider:
    """Return the tools of a Toolbox, or of a table, for `Agent(context_providers=[...])`.

    Every run has the tools of the catalog at that time. Calls are for `user`, which may be a function of the context
    of the invocation. `only` selects tools by name, collection or pattern.
    """
    return ToolboxProvider(FrameworkTools(source, user=user, only=only, provider=provider))


def waiting(response: Any) -> list[dict[str, Any]]:
    """Return the pending actions that a run waits for, as data."""
    return [request.additional_properties[_PENDING] for request in _requests(response)]


def approvals(response: Any) -> list[Content]:
    """Return the contents of the message that resumes a run which waits for calls to a Toolbox.

    Approval in the framework does not approve a call: a person answers the pending action in the Toolbox. A call that
    still waits requests approval again.
    """
    return [request.to_function_approval_response(approved=True) for request in _requests(response)]


def _requests(response: Any) -> list[Any]:
    requests: list[Any] = response.user_input_requests
    return [request for request in requests if _PENDING in request.additional_properties]


class ToolboxProvider(ContextProvider):  # type: ignore[misc, unused-ignore]
    """The tools of a Toolbox, for every run of an agent."""

    def __init__(self, listing: FrameworkTools) -> None:
        super().__init__("toolpost")
        self._listing = listing
        self._functions: dict[str, ToolboxFunction] = {}

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        self._functions = {tool.name: self._function(tool) for tool in await self._listing.read()}
        context.extend_tools(self.source_id, list(self._functions.values()))
        context.extend_middleware(self.source_id, [_Occurrences()])

    def _function(self, tool: FrameworkTool) -> ToolboxFunction:
        """Return the function of a tool, which is made once: the framework inspects each for 50 microseconds."""
        known = self._functions.get(tool.name)
        return known if known is not None and known.calls == tool else ToolboxFunction(tool)


class ToolboxFunction(FunctionTool):  # type: ignore[misc, unused-ignore]
    """A tool that calls a Toolbox, which validates the arguments.

    A failed call raises ToolExecutionException. A waiting call requests approval: the request contains the pending
    action. When the run is resumed, the call has the outcome that the person's answer led to, or requests approval
    again. The `additional_properties` of the result's text contain the outcome as data.
    """

    def __init__(self, tool: FrameworkTool) -> None:
        super().__init__(
            name=tool.name, description=tool.description, func=self._refuse, input_model=dict(tool.parameters)
        )
        self.calls = tool

    async def _refuse(self) -> None:
        """Mark the tool as one that is implemented: `invoke` makes the calls."""
        raise NotImplementedError

    async def invoke(  # type: ignore[override, unused-ignore]
        self,
        *,
        arguments: Mapping[str, Any] | None = None,
        context: FunctionInvocationContext | None = None,
        tool_call_id: str | None = None,
        **_: Any,
    ) -> list[Content]:
        occurrence = (context.metadata if context else {}).get(_OCCURRENCE)
        session = context.session.session_id if context and context.session else None
        outcome = await self.calls.call(arguments, call_id=occurrence or tool_call_id, thread=session, context=context)
        match outcome:
            case Completed():
                return [Content.from_text(model_text(outcome), additional_properties=outcome_data(outcome))]
            case Failed():
                raise ToolExecutionException(model_text(outcome))
            case Paused():
                raise UserInputRequiredException([self._request(outcome, arguments, occurrence, tool_call_id)])

    def _request(
        self, paused: Paused, arguments: Mapping[str, Any] | None, occurrence: str | None, call_id: str | None
    ) -> Content:
        call = Content.from_function_call(call_id or "", self.name, arguments=dict(arguments or {}), id=occurrence)
        asked = {_PENDING: describe_pause(paused, self.calls, call_id)}
        return Content.from_function_approval_request(occurrence or call_id or "", call, additional_properties=asked)


class _Occurrences(FunctionMiddleware):  # type: ignore[misc, unused-ignore]
    """Middleware without effect: the framework passes the id of a call to a tool only if there is middleware."""

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await call_next()
