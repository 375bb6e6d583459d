"""Steps of agents in the environment of their framework: prints the CPU time of each as a JSON document.

`bench.adapters` runs this with the interpreter of each framework that `make test-frameworks` has installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from statistics import median
from typing import Any

from bench.core.harness import undisturbed
from tests.adapters.frameworks.driver import Call
from toolpost import Settings, Toolbox, tool

Step = Callable[[], Awaitable[Any]]

CALLS = 100
MADE = [Call("call_1", "add", {"a": 1, "b": 2})]


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def own_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One number.
        b: The other.
    """
    return a + b


async def in_turn(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """The median CPU time of each step, in microseconds."""
    took: dict[str, list[float]] = {name: [] for name in steps}
    with undisturbed():
        for _ in range(rounds + 1):  # the first warms up
            for name, step in steps.items():
                began = time.process_time()
                for _ in range(CALLS):
                    await step()
                took[name].append(1e6 * (time.process_time() - began) / CALLS)
    return {name: median(times[1:]) for name, times in took.items()}


def scripted(framework: str) -> Any:
    """The scripted model of the tests of a framework."""
    return import_module(f"tests.adapters.frameworks.trial_{framework}").Scripted


async def strands(box: Toolbox) -> tuple[Step, Step]:
    from strands import Agent
    from strands import tool as own

    from toolpost.adapters.strands import tools

    own_add.__name__ = "add"

    def step(listed: list[Any]) -> Step:
        agent = Agent(model=scripted("strands")(MADE), tools=listed, callback_handler=None)

        async def run() -> None:
            agent.messages.clear()
            assert str(await agent.invoke_async("go")).strip() == "done"

        return run

    return step([own(own_add)]), step(list(await tools(box)))


async def agno(box: Toolbox) -> tuple[Step, Step]:
    from agno.agent import Agent
    from agno.tools.function import Function

    from toolpost.adapters.agno import tools

    def step(listed: list[Any]) -> Step:
        agent = Agent(model=scripted("agno")(MADE), tools=listed, telemetry=False)

        async def run() -> None:
            assert (await agent.arun("go")).content == "done"

        return run

    return step([Function.from_callable(own_add, name="add")]), step(list(await tools(box)))


async def haystack(box: Toolbox) -> tuple[Step, Step]:
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool

    from toolpost.adapters.haystack import hooks, tools

    def step(listed: list[Any], hooked: Any) -> Step:
        agent = Agent(chat_generator=scripted("haystack")(MADE), tools=listed, hooks=hooked)

        async def run() -> None:
            result = await agent.run_async(messages=[ChatMessage.from_user("go")])
            assert result["last_message"].text == "done"

        return run

    ours = await tools(box)
    own = Tool(name="add", description="Add.", parameters=ours[0].parameters, async_function=own_add)
    return step([own], None), step(list(ours), hooks(ours))


async def semantic_kernel(box: Toolbox) -> tuple[Step, Step]:
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.prompt_execution_settings import PromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import KernelPlugin, kernel_function

    from toolpost.adapters.semantic_kernel import plugin, wait

    def step(plugged: Any, waits: Any = None) -> Step:
        kernel, model = Kernel(), scripted("semantic_kernel")(ai_model_id="m", calls=MADE)
        kernel.add_plugin(plugged)
        if waits is not None:
            kernel.add_filter("auto_function_invocation", waits)

        async def run() -> None:
            history = ChatHistory()
            history.add_user_message("go")
            settings = PromptExecutionSettings(function_choice_behavior=FunctionChoiceBehavior.Auto())
            (reply,) = await model.get_chat_message_contents(history, settings, kernel=kernel)
            assert str(reply) == "done"

        return run

    own = KernelPlugin(name="tools", functions={"add": kernel_function(own_add, name="add")})
    return step(own), step(await plugin(box), wait)


async def penguiflow(box: Toolbox) -> tuple[Step, Step]:
    from penguiflow.catalog import NodeSpec
    from penguiflow.node import Node
    from penguiflow.planner import ReactPlanner

    from toolpost.adapters.penguiflow import ToolText, node_specs

    def step(catalog: list[Any]) -> Step:
        async def run() -> None:
            planner = ReactPlanner(llm_client=scripted("penguiflow")(MADE), catalog=catalog)
            assert (await planner.run("go")).payload["raw_answer"] == "done"

        return run

    async def own(args: Any, _: Any) -> ToolText:
        return ToolText(result=str(await own_add(**args.model_dump())))

    ours = await node_specs(box)
    return step([NodeSpec(Node(own, name="add"), "add", "Add.", ours[0].args_model, ToolText)]), step(ours)


async def openai_agents(box: Toolbox) -> tuple[Step, Step]:
    from agents import Agent, RunConfig, Runner, function_tool

    from toolpost.adapters.openai_agents import tools

    def step(listed: list[Any]) -> Step:
        agent = Agent[Any](name="tester", model=scripted("openai_agents")(MADE), tools=listed)

        async def run() -> None:
            done = await Runner.run(agent, "go", run_config=RunConfig(tracing_disabled=True))
            assert done.final_output == "done"

        return run

    return step([function_tool(own_add, name_override="add")]), step(list(await tools(box)))


async def google_adk(box: Toolbox) -> tuple[Step, Step]:
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    from toolpost.adapters.google_adk import toolset

    own_add.__name__ = "add"
    made = [types.FunctionCall(id="call_1", name="add", args={"a": 1, "b": 2})]

    def step(listed: list[Any]) -> Step:
        agent = LlmAgent(name="tester", model=scripted("google_adk")(model="m", calls=made), tools=listed)
        runner = InMemoryRunner(agent, app_name="steps")

        async def run() -> None:
            session = await runner.session_service.create_session(app_name="steps", user_id="ann")
            message = types.Content(role="user", parts=[types.Part(text="go")])
            events = [one async for one in runner.run_async(user_id="ann", session_id=session.id, new_message=message)]
            assert events[-1].content.parts[0].text == "done"

        return run

    return step([own_add]), step([toolset(box)])


async def agent_framework(box: Toolbox) -> tuple[Step, Step]:
    from agent_framework import Agent
    from agent_framework import tool as own

    from toolpost.adapters.agent_framework import provider

    def step(**listed: Any) -> Step:
        agent = Agent(scripted("agent_framework")(MADE), **listed)

        async def run() -> None:
            assert (await agent.run("go", session=agent.create_session())).text == "done"

        return run

    return step(tools=[own(own_add, name="add")]), step(context_providers=[provider(box)])


async def llama_index(box: Toolbox) -> tuple[Step, Step]:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.tools import FunctionTool

    from toolpost.adapters.llama_index import tools

    def step(listed: list[Any]) -> Step:
        agent = FunctionAgent(tools=listed, llm=scripted("llama_index")(calls=MADE), streaming=False)

        async def run() -> None:
            assert str(await agent.run(user_msg="go", memory=ChatMemoryBuffer.from_defaults())) == "done"

        return run

    return step([FunctionTool.from_defaults(async_fn=own_add, name="add")]), step(list(await tools(box)))


async def autogen(box: Toolbox) -> tuple[Step, Step]:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import CancellationToken
    from autogen_core.tools import FunctionTool

    from toolpost.adapters.autogen import workbench

    def step(**listed: Any) -> Step:
        agent = AssistantAgent("tester", scripted("autogen")(MADE), reflect_on_tool_use=True, **listed)

        async def run() -> None:
            await agent.on_reset(CancellationToken())
            assert (await agent.run(task="go")).messages[-1].to_text() == "done"

        return run

    return step(tools=[FunctionTool(own_add, "Add.", name="add")]), step(workbench=workbench(box))


async def dspy(box: Toolbox) -> tuple[Step, Step]:
    import dspy as framework

    from toolpost.adapters.dspy import tools

    def step(listed: list[Any]) -> Step:
        react = framework.ReAct("question -> answer", tools=listed, max_iters=3)

        async def run() -> None:
            with framework.context(lm=import_module("tests.adapters.frameworks.trial_dspy").scripted(MADE[0])):
                assert (await react.acall(question="go")).answer == "done"

        return run

    return step([framework.Tool(own_add, name="add")]), step(list(await tools(box)))


async def crewai(box: Toolbox) -> tuple[Step, Step]:
    model = scripted("crewai")  # which switches the telemetry off
    from crewai import Agent
    from crewai.tools import tool as own

    from toolpost.adapters.crewai import tools

    def step(listed: list[Any]) -> Step:
        async def run() -> None:
            llm = model(model="scripted", calls=MADE)
            agent = Agent(role="tester", goal="test", backstory="none", llm=llm, tools=listed)
            assert (await asyncio.to_thread(agent.kickoff, "go")).raw == "done"

        return run

    return step([own("add")(_add)]), step(list(await tools(box)))


async def smolagents(box: Toolbox) -> tuple[Step, Step]:
    from smolagents import LogLevel, ToolCallingAgent
    from smolagents import tool as own

    from toolpost.adapters.smolagents import tools

    def step(listed: list[Any]) -> Step:
        async def run() -> None:
            agent = ToolCallingAgent(listed, scripted("smolagents")(MADE), verbosity_level=LogLevel.OFF)
            assert str(await asyncio.to_thread(agent.run, "go")) == "done"

        return run

    return step([own(_add)]), step(list(await tools(box)))


STEPS: dict[str, tuple[str, Callable[[Toolbox], Awaitable[tuple[Step, Step]]]]] = {
    "openai_agents": ("OpenAI Agents", openai_agents),
    "google_adk": ("Google ADK", google_adk),
    "strands": ("Strands", strands),
    "agno": ("Agno", agno),
    "haystack": ("Haystack", haystack),
    "semantic_kernel": ("Semantic Kernel", semantic_kernel),
    "penguiflow": ("Penguiflow", penguiflow),
    "agent_framework": ("agent-framework", agent_framework),
    "llama_index": ("LlamaIndex", llama_index),
    "autogen": ("AutoGen", autogen),
    "dspy": ("DSPy", dspy),
    "crewai": ("CrewAI", crewai),
    "smolagents": ("smolagents", smolagents),
}


async def main(framework: str, rounds: int) -> None:
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        own, ours = await STEPS[framework][1](box)
        steps: dict[str, Step] = {"own": own, "box": lambda: box.call("add", {"a": 1, "b": 2}), "adapter": ours}
        print(json.dumps(await in_turn(steps, rounds)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
