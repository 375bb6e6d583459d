"""Nodes of a graph that know the router alone, which talks to servers in processes of their own.

Search and reader are `mcp-searxng`, in two processes, before a search engine and a page on loopback, and the knowledge
base is `server-memory`, all from npm; Brave's and Jina's own servers work with their services alone. What a team adds
is a server by hand.
"""

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tests import parts
from tests.gateway.serving import listening
from tests.patient_settings import PatientSettings
from toolpost import Completed, EventCode, Principal, Toolbox, ToolRouter

SERVER = Path(__file__).with_name("stdio_servers.py")
ANN = Principal("acme", "ann")
State = dict[str, Any]
Node = Callable[[ToolRouter, State], Awaitable[State]]


async def use(router: ToolRouter, tool_name: str, **arguments: Any) -> Any:
    outcome = await router.call(tool_name, arguments, principal=ANN, run_id="run_graph")
    assert isinstance(outcome, Completed), outcome
    return outcome.content


async def search(router: ToolRouter, state: State) -> State:
    found = str(await use(router, "search.searxng_web_search", query=state["topic"]))
    match = re.search(r"http://[^\s\"'\\]+/otters", found)
    assert match is not None, found
    return {"url": match[0]}


async def read(router: ToolRouter, state: State) -> State:
    return {"page": str(await use(router, "reader.web_url_read", url=state["url"]))}


async def recall(router: ToolRouter, state: State) -> State:
    return {"notes": await use(router, "kb.search_nodes", query=state["topic"])}


async def conclude(router: ToolRouter, state: State) -> State:
    [note] = state["notes"]["entities"]
    [line] = [line for line in state["page"].splitlines() if "hold hands" in line]
    return {"answer": await use(router, "custom.summarize", texts=[line, *note["observations"]])}


GRAPH: dict[str, Node] = {"search": search, "read": read, "recall": recall, "conclude": conclude}


@pytest.fixture
async def web() -> AsyncIterator[str]:
    """A search engine as SearXNG is one, and the page that it finds."""

    async def find(request: Request) -> Response:
        url = str(request.url.replace(path="/otters", query=""))
        found = {"title": "Otters", "url": url, "content": "About otters.", "engine": "own", "score": 1.0}
        wanted = request.query_params["q"] == "otters"
        return JSONResponse({"query": "otters", "results": [found] if wanted else [], "number_of_results": 1})

    async def page(_request: Request) -> Response:
        return HTMLResponse("<html><body><h1>Otters</h1><p>Otters hold hands while they sleep.</p></body></html>")

    async with listening(Starlette(routes=[Route("/search", find), Route("/otters", page)])) as url:
        yield url


@pytest.mark.programs
@pytest.mark.req("NRT-03")
async def test_graph_nodes_reach_servers_in_other_processes_by_the_router_alone(tmp_path: Path, web: str) -> None:
    env = {"SEARXNG_URL": web, "MCP_HTTP_ALLOW_PRIVATE_URLS": "true"}
    sources: list[dict[str, Any]] = [
        {"name": "search", "connection": parts.searxng(), "env": env},
        {"name": "reader", "connection": parts.searxng(), "env": env},
        {"name": "kb", "connection": parts.memory(), "env": {"MEMORY_FILE_PATH": str(tmp_path / "kb.jsonl")}},
        {"name": "custom", "connection": f"{sys.executable} -S {SERVER}"},
    ]
    settings = PatientSettings.model_validate(
        {
            "data_dir": tmp_path / "data",
            "sources": [{**source, "transport": "mcp", "trust": True} for source in sources],
            "policy": "exploratory",
        }
    )
    async with Toolbox(settings=settings) as box:
        otters = {"name": "otters", "entityType": "animal", "observations": ["Otters live in rivers."]}
        await use(box.router, "kb.create_entities", entities=[otters])
        state: State = {"topic": "otters"}
        for node in GRAPH.values():
            state |= await node(box.router, state)
        commands = [" ".join(process.cmdline()) for process in psutil.Process().children(recursive=True)]
        await box.store.events.flush()
        events = await box.store.events.read(run_id="run_graph")

    assert state["answer"]["result"] == "Otters hold hands while they sleep. Otters live in rivers."
    servers = ("mcp-searxng", "server-memory", SERVER.name)
    assert [sum(server in command for command in commands) for server in servers] == [2, 1, 1]
    ended = [event.payload["tool_name"] for event in events if event.code is EventCode.TOOL_CALL_COMPLETED]
    assert ended[1:] == ["search.searxng_web_search", "reader.web_url_read", "kb.search_nodes", "custom.summarize"]
