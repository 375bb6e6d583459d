"""Tools of a table as tools of LangChain; in a graph of LangGraph a pause is an interrupt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, cast

from pydantic import PrivateAttr

from toolpost.adapters.stored_tools import ToolType
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.runtime.model_messages import model_text

try:
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import StructuredTool, ToolException
except ImportError as missing:
    raise ConfigError("tools for LangChain need langchain-core; run: pip install 'toolpost[langchain]'") from missing

if TYPE_CHECKING:
    from toolpost.adapters.table_tools import TableTool

Message = TypeVar("Message", bound=BaseMessage)

_GRAPH = "__pregel_"  # how keys begin that LangGraph adds to the configuration of what runs in a graph


class LangchainToolConverter:
    """Convert the tools of a table to tools of LangChain, and names in messages both ways.

    Models see names that they accept; histories are kept with the names of the table.
    """

    def __init__(self, tools: Iterable[TableTool]) -> None:
        self.tools = list(tools)
        self._to_model = {tool.name: tool.model_name for tool in self.tools}
        self._from_model = {tool.model_name: tool.name for tool in self.tools}

    def to_langchain_tools(self) -> list[StructuredTool]:
        """Return all tools of the table."""
        return [self.to_langchain_tool(tool) for tool in self.tools]

    def to_langchain_tool(self, tool: TableTool) -> StructuredTool:
        """Return a tool of LangChain that calls a tool of the table through its Toolbox."""
        match tool.value.tool_type:
            case ToolType.MCP:
                return self.to_langchain_tool_from_mcp(tool)
            case ToolType.WORKFLOW | ToolType.HTTP | ToolType.FUNCTION:
                return TableStructuredTool.of(tool)
            case _ as unknown:
                assert_never(unknown)

    def to_langchain_tool_from_mcp(self, tool: TableTool) -> StructuredTool:
        """Return the tool of an MCP server; its parameter schema is what the model sees."""
        return TableStructuredTool.of(tool)

    def to_model(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the names that models accept."""
        return [_rename(message, self._to_model) for message in messages]

    def from_model(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with the names of the table."""
        return [_rename(message, self._from_model) for message in messages]


def _rename(message: Message, names: dict[str, str]) -> Message:
    """Return a message whose tool calls, or whose tool, have other names; unknown names are kept."""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{**call, "name": names.get(call["name"], call["name"])} for call in message.tool_calls]
        return cast("Message", message.model_copy(update={"tool_calls": calls}))
    if isinstance(message, ToolMessage) and message.name in names:
        return cast("Message", message.model_copy(update={"name": names[message.name]}))
    return message


class TableStructuredTool(StructuredTool):
    """A tool of LangChain that calls a Toolbox, which validates the arguments.

    A failed call is a message with the status `error`. A call that waits for a person interrupts the graph that it runs
    in, and resuming it asks for the outcome again; outside of a graph the message says that it waits.
    """

    _tool: TableTool = PrivateAttr()

    @classmethod
    def of(cls, tool: TableTool) -> TableStructuredTool:
        """Return the tool of LangChain for a tool of a table."""
        structured_tool = cls(
            name=tool.model_name,
            description=tool.value.description or tool.value.name,
            args_schema=object_schema(tool.value.parameter_schema),
            handle_tool_error=True,
        )
        structured_tool._tool = tool
        return structured_tool

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[tuple[()], dict[str, Any]]:
        # The arguments stay together: the router validates them, and their names may be any.
        return (), {"arguments": tool_input, "tool_call_id": tool_call_id}

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        # The base class treats a tool without a coroutine as a blocking one.
        return await super(StructuredTool, self).ainvoke(input, config, **kwargs)

    async def _arun(self, *, arguments: Any, tool_call_id: str | None, config: RunnableConfig) -> str:  # type: ignore[override]
        placed = config.get("configurable") or {}
        in_graph = any(key.startswith(_GRAPH) for key in placed)
        outcome = await self._call(arguments, _key(placed, tool_call_id) if in_graph else None)
        if isinstance(outcome, Paused) and in_graph:
            outcome = await self._interrupt(outcome, arguments, _key(placed, tool_call_id))
        return _message(outcome)

    def _run(self, *, arguments: Any, tool_call_id: str | None, config: RunnableConfig) -> str:  # type: ignore[override]
        loop = self._tool.executor.loop
        if _running_loop() is loop:
            raise RuntimeError(f"{self.name} runs on this event loop, which may not be blocked: use ainvoke")
        work = self._arun(arguments=arguments, tool_call_id=tool_call_id, config=config)
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    async def _call(self, arguments: Any, key: str | None) -> Outcome:
        return await self._tool.call(arguments, idempotency_key=key)

    async def _interrupt(self, paused: Paused, arguments: Any, key: str | None) -> Outcome:
        """Interrupt the graph until the call does not wait any more.

        What the graph is resumed with decides nothing: an answer is given to the Toolbox, by a person. The repeated
        call has the same key, by which it is the one that waited.
        """
        from langgraph.types import interrupt  # noqa: PLC0415 - there wherever a graph runs

        outcome: Outcome = paused
        while isinstance(outcome, Paused):
            question, others = outcome.question.to_dict(), [one.to_dict() for one in outcome.questions[1:]]
            interrupt({"pending_id": outcome.pending_id, "tool": self._tool.name, **question, "others": others})
            outcome = await self._call(arguments, key)
        return outcome


def object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter schema as LangChain takes it: of an object, with properties."""
    return {"properties": {}, **schema, "type": "object"}


def _key(placed: dict[str, Any], tool_call_id: str | None) -> str | None:
    """Return the key of a call in a graph: the same when the graph is resumed, another at every other step."""
    if tool_call_id is None:
        return None
    return json.dumps([placed.get("thread_id"), placed.get("checkpoint_ns"), tool_call_id])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _message(outcome: Outcome) -> str:
    text = model_text(outcome)
    match outcome:
        case Failed():
            raise ToolException(text)
        case Completed() | Paused():
            return text
