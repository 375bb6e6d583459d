"""Real tools to be searched, and queries with the tools that are right."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests import parts
from tests.specs import no_network, octokit, real_documents
from toolpost import Settings, Toolbox
from toolpost.builtin.specs import read_specs
from toolpost.contracts.spec import ToolSpec
from toolpost.sources.openapi.loader import read_api
from toolpost.sources.openapi.spec import tool_spec

QUERIES = Path(__file__).parent / "queries.tsv"
BASE_URL = "https://api.example"
SOURCES = {"atlassian_jira": "jira"}  # what a source is called, where it is not the first word of its document's name
LEFT_OUT = {"github_ghes36"}  # the tools of the other document of GitHub once more


class Query(NamedTuple):
    """A query and the names of the tools that are right."""

    kind: str
    text: str
    right: frozenset[str]


def queries(specs: list[ToolSpec]) -> list[Query]:
    """The queries that one of these tools is right for."""
    names = frozenset(spec.name for spec in specs)
    lines = QUERIES.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [Query(kind, text, right) for kind, text, given in rows if (right := names.intersection(given.split()))]


def specs() -> tuple[list[ToolSpec], bool]:
    """All tools, and whether those of the real documents are among them; without them, stderr says so."""
    return asyncio.run(_specs())


async def _specs() -> tuple[list[ToolSpec], bool]:
    found = [*read_specs().values(), *await _of_document(octokit(), "github"), *await _of_servers()]
    documents = [one.values[0] for one in real_documents() if one.values[0] is not None]
    if not documents:
        print("NO REAL DOCUMENTS: only what npm and pip bring is searched; set TOOLPOST_SPECS", file=sys.stderr)
    for path in documents:
        stem = path.name.partition(".")[0]
        if stem not in LEFT_OUT:
            found += await _of_document(path, SOURCES.get(stem, stem.partition("_")[0]))
    return found, bool(documents)


async def _of_document(path: Path, source: str) -> list[ToolSpec]:
    api = await read_api(str(path), fetch=no_network, base_url=BASE_URL)
    return [tool_spec(operation, source=source) for operation in api.operations]


async def _of_servers() -> list[ToolSpec]:
    """The tools of MCP servers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "--quiet", name], check=True)  # noqa: ASYNC221 - nothing else runs yet
        commands = {
            "git": parts.git(folder),
            "time": parts.time(),
            "files": parts.filesystem(folder),
            "graph": parts.memory(),
            "everything": parts.everything(),
        }
        sources = [{"name": source, "transport": "mcp", "connection": command} for source, command in commands.items()]
        settings = Settings.model_validate({"data_dir": None, "sources": sources})
        async with Toolbox(settings=settings) as box:
            await box.wait_for_sources()
            down = [state.name for state in box.report if not state.ok]
            if down:
                raise RuntimeError(f"these servers did not start: {', '.join(down)}")
            return list(box.registry.specs())
