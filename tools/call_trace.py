"""Trace one call of each kind and draw the files of toolpost that it enters: `python -m tools.call_trace`.

Native, MCP and OpenAPI calls go through an open Toolbox. A REST request goes through the gateway's ASGI application. A
planner step is everything between two requests to the model. The store is in memory, and earlier calls have filled
every cache. The picture is docs/images/call-trace.svg, which docs/architecture.md shows. It contains no times, so the
same code gives the same picture.
"""

import asyncio
import json
import shlex
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import httpx2

import toolpost
from toolpost import Completed, ExternalToolConfig, Settings, Toolbox, tool
from toolpost.agents import ReactPlanner
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import new_caller_key
from toolpost.gateway.event_feed import EventFeed
from toolpost.gateway.http import gateway_app, open_callers
from toolpost.gateway.view_servers import ViewServers
from toolpost.gateway.views import default_view
from toolpost.testing import ScriptedModel, tool_calls

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "call-trace.svg"
_PACKAGE = f"{Path(toolpost.__file__).parent}/"
_WARM_UP, _TRACED = 3, 3
_NUMBERS = {"a": 2, "b": 3}
_DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/items/{id}": {
            "get": {
                "operationId": "get_item",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {"description": "An item", "content": {"application/json": {}}}},
            }
        }
    },
}


class Step(NamedTuple):
    """A file that a call enters, the function by which it enters first, and how many of its functions run."""

    file: str
    entry: str
    functions: int


class CallTrace(NamedTuple):
    """The files of one call in order of first entry; `most` is how many there may be."""

    title: str
    most: int
    steps: tuple[Step, ...]


