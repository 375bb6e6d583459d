"""Tools of Strands Agents that call a Toolbox; a waiting call interrupts the agent."""

# The checkers run without the framework, which is tested in a separate environment.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from toolpost.adapters.framework_tools import ANY_PROVIDER, FrameworkTool, FrameworkTools, describe_pause
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Failed, Outcome, Paused
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from strands.interrupt import Interrupt
    from strands.types._events import ToolInterruptEvent
    from strands.types.tools import AgentTool
except ImportError as missing:
    raise ConfigError("tools for Strands Agents need it; run: pip install strands-agents") from missing

if TYPE_CHECKING:
    from strands.agent import AgentResult
    from strands.types.interrupt import InterruptResponseContent
    from strands.types.tools import ToolResult, ToolSpec, ToolUse

    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

_INTERRUPT = "toolpost"


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[dict[str, Any]], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
    thread: Callable[[dict[str, Any]], str] | None = None,
) -> list[StrandsTool]:
    """Return the tools of a Toolbox, or of a table, for `Agent(tools=...)`.

    Calls are for `user`, which may be a function of the invocation state. `only` selects tools by name, collection or
    pattern. A call is identified by the call id of the model; `thread` returns the id of a conversation from the
    invocation state, for models whose call ids are unique in a conversation only.
    """
    listing = FrameworkTools(source, user=user, only=only, provider=provider)
    return [StrandsTool(tool, thread) for tool in await listing.read()]


def responses(result: AgentResult) -> list[InterruptResponseContent]:
    """Return the responses that resume an agent which waiting calls have interrupted.

    A response does not approve a call: a person answers the pending action in the Toolbox. Calls that still wait
    interrupt the agent again. Answer interrupts of other tools yourself.
    """
    return [
        {"interruptResponse": {"interruptId": interrupt.id, "response": True}}
        for interrupt in result.interrupts or []
        if interrupt.name == _INTERRUPT
    ]


class StrandsTool(AgentTool):  # type: ignore[misc, unused-ignore]
    """A tool of Strands that calls a Toolbox, which validates the arguments.

    The result of a failed call has the status `error`. A waiting call interrupts the agent: the reason of the interrupt
    is the pending action. When the agent is resumed, the call has the outcome that the person's answer led to, or waits
    again. Progress of a call is streamed.
    """

    def __init__(self, tool: FrameworkTool, thread: Callable[[dict[str, Any]], str] | None = None) -> None:
        super().__init__()
        self._tool = tool
        self._thread = thread

    @property
    def tool_name(self) -> str:
        return self._tool.name

    @property
    def tool_type(self) -> str:
        return "toolpost"

    @property
    def tool_spec(self) -> ToolSpec:
        return {
            "name": self._tool.name,
            "description": self._tool.description,
            "inputSchema": {"json": self._tool.parameters},
        }

    async def stream(self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any) -> AsyncGenerator[Any, None]:
        call_id = tool_use["toolUseId"]
        progress = _Progress()
        thread = None if self._thread is None else self._thread(invocation_state)
        calling = asyncio.ensure_future(
            self._tool.call(
                tool_use["input"], call_id=call_id, thread=thread, context=invocation_state, receive=progress.receive
            )
        )
        try:
            async for facts in progress.until(calling):
                yield facts
            outcome = await calling
        finally:
            calling.cancel()
        if not isinstance(outcome, Paused):
            yield _result(outcome, call_id)
            return
        asked = describe_pause(outcome, self._tool, call_id)
        yield ToolInterruptEvent(
            tool_use, [Interrupt(id=f"{_INTERRUPT}:{outcome.pending_id}", name=_INTERRUPT, reason=asked)]
        )


def _result(outcome: Outcome, call_id: str) -> ToolResult:
    status = "error" if isinstance(outcome, Failed) else "success"
    return {"toolUseId": call_id, "status": status, "content": [{"text": model_text(outcome)}]}


class _Progress:
    """Progress of one call, received in any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def receive(self, facts: dict[str, Any] | None) -> None:
        self._loop.call_soon_threadsafe(self._received.put_nowait, facts)

    async def until(self, calling: asyncio.Future[Outcome]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the progress of a call until it ends."""
        calling.add_done_callback(lambda _: self.receive(None))
        while (facts := await self._received.get()) is not None:
            yield facts
