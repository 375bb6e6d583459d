"""Functions of Agno that call a Toolbox; a call that requires approval pauses the run for a confirmation."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import Completed, Outcome, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from agno.run.base import RunContext
    from agno.tools.function import Function
except ImportError as missing:
    raise ConfigError("tools for Agno need it; run: pip install agno") from missing

if TYPE_CHECKING:
    from agno.agent import Agent
    from agno.run.agent import RunOutput
    from agno.run.requirement import RunRequirement
    from agno.tools.function import FunctionCall

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[RunContext], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> list[Function]:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=...)` and `agent.arun`.

    Calls are for `user`, which may be a function of the run context. `only` selects tools by name, collection or
    pattern.
    """
    return [
        AgnoTool(tool).function()
        for tool in await FrameworkTools(source, user=user, only=only, provider=provider).read()
    ]


async def waiting(agent: Agent, run: RunOutput) -> list[dict[str, Any]]:
    """Return the pending actions that a paused run waits for, as data.

    The framework pauses before it invokes a tool: this makes the calls, which creates their pending actions.
    """
    made = [(requirement, tool, await tool.outcome_of(requirement, run)) for requirement, tool in _paused(agent, run)]
    return [
        describe_pause(outcome, tool.calls, _execution(requirement).tool_call_id)
        for requirement, tool, outcome in made
        if isinstance(outcome, Paused)
    ]


async def resumable(agent: Agent, run: RunOutput) -> list[RunRequirement] | None:
    """Return the requirements for `agent.acontinue_run`; None while a call still waits.

    The framework rejects each call that is not confirmed when it continues, so that a run continues after the last
    answer. Requirements of other tools are returned as they are. A confirmation does not approve a call: a person
    answers the pending action in the Toolbox, and a denied call fails.
    """
    paused = _paused(agent, run)
    if any([isinstance(await tool.outcome_of(requirement, run), Paused) for requirement, tool in paused]):
        return None
    for requirement, _ in paused:
        requirement.confirm()
    return list(run.requirements or [])


class AgnoTool:
    """The calls of a function of Agno, made in a Toolbox, which validates the arguments.

    If the policy requires approval for calls of the tool, each call pauses the run for a confirmation. A failed call is
    a failed tool execution. So is a call that waits although the run was not paused for it, for a sign-in or a question
    of the tool, or because the run was continued without `resumable`.
    """

    def __init__(self, tool: FrameworkTool) -> None:
        self.calls = tool
        self._call: ContextVar[FunctionCall] = ContextVar("call")

    def __deepcopy__(self, _: Any) -> AgnoTool:
        # Copies of an agent share the Toolbox.
        return self

    def function(self) -> Function:
        """Return the function for an agent."""
        return Function(
            name=self.calls.name,
            description=self.calls.description,
            parameters=self.calls.parameters,
            entrypoint=self.run,
            pre_hook=self.begin,
            skip_entrypoint_processing=True,
            requires_confirmation=self.calls.asks or None,
        )

    def begin(self, fc: FunctionCall) -> None:
        """Keep the call that is going to be made, because the function gets its arguments only."""
        self._call.set(fc)

    async def run(self, **_: Any) -> str:
        """Make a call and return its text; raise ToolError if it failed or waits."""
        call = self._call.get()
        context = call.function._run_context  # noqa: SLF001 - where the framework keeps it for a function
        outcome = await self._outcome(call.arguments, call.call_id, context)
        if isinstance(outcome, Completed):
            return model_text(outcome)
        raise ToolError(model_text(outcome), tool_name=self.calls.tool_name)

    async def outcome_of(self, requirement: RunRequirement, run: RunOutput) -> Outcome:
        """Return the outcome of a call that a run is paused for: it is made once, and repeating it returns the same."""
        context = RunContext(
            run_id=run.run_id,
            session_id=run.session_id,
            user_id=run.user_id,
            metadata=run.metadata,
            session_state=run.session_state,
        )
        execution = _execution(requirement)
        return await self._outcome(execution.tool_args, execution.tool_call_id, context)

    async def _outcome(self, arguments: Any, call_id: str | None, context: RunContext | None) -> Outcome:
        thread = None if context is None else context.session_id
        return await self.calls.call(arguments, call_id=call_id, thread=thread, context=context)


def _paused(agent: Agent, run: RunOutput) -> list[tuple[RunRequirement, AgnoTool]]:
    """Return the requirements of a paused run that are confirmations of calls to a Toolbox."""
    owners = {
        function.name: function.entrypoint.__self__
        for function in agent.tools or []
        if isinstance(function, Function) and isinstance(getattr(function.entrypoint, "__self__", None), AgnoTool)
    }
    return [
        (requirement, owners[requirement.tool_execution.tool_name])
        for requirement in run.requirements or []
        if requirement.needs_confirmation and requirement.tool_execution.tool_name in owners
    ]


def _execution(requirement: RunRequirement) -> Any:
    return requirement.tool_execution
