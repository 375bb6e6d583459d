"""Programs of others read the OpenAPI document: one sends whatever it allows, another writes a client from it."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.serving import Served, served
from tests.parts import found
from toolpost import tool
from toolpost.gateway.rest.openapi import OPERATIONS

pytestmark = pytest.mark.programs
# Cursors are ours to give out, and tools have schemas of their own: that some valid requests are refused is right.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection,unsupported_method"  # noqa: E501
CLIENT = """
import sys
from toolpost_client import AuthenticatedClient
from toolpost_client.api.calls import call
from toolpost_client.api.pending import answer_pending, list_pending
from toolpost_client.models import Answer, AnswerDecision, Call, CallArguments

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
arguments = CallArguments.from_dict({"name": "logs"})
asked = call.sync(client=client, body=Call(tool="drop", arguments=arguments))
card = list_pending.sync(client=client).items[0]
done = answer_pending.sync(card.id, client=client, body=Answer(decision=AnswerDecision.APPROVE))
print(asked.status, card.tool_name, done.status, done.content)
with client.get_httpx_client().stream("GET", "/api/v1/events", params={"after": 0}) as events:
    print(next(line for line in events.iter_lines() if line.startswith("event: APPROVAL")))
"""


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    return f"{name} is gone"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [drop]) as gate:
        yield gate


async def run(program: Path, *arguments: str, cwd: Path) -> str:
    """Run a program to its end while the gateway is served; gives what it printed."""
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


def token(gate: Served) -> str:
    return gate.http.headers["Authorization"].removeprefix("Bearer ")


async def test_no_request_that_the_document_allows_or_forbids_breaks_the_gateway(gate: Served, tmp_path: Path) -> None:
    said = await run(
        found(".parts/rest/bin/schemathesis"),
        *("run", f"{gate.url}/openapi.json", "--header", f"Authorization: Bearer {token(gate)}"),
        *("--phases", "coverage", "--checks", CHECKS, "--exclude-path", "/api/v1/events"),
        *("--suppress-health-check", "all", "--generation-deterministic"),
        cwd=tmp_path,
    )

    assert f"{len(OPERATIONS) - 1} passed" in said


async def test_a_client_made_from_the_document_calls_answers_and_listens(gate: Served, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"package_name_override": "toolpost_client", "post_hooks": []}))
    generate = ("generate", "--url", f"{gate.url}/openapi.json", "--output-path", "made", "--config", "config.json")
    await run(found(".parts/rest/bin/openapi-python-client"), *generate, cwd=tmp_path)
    (tmp_path / "made" / "use.py").write_text(CLIENT)

    said = await run(found(".parts/rest/bin/python"), "use.py", gate.url, token(gate), cwd=tmp_path / "made")

    assert said.splitlines() == ["paused drop completed logs is gone", "event: APPROVAL_REQUESTED"]
