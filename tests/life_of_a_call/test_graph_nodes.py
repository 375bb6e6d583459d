"""Nodes of a graph that know the router alone, which talks to servers in processes of their own."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolpost import Completed, EventCode, Principal, Settings, Toolbox, ToolRouter

SERVER = Path(__file__).with_name("stdio_servers.py")
ANN = Principal("acme", "ann")
State = dict[str, Any]
Node = Callable[[ToolRouter, State], Awaitable[State]]


async def use(router: ToolRouter, tool_name: str, **arguments: Any) -> dict[str, Any]:
    outcome = await router.call(tool_name, arguments, principal=ANN, run_id="run_graph")
    assert isinstance(outcome, Completed), outcome
    content: dict[str, Any] = outcome.content
    return content


async def search(router: ToolRouter, state: State) -> State:
    return {"found": await use(router, "brave-search.web_search", query=state["topic"])}


async def read(router: ToolRouter, state: State) -> State:
    return {"page": await use(router, "jina-reader.read_url", url=state["found"]["result"][0])}


async def recall(router: ToolRouter, state: State) -> State:
    return {"notes": await use(router, "kb.retrieve", query=state["topic"], k=1)}


async def conclude(router: ToolRouter, state: State) -> State:
    texts = [state["page"]["result"], *state["notes"]["result"]]
    return {"answer": await use(router, "custom.summarize", texts=texts)}


GRAPH: dict[str, Node] = {"search": search, "read": read, "recall": recall, "conclude": conclude}


@pytest.mark.programs
@pytest.mark.req("NRT-03")
async def test_graph_nodes_reach_servers_in_other_processes_by_the_router_alone(tmp_path: Path) -> None:
    sources = [
        {
            "name": name,
            "transport": "mcp",
            "connection": f"{sys.executable} -S {SERVER} {name}",
            "trust": True,
        }
        for name in ("brave-search", "jina-reader", "kb", "custom")
    ]
    settings = Settings.model_validate({"data_dir": tmp_path / "data", "sources": sources})
    async with Toolbox(settings=settings) as box:
        state: State = {"topic": "otters"}
        for node in GRAPH.values():
            state |= await node(box.router, state)
        await box.store.events.flush()
        events = await box.store.events.read(run_id="run_graph")

    assert state["answer"]["result"] == "Otters hold hands while they sleep. Otters live in rivers."
    processes = {state[key]["pid"] for key in ("found", "page", "notes", "answer")}
    assert len(processes - {os.getpid()}) == 4
    ended = [event.payload["tool_name"] for event in events if event.code is EventCode.TOOL_CALL_COMPLETED]
    assert ended == ["brave-search.web_search", "jina-reader.read_url", "kb.retrieve", "custom.summarize"]
