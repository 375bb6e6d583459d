"""Results that break their tool's output schema, from every kind of source: handed on with a note, or a failure."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.cli.program import Run
from tests.patient_settings import PatientSettings
from tests.sources.commands.programs import script
from tests.sources.graphql.serving import Canned, rough
from tests.sources.mcp.rogues import Rogue, answering, text
from tests.sources.webhook.boxes import by_path, listing, said, sticky, workflow
from tests.sources.websocket.servers import serving
from tests.wire.site import Site
from toolpost import Toolbox, model_text

KINDS = [
    *("graphql", "webhook", "n8n", "websocket"),
    *(pytest.param(kind, marks=pytest.mark.programs) for kind in ("mcp", "cli")),
]
BROKEN = {"n": "one"}
PROMISED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LOOK = {"look": {"side_effects": "read", "output_schema": PROMISED}}
SDL = "type Query { look: Answer } type Answer { n: Int }"
KEY = {"auth_type": "api_key", "auth_config": {"api_key": "key-1234567890"}}


async def tell(connection: ServerConnection) -> None:
    async for _ in connection:
        await connection.send(json.dumps(BROKEN))


@asynccontextmanager
async def serving_broken(kind: str, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A server whose tool `look` gives something else than it promises; gives its source, named `srv`."""
    if kind == "graphql":
        async with rough(SDL, Canned({"data": {"look": BROKEN}})) as api:
            yield {"transport": "graphql", "connection": api.address}
    elif kind == "webhook":
        async with Site(said(200, BROKEN)) as site:
            yield {"transport": "webhook", "connection": site.url, "options": {"kind": "plain", "tools": LOOK}}
    elif kind == "n8n":
        note = f"Look.\n```json output\n{json.dumps(PROMISED)}\n```"
        flows = listing(workflow("look", path="look", nodes=[sticky(note)]))
        async with Site(by_path(workflows=flows, look=said(200, BROKEN))) as site:
            yield {"transport": "webhook", "connection": site.url, "options": {"kind": "n8n"}, **KEY}
    elif kind == "websocket":
        async with serving(tell) as url:
            yield {"transport": "websocket", "connection": url, "options": {"tools": LOOK}}
    elif kind == "mcp":
        rogue = Rogue(folder, answering("look", {**text("x"), "structuredContent": BROKEN}, outputSchema=PROMISED))
        yield {"transport": "mcp", "connection": rogue.connection}
    else:
        tools = {"look": {**LOOK["look"], "output": "json"}}
        yield {
            "transport": "cli",
            "connection": script(folder, f"echo '{json.dumps(BROKEN)}'"),
            "options": {"tools": tools},
        }


@pytest.mark.parametrize("mode", [None, "strict", "off"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_that_breaks_its_schema_is_what_the_operator_says(
    kind: str, mode: str | None, tmp_path: Path
) -> None:
    async with serving_broken(kind, tmp_path) as source:
        given = {"name": "srv", "outputs": mode, **source}
        async with Toolbox(settings=PatientSettings(data_dir=None, policy="exploratory", sources=[given])) as box:
            outcome: Any = await box.call("srv.look")
            told = [event.payload["output_issues"] for event in await box.events() if "output_issues" in event.payload]
            counted = box.registry.get_stats().call_stats["srv.look"].schema_violations
    if mode == "strict":
        assert outcome.error.error_code == "output_invalid"
        assert "$.n: expected integer" in str(outcome.error)
        assert "write outputs: report into source 'srv'" in str(outcome.error)
        assert (told, counted) == ([], 0)
        return
    noted = mode != "off"
    assert outcome.content == BROKEN
    assert ("output_issues" in outcome.meta, len(told), counted) == (noted, noted, noted)
    assert (
        "[This result violates the output schema of the tool: $.n: expected integer" in model_text(outcome)
    ) is noted


@pytest.mark.programs
@pytest.mark.parametrize("kind", KINDS)
async def test_tools_show_says_what_holds_and_how_many_results_broke_the_schema(
    kind: str, child: Run, home: Path
) -> None:
    async with serving_broken(kind, home) as source:
        document = {"builtins": "none", "policy": "exploratory", "sources": [{"name": "srv", **source}]}
        (home / "toolpost.yaml").write_text(json.dumps(document))
        called = await asyncio.to_thread(child, "tools", "call", "srv.look", "--json")
        shown = await asyncio.to_thread(child, "tools", "show", "srv.look", "--json")
    assert (called.code, called.json["content"]) == (0, BROKEN)
    assert shown.json["outputs"] == "report"
    schema_violations = shown.json["schema_violations"]
    assert (schema_violations["count"], schema_violations["of_calls"]) == (1, 1)
    assert "$.n: expected integer" in schema_violations["last"][0]
