"""Tools of CrewAI that call a Toolbox; a waiting call keeps the crew until a person has answered."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from toolpost.adapters.framework_tools import FrameworkTool, FrameworkTools
from toolpost.adapters.waiting_calls import WAIT_S, BlockingCalls, failure_text
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Outcome
from toolpost.contracts.spec import JsonSchema
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from crewai.tools import BaseTool
    from crewai.tools.tool_failure import ToolFailure
except ImportError as missing:
    raise ConfigError("tools for CrewAI need it; run: pip install crewai") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_STRICT: Provider = "openai-strict"  # the framework asks all models for strict calls, with all properties


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = _STRICT,
    wait_s: float = WAIT_S,
) -> list[CrewAITool]:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=...)`.

    Run the agent or its crew by `kickoff_async`, or in a thread: the event loop of the Toolbox must not be blocked.
    Calls are for `user`, which may be a function such as `get` of a context variable. `only` selects tools by name,
    collection or pattern. A call waits for a person for at most `wait_s`, and then fails; the next call with the same
    arguments continues it.
    """
    given = (lambda _: user()) if callable(user) else user
    listed, calls = await FrameworkTools(source, user=given, only=only, provider=provider).read(), BlockingCalls(wait_s)
    return [CrewAITool.of(tool, calls) for tool in listed]


class CrewAITool(BaseTool):  # type: ignore[misc, unused-ignore]
    """A tool of CrewAI that calls a Toolbox, which validates the arguments.

    A failed call, and one that still waits after its time, returns a ToolFailure. The framework caches no results of
    these tools.
    """

    _tool: FrameworkTool = PrivateAttr()
    _calls: BlockingCalls = PrivateAttr()

    @classmethod
    def of(cls, tool: FrameworkTool, calls: BlockingCalls) -> CrewAITool:
        """Return the tool of CrewAI that makes the calls of a tool."""
        # The framework reads the schema of a class for each tool. It has no fields: nothing is validated twice.
        arguments = type("Arguments", (CrewArguments,), {"shown": tool.parameters, "__module__": __name__})
        made = cls(
            name=tool.name, description=tool.description or tool.name, args_schema=arguments, cache_function=_never
        )
        made._tool, made._calls = tool, calls
        return made

    def _run(self, **arguments: Any) -> Any:
        return _result(self._calls.block(self._tool, arguments))

    async def _arun(self, **arguments: Any) -> Any:
        return _result(await self._calls.call(self._tool, arguments))


class CrewArguments(BaseModel):
    """Arguments of any names, with the schema that models see."""

    model_config = ConfigDict(extra="allow")
    shown: ClassVar[JsonSchema] = {}

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        return copy.deepcopy(dict(cls.shown))


def _never(*_: Any) -> bool:
    """Return that a result is not cached: a repeated call must have its effect."""
    return False


def _result(outcome: Outcome) -> Any:
    return model_text(outcome) if isinstance(outcome, Completed) else ToolFailure(message=failure_text(outcome))
