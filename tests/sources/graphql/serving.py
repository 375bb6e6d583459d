"""Servers for tests: the library in a process of its own, and one that answers whatever a test wants."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from graphql import build_schema, graphql_sync

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Toolbox
from toolpost.sources.base import Services
from toolpost.sources.graphql.source import GraphqlSource, GraphqlTool

PROGRAM = Path(__file__).with_name("library.py")
NOWHERE = "http://127.0.0.1:9/graphql"
JSON = "application/json"


@contextmanager
def library() -> Iterator[str]:
    """A real server; gives its address."""
    with subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the library ended before it listened"
            yield address
        finally:
            process.kill()


class Canned(NamedTuple):
    """An answer as it is sent."""

    body: Any
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] | None = None


class Rough(NamedTuple):
    """A server that tells its schema and then answers as it was told to; it remembers what it was sent."""

    address: str
    asked: list[dict[str, Any]]
    headers: list[dict[str, str]]


@asynccontextmanager
async def rough(sdl: str, *answers: Canned | Callable[[dict[str, Any]], Canned]) -> AsyncIterator[Rough]:
    """Answers are given in turn, the last one for ever; introspection is answered from the SDL unless it is empty."""
    left = list(answers)
    seen = Rough("", [], [])

    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        seen.headers.append(dict(request.headers))
        if sdl and "__schema" in asked["query"]:
            told = graphql_sync(build_schema(sdl), asked["query"])
            return web.json_response({"data": told.data})
        seen.asked.append(asked)
        one = left.pop(0) if len(left) > 1 else left[0]
        canned = one(asked) if callable(one) else one
        body = canned.body if isinstance(canned.body, bytes) else json.dumps(canned.body).encode()
        return web.Response(body=body, status=canned.status, content_type=canned.media_type, headers=canned.headers)

    app = web.Application()
    app.router.add_post("/graphql", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield seen._replace(address=f"http://{host}:{port}/graphql")
    finally:
        await runner.cleanup()


def source(connection: str = NOWHERE, **options: Any) -> ExternalToolConfig:
    return ExternalToolConfig(name="lib", transport="graphql", connection=connection, **options)


def toolbox(one: ExternalToolConfig, policy: str = "exploratory") -> Any:
    return Toolbox(settings=PatientSettings(data_dir=None, policy=policy, sources=[one]))


async def found(folder: Path, schema: str | dict[str, Any], **options: Any) -> tuple[dict[str, GraphqlTool], list[str]]:
    """The tools of a schema in a file, by name within the source, and the problems."""
    file = folder / "schema.graphql"
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    graphql = {"schema_file": str(file), **options}
    opened = GraphqlSource(source(options=graphql, connect_timeout_s=300), Services())
    try:
        tools = await opened.discover()
        return {tool.operation.tool_name: tool for tool in tools}, list(opened.problems)
    finally:
        await opened.close()