class Recorder:
    """Profile function that records, while `functions` is set, the functions of toolpost that are entered, by file."""

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self.functions is None or event != "call" or not code.co_filename.startswith(_PACKAGE):
            return
        names = self.functions.setdefault(code.co_filename.removeprefix(_PACKAGE), [])
        if code.co_qualname not in names:
            names.append(code.co_qualname)


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class _Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps(_DOCUMENT if self.path == "/openapi.json" else {"id": 1, "name": "pen"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


@contextmanager
def _served_shop() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/openapi.json"
        finally:
            server.shutdown()


async def trace_calls() -> list[CallTrace]:
    """Trace a native, an MCP, an OpenAPI and a REST call and a planner step on all threads."""
    recorder = Recorder()
    clock = shlex.join([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"])
    threading.setprofile(recorder)  # before the Toolbox opens and starts threads
    sys.setprofile(recorder)
    try:
        with _served_shop() as shop:
            sources = [
                ExternalToolConfig(name="clock", transport="mcp", connection=clock, trust=True),
                ExternalToolConfig(name="shop", transport="http", connection=shop, trust=True),
            ]
            settings = Settings(data_dir=None, sources=sources)
            async with Toolbox(tools=[add], settings=settings) as box:
                await box.wait_for_sources()
                native = await _trace(recorder, partial(_call, box, "add", _NUMBERS))
                mcp = await _trace(recorder, partial(_call, box, "clock.get_current_time", {"timezone": "UTC"}))
                openapi = await _trace(recorder, partial(_call, box, "shop.get_item", {"id": 1}))
                planner = await _trace_planner(recorder, box)
        async with _rest_client() as client:
            rest = await _trace(recorder, partial(_post, client))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [
        CallTrace("A Python function", 14, native),
        CallTrace("A tool of an MCP server", 17, mcp),
        CallTrace("An operation of a REST API", 22, openapi),
        CallTrace("A REST request to the gateway", 24, rest),
        CallTrace("A planner step", 22, planner),
    ]


async def _trace(recorder: Recorder, call: Callable[[], Awaitable[None]]) -> tuple[Step, ...]:
    for _ in range(_WARM_UP):
        await call()
    traced: list[dict[str, list[str]]] = []
    for _ in range(_TRACED):
        recorder.functions = {}
        await call()
        traced.append(recorder.functions)
        recorder.functions = None
    return _common_steps(traced)


def _common_steps(traced: list[dict[str, list[str]]]) -> tuple[Step, ...]:
    """Return the files that every traced call enters; background work is in fewer of them."""
    first, *others = traced
    return tuple(
        Step(file, functions[0], len(functions))
        for file, functions in first.items()
        if all(file in other for other in others)
    )


async def _call(box: Toolbox, name: str, arguments: Mapping[str, Any]) -> None:
    outcome = await box.call(name, arguments)
    if not isinstance(outcome, Completed):
        raise TypeError(f"the call of {name!r} did not complete: {outcome}")


@asynccontextmanager
async def _rest_client() -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client of the gateway's ASGI application with the key of an agent."""
    url, operator, feed = "http://127.0.0.1", "local:operator", EventFeed()
    key, bearer = new_caller_key("agent", Principal.parse("local:agent"), ["call"], by=operator)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Toolbox(tools=[add], settings=Settings(data_dir=None)) as box,
            open_callers(box, Path(folder), operator, host="127.0.0.1") as callers,
        ):
            await box.store.caller_keys.add(key)
            app = gateway_app(box, ViewServers(box, default_view(box), relay=None), callers, feed, public_url=url)
            headers = {"Authorization": f"Bearer {bearer}"}
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
                yield client


async def _post(client: httpx2.AsyncClient) -> None:
    response = await client.post("/api/v1/tools/add", json=_NUMBERS)
    if response.json() != sum(_NUMBERS.values()):
        raise TypeError(f"the REST call did not complete: {response.text}")


async def _trace_planner(recorder: Recorder, box: Toolbox) -> tuple[Step, ...]:
    traced: list[dict[str, list[str]]] = []

    def begin_step(_messages: object) -> Mapping[str, Any]:
        end_step()
        recorder.functions = {}
        return tool_calls(("add", _NUMBERS))

    def end_step() -> None:
        if recorder.functions is not None:
            recorder.functions.pop("testing/scripted_model.py", None)  # the scripted model
            traced.append(recorder.functions)
            recorder.functions = None

    def finish(_messages: object) -> str:
        end_step()
        return "5"

    model = ScriptedModel(*[begin_step] * (_WARM_UP + _TRACED), finish)
    result = await ReactPlanner(catalog=box, llm=model).run("Add 2 and 3.")
    if len(traced) != _WARM_UP + _TRACED:
        raise TypeError(f"the planner did not take every step: {result}")
    return _common_steps(traced[_WARM_UP:])


# ---------------------------------------------------------------- the picture

_COLUMN, _ROW, _HEAD, _EDGE = 330, 44, 56, 16
_COLOURS = {
    "toolbox": "#1f4e79",
    "runtime": "#2e75b6",
    "contracts": "#7f7f7f",
    "schema": "#a6a6a6",
    "catalog": "#548235",
    "policy": "#c55a11",
    "auth": "#bf9000",
    "gateway": "#6b4e9b",
    "agents": "#9e480e",
    "stores": "#7030a0",
    "sources": "#00808a",
    "web": "#3aa6a0",
    "wire": "#8a2f4b",
}


def draw(traces: list[CallTrace]) -> str:
    """Return the picture as SVG: a column for each trace, a box for each file."""
    width = _EDGE + len(traces) * (_COLUMN + _EDGE)
    height = _HEAD + max(len(trace.steps) for trace in traces) * _ROW + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" role="img">',
        "<title>The files of toolpost that a call enters, in order</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for column, trace in enumerate(traces):
        left = _EDGE + column * (_COLUMN + _EDGE)
        lines.append(
            f'<text x="{left}" y="34" font-size="16" font-weight="bold" fill="#222222">'
            f"{escape(trace.title)}: {len(trace.steps)} files</text>"
        )
        for number, step in enumerate(trace.steps):
            lines += _box(left, _HEAD + number * _ROW, number + 1, step)
    return "\n".join([*lines, "</svg>", ""])


def _box(left: int, top: int, number: int, step: Step) -> list[str]:
    colour = _COLOURS.get(step.file.partition("/")[0], "#444444")
    file, entry = escape(step.file), escape(step.entry.replace(".<locals>", ""))
    return [
        f'<rect x="{left}" y="{top}" width="{_COLUMN}" height="{_ROW - 6}" rx="4" fill="#f6f8fa" stroke="{colour}"/>',
        f'<rect x="{left}" y="{top}" width="30" height="{_ROW - 6}" rx="4" fill="{colour}"/>',
        f'<text x="{left + 15}" y="{top + 24}" font-size="13" fill="#ffffff" text-anchor="middle">{number}</text>',
        f'<text x="{left + 38}" y="{top + 16}" font-size="13" font-weight="bold" fill="#222222">{file}</text>',
        f'<text x="{left + 38}" y="{top + 31}" font-size="11" fill="#555555">{entry}</text>',
    ]


def main() -> None:
    """Print the traces, and write the picture in place."""
    traces = asyncio.run(trace_calls())
    for trace in traces:
        print(f"{trace.title}: {len(trace.steps)} files (at most {trace.most})")
        for step in trace.steps:
            print(f"  {step.file:36} {step.functions:3}  {step.entry}")
    PICTURE.write_text(draw(traces), encoding="utf-8")
    print(f"written: {PICTURE.name}")


if __name__ == "__main__":
    main()
