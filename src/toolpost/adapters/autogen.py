"""A workbench of AutoGen that calls a Toolbox; a waiting call keeps the run until a person has answered."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools
from toolpost.adapters.waiting_calls import WAIT_S, BlockingCalls, failure_text
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from autogen_core.tools import TextResultContent, ToolResult, ToolSchema, Workbench
except ImportError as missing:
    raise ConfigError("a workbench for AutoGen needs it; run: pip install autogen-agentchat") from missing

if TYPE_CHECKING:
    from autogen_core import CancellationToken

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox


def workbench(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
    thread: str | None = None,
    wait_s: float = WAIT_S,
) -> ToolboxWorkbench:
    """Return the tools of a Toolbox, or of a table, for `AssistantAgent(workbench=...)`.

    Every step of an agent has the tools of the catalog at that time. Calls are for `user`, which may be a function such
    as `get` of a context variable. `only` selects tools by name, collection or pattern. A call is identified by the
    call id of the model; `thread` is the id of a conversation, for models whose call ids are unique in a conversation
    only. A call waits for a person for at most `wait_s`, and then fails; the next call with the same arguments
    continues it.
    """
    given = (lambda _: user()) if callable(user) else user
    return ToolboxWorkbench(
        FrameworkTools(source, user=given, only=only, provider=provider), BlockingCalls(wait_s, thread)
    )


class ToolboxWorkbench(Workbench):  # type: ignore[misc, unused-ignore]
    """The tools of a Toolbox, which validates the arguments. The result of a failed call is an error."""

    def __init__(self, listing: FrameworkTools, calls: BlockingCalls) -> None:
        self._listing = listing
        self._calls = calls
        self._tools: dict[str, FrameworkTool] = {}

    async def list_tools(self) -> list[ToolSchema]:
        self._tools = {tool.name: tool for tool in await self._listing.read()}
        return [
            ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters)  # type: ignore[typeddict-item, unused-ignore]
            for tool in self._tools.values()
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        if name not in self._tools:
            await self.list_tools()
        tool = self._tools.get(name)
        if tool is None:
            return _result(name, f"no tool {name!r} is in the workbench", failed=True)
        calling = asyncio.ensure_future(self._calls.call(tool, arguments, call_id=call_id))
        if cancellation_token is not None:
            cancellation_token.link_future(calling)
        outcome = await calling
        if isinstance(outcome, Completed):
            return _result(name, model_text(outcome), failed=False)
        return _result(name, failure_text(outcome), failed=True)

    async def start(self) -> None:
        """Do nothing: the owner of the Toolbox opens it."""

    async def stop(self) -> None:
        """Leave the Toolbox open: its owner closes it."""

    async def reset(self) -> None:
        """Do nothing: the workbench has no state of its own."""

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the Toolbox stores its calls."""


def _result(name: str, text: str, *, failed: bool) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=failed)
