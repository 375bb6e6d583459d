"""The adapter for LangChain, in a graph of LangGraph."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters import langchain

THREADS = itertools.count()


class Scripted(BaseChatModel):
    """A model that makes some calls, and then says that it is done."""

    calls: list[dict[str, Any]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answered = any(isinstance(message, ToolMessage) for message in messages)
        said = AIMessage("done") if answered else AIMessage("", tool_calls=self.calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


class LangGraph:
    has_data = True

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        tools = await langchain.tools(box, user=user)
        made = [{"name": call.name, "args": call.arguments, "id": call.id, "type": "tool_call"} for call in calls]
        graph = agent(Scripted(calls=made), ToolNode(tools))
        thread = {"configurable": {"thread_id": str(next(THREADS))}}
        return _read(await graph.ainvoke({"messages": [HumanMessage("go")]}, thread), (graph, thread))

    async def resume(self, run: Run) -> Run:
        graph, thread = run.state
        return _read(await graph.ainvoke(Command(resume=True), thread), run.state)


def agent(model: BaseChatModel, node: ToolNode) -> Any:
    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def _read(state: dict[str, Any], whole: Any) -> Run:
    messages = state["messages"]
    results = {
        one.tool_call_id: Result(one.text, one.status == "error", one.artifact)
        for one in messages
        if isinstance(one, ToolMessage)
    }
    waiting = [one.value["pending_id"] for one in state.get("__interrupt__", [])]
    return Run(results, waiting, None if waiting else messages[-1].text, whole)


@pytest.mark.req("FRAME-01", "FRAME-02", "FRAME-03")
class TestLangGraph(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return LangGraph()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        add = next(one for one in await langchain.tools(box) if one.name == "add")  # no message may have such a call

        assert "the arguments are not JSON" in await add.ainvoke('{"a": 2, ')
        assert shelf.added == []

    async def test_progress_is_in_the_custom_stream_of_the_graph(self, box: Toolbox) -> None:
        made = [{"name": "page", "args": {}, "id": "page_2", "type": "tool_call"}]
        graph = agent(Scripted(calls=made), ToolNode(await langchain.tools(box)))
        thread = {"configurable": {"thread_id": str(next(THREADS))}}

        stream = graph.astream({"messages": [HumanMessage("go")]}, thread, stream_mode="custom")
        received = [(one["tool"], one["text"], one["fraction"]) async for one in stream]

        assert received == [("page", "half of it", 0.5)]
