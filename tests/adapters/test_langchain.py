"""Tools of a table as tools of LangChain, in the real LangChain and LangGraph."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from tests.adapters.servers import described, small_server
from toolpost import Completed, Paused, Settings, Toolbox, ToolContext, tool
from toolpost.adapters import LangchainToolConverter, WorkflowTool, extract_tools, tool_table, tools_table

pytestmark = pytest.mark.programs
TEXT = {"type": "string"}
SERVER = small_server(
    described("greet", required=("name",), name=TEXT),
    described("fail"),
    described("wipe", read_only=False, disk=TEXT),
)
CLEAN: dict[str, Any] = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}


class Scripted(BaseChatModel):
    """A model that says its lines in order, and keeps what it was shown."""

    lines: list[AIMessage]
    seen: list[list[BaseMessage]] = []  # noqa: RUF012 - a field of pydantic, copied for each

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.seen.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.lines[len(self.seen) - 1])])


def calling(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    asked = [{"name": name, "args": args, "id": f"c{number}"} for number, (name, args) in enumerate(calls)]
    return AIMessage("", tool_calls=asked)


async def run_workflow(tool: WorkflowTool, parameters: dict[str, Any], context: ToolContext) -> Any:
    return {"cleaned": parameters["rows"]}


async def converter_in(box: Toolbox) -> LangchainToolConverter:
    workflows = tool_table([WorkflowTool("clean the table", "Clean it.", CLEAN, b"steps"), None])
    table = pa.concat_tables([tools_table(SERVER), workflows])
    return LangchainToolConverter(await extract_tools(table, box=box, servers=[SERVER], run_workflow=run_workflow))


@pytest.fixture
async def box() -> AsyncIterator[Toolbox]:
    # The server is not trusted, so that every call of its tools would ask: rules let the harmless ones run.
    rules = [{"tools": ["*.wipe"], "action": "ask"}, {"tools": ["*"], "action": "allow"}]
    async with Toolbox(settings=Settings.model_validate({"data_dir": None, "policy": rules})) as opened:
        yield opened


def agent(model: BaseChatModel, tools: Sequence[StructuredTool]) -> Any:
    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


@pytest.mark.req("KLC-01", "KLC-02")
async def test_a_tool_of_the_table_is_a_structured_tool_with_its_own_schema(box: Toolbox) -> None:
    converter = await converter_in(box)
    greet, *_, clean = converter.to_langchain_tools()

    assert isinstance(greet, StructuredTool)
    assert convert_to_openai_tool(greet)["function"] == {
        "name": "greet",
        "description": "About greet.",
        "parameters": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
    }
    assert 'greet got {"name": "Ann"}' in await greet.ainvoke({"name": "Ann"})
    assert (clean.name, await clean.ainvoke({"rows": 3})) == ("clean_the_table", '{"cleaned": 3}')
    assert converter.to_langchain_tool_from_mcp(converter.tools[0]).name == "greet"


@pytest.mark.req("KLC-04")
async def test_errors_and_wrong_arguments_are_messages(box: Toolbox) -> None:
    greet, fail, *_ = (await converter_in(box)).to_langchain_tools()

    failed = await fail.ainvoke({"name": "fail", "args": {}, "id": "c1", "type": "tool_call"})

    assert (failed.status, failed.tool_call_id) == ("error", "c1")
    assert "fail got {}" in failed.content
    assert "expected string, got integer 7" in await greet.ainvoke({"name": 7})


@pytest.mark.req("MISC-24", "TEST-04")
async def test_an_agent_of_langgraph_runs_a_mixed_table_end_to_end(box: Toolbox) -> None:
    converter = await converter_in(box)
    model = Scripted(
        lines=[
            calling(("greet", {"name": "Ann"}), ("clean_the_table", {"rows": 2})),
            calling(("fail", {}), ("clean_the_table", {"rows": "two"})),
            AIMessage("done"),
        ]
    )
    graph = agent(model, converter.to_langchain_tools())

    state = await graph.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "1"}})

    greeted, cleaned, failed, wrong = results(state["messages"])
    assert 'greet got {"name": "Ann"}' in greeted.text
    assert cleaned.text == '{"cleaned": 2}'
    assert (failed.status, wrong.status) == ("error", "error")
    assert state["messages"][-1].text == "done"
    assert [message.text for message in results(model.seen[-1])] == [m.text for m in results(state["messages"])]


async def test_a_pause_interrupts_the_graph_until_a_person_has_answered(box: Toolbox) -> None:
    converter = await converter_in(box)
    model = Scripted(lines=[calling(("wipe", {"disk": "sda"})), AIMessage("wiped")])
    graph = agent(model, converter.to_langchain_tools())
    thread = {"configurable": {"thread_id": "1"}}

    waiting = await graph.ainvoke({"messages": [HumanMessage("go")]}, thread)
    asked = waiting["__interrupt__"][0].value
    approving_itself = await graph.ainvoke(Command(resume={"decision": "approve"}), thread)
    await box.approve(asked["pending_id"], by="local:ann")
    state = await graph.ainvoke(Command(resume=True), thread)

    assert (asked["name"], asked["type"]) == ("wipe", "tool_approval")
    assert approving_itself["__interrupt__"][0].value["pending_id"] == asked["pending_id"]
    assert 'wipe got {"disk": "sda"}' in results(state["messages"])[0].text
    assert state["messages"][-1].text == "wiped"
    assert len(await box.pending.list(by="local:ann", status=None)) == 1


async def test_an_interrupt_names_all_questions_that_a_workflow_waits_with(box: Toolbox) -> None:
    @tool(side_effects="write", name="my.wipe")
    async def wipe(disk: str) -> str:
        """Wipe a disk."""
        return f"{disk} is empty"

    async def wipe_two(flow: WorkflowTool, parameters: dict[str, Any], context: ToolContext) -> Any:
        outcomes = [await context.call("my.wipe", {"disk": disk}) for disk in ("sda", "sdb")]
        if waiting := [one for one in outcomes if isinstance(one, Paused)]:
            context.wait_for(*waiting)
        return [one.content for one in outcomes if isinstance(one, Completed)]

    box.registry.register(wipe)
    table = tool_table([WorkflowTool("wipe all", "Wipe all.", {"type": "object"}, b"steps")])
    converter = LangchainToolConverter(await extract_tools(table, box=box, run_workflow=wipe_two))
    graph = agent(Scripted(lines=[calling(("wipe_all", {}))]), converter.to_langchain_tools())

    waiting = await graph.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "1"}})

    asked = waiting["__interrupt__"][0].value
    assert (asked["name"], asked["args"]) == ("wipe_all", {"disk": "sda"})
    assert [(one["tool_name"], one["arguments"]) for one in asked["others"]] == [("my.wipe", {"disk": "sdb"})]
    listed = await box.pending.list(by="local:ann")
    assert {one.id for one in listed} == {asked["pending_id"], asked["others"][0]["id"]}


async def test_a_call_that_was_denied_is_an_error_message(box: Toolbox) -> None:
    converter = await converter_in(box)
    model = Scripted(lines=[calling(("wipe", {"disk": "sda"})), AIMessage("not wiped")])
    graph = agent(model, converter.to_langchain_tools())
    thread = {"configurable": {"thread_id": "1"}}

    waiting = await graph.ainvoke({"messages": [HumanMessage("go")]}, thread)
    await box.deny(waiting["__interrupt__"][0].value["pending_id"], by="local:ann", reason="never")
    state = await graph.ainvoke(Command(resume=True), thread)

    (denied,) = results(state["messages"])
    assert (denied.status, "never" in denied.text) == ("error", True)


async def test_the_same_call_at_a_later_step_is_another_call(box: Toolbox) -> None:
    converter = await converter_in(box)
    model = Scripted(lines=[calling(("greet", {"name": "Ann"})), calling(("greet", {"name": "Bo"})), AIMessage("done")])
    graph = agent(model, converter.to_langchain_tools())

    state = await graph.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "1"}})

    assert ["Ann" in m.text for m in results(state["messages"])] == [True, False]
    assert "Bo" in results(state["messages"])[1].text


async def test_outside_of_a_graph_a_pause_is_a_message(box: Toolbox) -> None:
    *_, wipe, _ = (await converter_in(box)).to_langchain_tools()

    assert "This call waits for a person (approval)" in await wipe.ainvoke({"disk": "sda"})


async def test_outside_of_a_graph_a_repeated_call_that_waits_asks_once(box: Toolbox) -> None:
    *_, wipe, _ = (await converter_in(box)).to_langchain_tools()
    for _ in range(2):
        await wipe.ainvoke({"disk": "sda"})

    assert len(await box.pending.list(by="local:somebody")) == 1


async def test_names_in_messages_are_mapped_both_ways(box: Toolbox) -> None:
    converter = await converter_in(box)
    said = [
        HumanMessage("go"),
        calling(("clean_the_table", {"rows": 1}), ("unknown", {})),
        ToolMessage("ok", name="clean_the_table", tool_call_id="c0"),
    ]

    kept = converter.from_model(said)

    assert [call["name"] for call in getattr(kept[1], "tool_calls", [])] == ["clean the table", "unknown"]
    assert kept[2].name == "clean the table"
    assert converter.to_model(kept) == said


async def test_code_that_blocks_calls_a_tool_from_another_thread(box: Toolbox) -> None:
    greet, *_ = (await converter_in(box)).to_langchain_tools()

    assert "Ann" in await asyncio.to_thread(greet.invoke, {"name": "Ann"})
    with pytest.raises(RuntimeError, match="must not be blocked: use the async interface"):
        greet.invoke({"name": "Ann"})
