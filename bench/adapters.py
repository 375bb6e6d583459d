"""Adapters of agent frameworks: a step of an agent with a tool of a Toolbox, and tools compiled for model providers."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fastmcp import Client, FastMCP
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part, measured, tell
from bench.framework_steps import STEPS, Step, in_turn
from bench.openapi_conversion import BASE_URL
from tests.parts import ROOT, python_of_framework, python_of_openai_agents
from tests.specs import no_network, octokit, real_documents
from toolpost import Settings, Toolbox, tool
from toolpost.adapters import fastmcp, langchain
from toolpost.adapters.pydantic_ai import toolset
from toolpost.cli.output import Output
from toolpost.cli.stdout_guard import guard_stdout
from toolpost.contracts.spec import ToolDefinition
from toolpost.schema.provider_dialects import DIALECTS, ProviderDialect, violations
from toolpost.schema.provider_schemas import ToolCompiler
from toolpost.sources.openapi.loader import read_api
from toolpost.sources.openapi.model_view import fit_to_budget
from toolpost.sources.openapi.spec import tool_spec

CALL_LIMIT = 1.25
COLD_MS, CACHED_MS, PASSING = 500.0, 5.0, 0.99
COMPILED = 5000
ROUNDS, QUICK_ROUNDS = 9, 3
_IDS = itertools.count()

CALL_COLUMNS = (
    Column("name", "framework"),
    Column("own_us", "step with its own tool, µs", 1),
    Column("box_us", "box.call, µs", 1),
    Column("adapter_us", "step with the adapter, µs", 1),
    Column("ratio", "of the sum", 2),
)
PROVIDER_COLUMNS = (
    Column("name", "provider"),
    Column("before", "accepted as they are", 3),
    Column("passing", "accepted when compiled", 3),
    Column("cold_ms", "5,000 tools, ms", 0),
    Column("cached_ms", "again, ms", 1),
)


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def measure_calls(tick: Tick, *, rounds: int = ROUNDS, elsewhere: Sequence[str] = ()) -> Figure:
    """Run a step of an agent, or a request, with the framework's own tool and with ours in turn; compare the medians.

    `elsewhere` are frameworks with environments of their own.
    """
    rows = asyncio.run(_call_rows(tick, rounds))
    for framework in elsewhere:
        rows.append(_row(STEPS[framework][0], _elsewhere(framework, rounds)))
        tick(framework)
    return Figure(
        key="adapter_calls",
        title="A step of an agent with one call",
        columns=CALL_COLUMNS,
        rows=rows,
        targets=[
            Target(str(row["name"]), float(row["ratio"]), "at most", CALL_LIMIT, "of own step and box.call")
            for row in rows
        ],
        notes=("CPU time: medians of rounds that take turns. The store is in memory.",),
    )


async def _call_rows(tick: Tick, rounds: int) -> list[Row]:
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        ours = await langchain.tools(box)
        own = StructuredTool.from_function(coroutine=_add, name="add")
        frameworks: dict[str, tuple[Step, Step]] = {
            "LangGraph": (_graph(own), _graph(ours[0])),
            "Pydantic AI": (_agent(FunctionToolset([_named()])), _agent(toolset(box))),
            "FastMCP": (_request(_server()), _request(FastMCP[None]("ours", providers=[fastmcp.provider(box)]))),
        }
        rows: list[Row] = []
        for name, (own_step, our_step) in frameworks.items():
            steps: dict[str, Step] = {
                "own": own_step,
                "box": lambda: box.call("add", {"a": 1, "b": 2}),
                "adapter": our_step,
            }
            rows.append(_row(name, await in_turn(steps, rounds)))
            tick(name)
        return rows


def _elsewhere(framework: str, rounds: int) -> dict[str, float]:
    """Measure the steps of a framework in its own environment."""
    python = python_of_openai_agents() if framework == "openai_agents" else python_of_framework(framework)
    done = subprocess.run(
        [str(python), "-m", "bench.framework_steps", framework, str(rounds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def installed_frameworks() -> list[str]:
    """The frameworks with environments of their own that are installed: all by `make test-frameworks`."""
    return [name for name in STEPS if name == "openai_agents" or python_of_framework(name) is not None]


def _row(name: str, took: dict[str, float]) -> Row:
    row = {"own_us": took["own"], "box_us": took["box"], "adapter_us": took["adapter"]}
    return {"name": name, **row, "ratio": took["adapter"] / (took["own"] + took["box"])}


def _graph(called: StructuredTool) -> Step:
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([called]))
    graph.add_edge(START, "tools")
    compiled = graph.compile()

    async def step() -> None:
        call = {"name": "add", "args": {"a": 1, "b": 2}, "id": f"call_{next(_IDS)}", "type": "tool_call"}
        state = await compiled.ainvoke({"messages": [AIMessage("", tool_calls=[call])]})
        assert state["messages"][-1].content == "3"

    return step


def _named() -> Callable[..., Any]:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return add


def _agent(tools: Any) -> Step:
    def say(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("add", {"a": 1, "b": 2}, f"call_{next(_IDS)}")])
        return ModelResponse([TextPart("done")])

    agent = Agent(FunctionModel(say), toolsets=[tools])

    async def step() -> None:
        assert (await agent.run("go")).output == "done"

    return step


def _server() -> FastMCP[None]:
    server = FastMCP[None]("own")
    server.tool(_add, name="add")
    return server


def _request(server: FastMCP[None]) -> Step:
    async def step() -> None:
        async with Client(server) as client:
            assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error

    return step


def listed_tools(folder: Path | None) -> list[ToolDefinition]:
    """The tools of all documents of a folder, as models see them; by default of those that tests read."""
    paths = [one.values[0] for one in real_documents() if one.values[0] is not None] + [octokit()]
    if folder is not None:
        paths = sorted(path for path in folder.iterdir() if path.suffix in {".gz", ".json", ".yaml"})
    return [tool for path in paths for tool in asyncio.run(_tools_of(path))]


async def _tools_of(path: Path) -> list[ToolDefinition]:
    api = await read_api(str(path), fetch=no_network, base_url=BASE_URL)
    specs = [tool_spec(operation, source="api") for operation in api.operations]
    return [ToolDefinition(spec.name, spec.description, fit_to_budget(spec.input_schema)) for spec in specs]


def measure_providers(tick: Tick, *, folder: Path | None = None) -> Figure:
    """Compile tools for every provider, and check them against its rules."""
    tools = listed_tools(folder)
    rows: list[Row] = []
    for dialect in DIALECTS.values():
        rows.append(_provider_row(dialect, tools))
        tick(dialect.provider)
    return Figure(
        key="adapter_providers",
        title="Tools compiled for model providers",
        columns=PROVIDER_COLUMNS,
        rows=rows,
        targets=[target for row in rows for target in _provider_targets(row)],
        notes=(f"CPU of {len(tools):,} tools of OpenAPI documents without garbage collection, scaled to 5,000.",),
    )


def _provider_row(dialect: ProviderDialect, tools: Sequence[ToolDefinition]) -> Row:
    compiler = ToolCompiler(dialect.provider)
    share = COMPILED / len(tools)
    with undisturbed():
        began = time.process_time()
        compiled = compiler.compile(tools)
        cold = time.process_time() - began
        again: list[float] = []
        for _ in range(5):
            began = time.process_time()
            compiler.compile(tools)
            again.append(time.process_time() - began)
    return {
        "name": dialect.provider,
        "before": sum(_is_accepted(tool, dialect) for tool in tools) / len(tools),
        "passing": sum(_is_accepted(tool, dialect) for tool in compiled.definitions) / len(tools),
        "cold_ms": 1000 * cold * share,
        "cached_ms": 1000 * median(again) * share,
    }


def _is_accepted(tool: ToolDefinition, dialect: ProviderDialect) -> bool:
    return next(violations(tool.parameters, dialect), None) is None


def _provider_targets(row: Row) -> list[Target]:
    name = row["name"]
    return [
        Target(f"{name}, cold", float(row["cold_ms"]), "at most", COLD_MS, "ms"),
        Target(f"{name}, cached", float(row["cached_ms"]), "at most", CACHED_MS, "ms"),
        Target(f"{name}, accepted", float(row["passing"]), "at least", PASSING, "of the tools"),
    ]


def parts(*, quick: bool = False, folder: Path | None = None) -> list[Part]:
    """The figures as parts of a run."""
    elsewhere = [] if quick else installed_frameworks()
    return [
        Part(
            "adapter calls",
            3 + len(elsewhere),
            lambda tick: measure_calls(tick, rounds=QUICK_ROUNDS if quick else ROUNDS, elsewhere=elsewhere),
        ),
        Part("model providers", len(DIALECTS), lambda tick: measure_providers(tick, folder=folder)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="OpenAPI documents whose tools are compiled")
    chosen = parser.parse_args()
    began = time.perf_counter()
    with guard_stdout() as stream:
        figures = measured(parts(folder=chosen.folder))
        tell(figures, Output(stream, as_json=False), took_s=time.perf_counter() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
