"""Tools of LangChain that call a Toolbox; in a graph of LangGraph, a waiting call is an interrupt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import PrivateAttr

from toolpost.adapters.framework_tools import (
    ANY_PROVIDER,
    FrameworkTool,
    FrameworkTools,
    Receive,
    block_in_loop,
    describe_pause,
)
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.runtime.model_messages import model_text
from toolpost.schema.provider_dialects import Provider

try:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool, ToolException
except ImportError as missing:
    raise ConfigError("tools for LangChain need langchain-core; run: pip install 'toolpost[langchain]'") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool
    from toolpost.toolbox.box import Toolbox

Message = TypeVar("Message", bound=BaseMessage)

_GRAPH = "__pregel_"  # the prefix of keys that LangGraph adds to the configuration of code that runs in a graph


async def tools(
    source: Toolbox | Iterable[TableTool],
    *,
    user: str | Callable[[RunnableConfig], str] | None = None,
    only: Iterable[str] | None = None,
    provider: Provider = ANY_PROVIDER,
) -> list[StructuredTool]:
    """Return the tools of a Toolbox, or of a table, for `create_agent`, `ToolNode` or `bind_tools`.

    Calls are for `user`, which may be a function of the configuration of a run. `only` selects tools by name,
    collection or pattern. Schemas are compiled for the `provider` of the model, or else by LangChain.
    """
    return [
        LangchainTool.of(tool) for tool in await FrameworkTools(source, user=user, only=only, provider=provider).read()
    ]


class LangchainTool(StructuredTool):
    """A tool of LangChain that calls a Toolbox, which validates the arguments.

    A failed call is a message with the status `error`; the `artifact` of a message is the outcome as data. A waiting
    call interrupts the graph that it runs in, and resuming the graph requests the outcome again. Outside of a graph,
    the message says that the call waits.
    """

    _tool: FrameworkTool = PrivateAttr()

    @classmethod
    def of(cls, tool: FrameworkTool) -> LangchainTool:
        """Return the tool of LangChain that makes the calls of a tool."""
        made = cls(
            name=tool.name,
            description=tool.description or tool.name,
            args_schema=tool.parameters,
            handle_tool_error=True,
            response_format="content_and_artifact",
        )
        made._tool = tool
        return made

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[()], dict[str, Any]]:
        # The arguments stay together: the Toolbox validates them, and they may have any names.
        return (), {"arguments": tool_input, "tool_call_id": tool_call_id}

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        # The base class treats a tool without a coroutine as a blocking one.
        return await super(StructuredTool, self).ainvoke(input, config, **kwargs)

    async def _arun(  # type: ignore[override]
        self, *, arguments: Any, tool_call_id: str | None, config: RunnableConfig
    ) -> tuple[str, dict[str, Any]]:
        placed = config.get("configurable") or {}
        in_graph = any(key.startswith(_GRAPH) for key in placed)
        if not in_graph:
            return _message(await self._tool.call(arguments, call_id=None, context=config))
        thread = json.dumps([placed.get("thread_id"), placed.get("checkpoint_ns")])
        receive = _stream_writer()
        while True:
            outcome = await self._tool.call(
                arguments, call_id=tool_call_id, thread=thread, context=config, receive=receive
            )
            if not isinstance(outcome, Paused):
                return _message(outcome)
            self._interrupt(outcome, tool_call_id)

    def _run(  # type: ignore[override]
        self, *, arguments: Any, tool_call_id: str | None, config: RunnableConfig
    ) -> tuple[str, dict[str, Any]]:
        work = self._arun(arguments=arguments, tool_call_id=tool_call_id, config=config)
        return block_in_loop(self._tool.box, work)

    def _interrupt(self, paused: Paused, tool_call_id: str | None) -> None:
        """Interrupt the graph; return when it is resumed.

        The value that resumes the graph does not approve the call: a person answers the pending action in the Toolbox.
        """
        from langgraph.types import interrupt  # noqa: PLC0415 - installed wherever a graph runs

        asked = describe_pause(paused, self._tool, tool_call_id)
        interrupt({**asked, "args": asked["arguments"], "description": asked["prompt"]})


def _stream_writer() -> Receive:
    """Return a function that writes progress to the graph's stream `custom`, from any thread."""
    from langgraph.config import get_stream_writer  # noqa: PLC0415 - installed wherever a graph runs

    writer, loop = get_stream_writer(), asyncio.get_running_loop()
    return lambda facts: cast("None", loop.call_soon_threadsafe(writer, facts))


def _message(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    text = model_text(outcome)
    match outcome:
        case Failed():
            raise ToolException(text)
        case Completed() | Paused():
            return text, outcome_to_dict(outcome)


class LangchainToolConverter:
    """The tools of a table for LangChain, and names in messages in both directions.

    Models see names that they accept; histories are stored with the names of the table.
    """

    def __init__(self, tools: Iterable[TableTool]) -> None:
        self.tools = list(tools)
        self._to_model = {tool.name: tool.model_name for tool in self.tools}
        self._from_model = {tool.model_name: tool.name for tool in self.tools}

    def to_langchain_tools(self) -> list[StructuredTool]:
        """Return all tools of the table, as `tools` does."""
        return [self.to_langchain_tool(tool) for tool in self.tools]

    def to_langchain_tool(self, tool: TableTool) -> StructuredTool:
        """Return a tool of LangChain that calls a tool of the table, of any type."""
        (shown,) = FrameworkTools([tool]).rows([tool])
        return LangchainTool.of(shown)

    to_langchain_tool_from_mcp = to_langchain_tool

    def to_model(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the names that models accept."""
        return [_rename(message, self._to_model) for message in messages]

    def from_model(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the names of the table."""
        return [_rename(message, self._from_model) for message in messages]


def _rename(message: Message, names: dict[str, str]) -> Message:
    """Return a message with other names of its tool calls, or of its tool; unknown names stay."""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{**call, "name": names.get(call["name"], call["name"])} for call in message.tool_calls]
        return cast("Message", message.model_copy(update={"tool_calls": calls}))
    if isinstance(message, ToolMessage) and message.name in names:
        return cast("Message", message.model_copy(update={"name": names[message.name]}))
    return message
