"""What the gateway tells while it serves: spans that go on from the caller's, and a line for each request and call."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, add, served
from tests.gateway.test_encoded_lists import JSON, META, NEW, OLD, session_headers
from tests.telemetry import Spans, id_of, parent_of, spans, trace_of
from toolpost import tool
from toolpost.gateway.observation import CallLog, logging_to_stderr

__all__ = ["spans"]  # a fixture
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@tool(side_effects="write", destructive=True)
async def drop(name: str, password: str) -> str:
    """Drop a table."""
    return name


@pytest.fixture
async def gate(spans: Spans, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add]) as gate:
        yield gate


async def test_a_call_over_rest_is_of_the_trace_that_its_caller_names(spans: Spans, gate: Served) -> None:
    called = {"tool": "add", "arguments": {"a": 1, "b": 2}}
    await gate.http.post("/api/v1/calls", json=called, headers=TRACEPARENT)
    server, call = spans.one("POST /api/v1/calls"), spans.one("execute_tool add")

    assert (trace_of(server), parent_of(server)) == (TRACE, SPAN)
    assert parent_of(call) == id_of(server)
    assert (server.attributes or {})["http.response.status_code"] == 200


@pytest.mark.parametrize("era", [NEW, OLD])
@pytest.mark.parametrize("carrier", ["header", "_meta"])
async def test_a_call_over_mcp_is_of_the_trace_that_its_caller_names(
    spans: Spans, gate: Served, carrier: str, era: str
) -> None:
    headers = await session_headers(gate) if era == OLD else {**JSON, "MCP-Protocol-Version": NEW}
    named: dict[str, dict[str, Any]] = {"header": {}, "_meta": {}, carrier: TRACEPARENT}
    meta = {**(META if era == NEW else {}), **named["_meta"]}
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, **({"_meta": meta} if meta else {})}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    sent = {**headers, "Mcp-Method": "tools/call", "Mcp-Name": "add", **named["header"]}
    await gate.http.post("/mcp", json=message, headers=sent)

    assert trace_of(spans.one("execute_tool add")) == TRACE


@pytest.mark.parametrize("form", ["json", "text"])
async def test_each_request_and_each_call_is_a_line_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Any
) -> None:
    with logging_to_stderr(form):
        async with served(tmp_path / "data", [add, drop], sinks=[CallLog()]) as gate:
            await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}})
            await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1}})
            await gate.http.post(
                "/api/v1/calls",
                json={"tool": "drop", "arguments": {"name": "a\nb", "password": "hunter2hunter2"}},
            )
            await gate.http.get("/api/v1/tools?key=hunter2hunter2", headers={"Authorization": "Bearer wrong"})
    lines = capsys.readouterr().err.splitlines()

    assert "hunter2" not in "".join(lines)
    assert len(lines) == 7
    if form == "text":
        assert "outcome=completed" in lines[0]
        return
    done, request, failed, _, paused, _, refused = map(json.loads, lines)
    assert (done["tool"], done["outcome"], done["principal"]) == ("add", "completed", "acme:olga")
    assert done["run_id"]
    assert done["call_id"]
    assert done["duration_ms"] >= 0
    assert (request["method"], request["path"], request["status"]) == ("POST", "/api/v1/calls", 200)
    assert (failed["outcome"], failed["error_code"]) == ("failed", "validation_failed")
    assert (paused["outcome"], "pending_id" in paused) == ("paused", True)
    assert (refused["status"], "principal" in refused) == (401, False)
    assert logging.getLogger("toolpost").level == logging.NOTSET


async def test_a_line_has_the_id_of_its_trace(spans: Spans, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr("json"):
        async with served(tmp_path / "data", [add], sinks=[CallLog()]) as gate:
            called = {"tool": "add", "arguments": {"a": 1, "b": 2}}
            await gate.http.post("/api/v1/calls", json=called, headers=TRACEPARENT)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [line["trace_id"] for line in lines] == [TRACE, TRACE]
