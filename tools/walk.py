"""Trace one call of each kind and draw the files of toolpost that it enters: `python -m tools.walk`.

The calls go through an open Toolbox with its store in memory, after calls that filled every cache. The picture is
docs/images/walk.svg, which docs/architecture.md shows; it has no times, so that the same code gives the same picture.
"""

import asyncio
import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import toolpost
from toolpost import Completed, ExternalToolConfig, Settings, Toolbox, tool

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "walk.svg"
_PACKAGE = f"{Path(toolpost.__file__).parent}/"
_WARM_UP, _TRACED = 3, 3
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


class Walk(NamedTuple):
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


async def trace_calls() -> list[Walk]:
    """Run a native, an MCP and an OpenAPI call under a profile function on all threads, and return their walks."""
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
                zone, item = {"timezone": "UTC"}, {"id": 1}
                return [
                    Walk("A Python function", 12, await _trace(box, recorder, "add", {"a": 2, "b": 3})),
                    Walk("A tool of an MCP server", 17, await _trace(box, recorder, "clock.get_current_time", zone)),
                    Walk("An operation of a REST API", 22, await _trace(box, recorder, "shop.get_item", item)),
                ]
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def _trace(box: Toolbox, recorder: Recorder, name: str, arguments: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the files that every one of several calls enters; what else runs meanwhile is in fewer of them."""
    for _ in range(_WARM_UP):
        await _call(box, name, arguments)
    traced: list[dict[str, list[str]]] = []
    for _ in range(_TRACED):
        recorder.functions = {}
        await _call(box, name, arguments)
        traced.append(recorder.functions)
        recorder.functions = None
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
    "stores": "#7030a0",
    "sources": "#00808a",
    "web": "#3aa6a0",
    "wire": "#8a2f4b",
}


def draw(walks: list[Walk]) -> str:
    """Return the picture as SVG: a column for each walk, a box for each file."""
    width = _EDGE + len(walks) * (_COLUMN + _EDGE)
    height = _HEAD + max(len(walk.steps) for walk in walks) * _ROW + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" role="img">',
        "<title>The files of toolpost that a call enters, in order</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for column, walk in enumerate(walks):
        left = _EDGE + column * (_COLUMN + _EDGE)
        lines.append(
            f'<text x="{left}" y="34" font-size="16" font-weight="bold" fill="#222222">'
            f"{escape(walk.title)}: {len(walk.steps)} files</text>"
        )
        for number, step in enumerate(walk.steps):
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
    """Print the walks, and write the picture in place."""
    walks = asyncio.run(trace_calls())
    for walk in walks:
        print(f"{walk.title}: {len(walk.steps)} files (at most {walk.most})")
        for step in walk.steps:
            print(f"  {step.file:36} {step.functions:3}  {step.entry}")
    PICTURE.write_text(draw(walks), encoding="utf-8")
    print(f"written: {PICTURE.name}")


if __name__ == "__main__":
    main()
