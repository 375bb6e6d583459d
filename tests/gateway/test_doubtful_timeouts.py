"""A call that timed out and must not be made again says so on every surface."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import served
from tests.gateway.test_encoded_lists import JSON, META, NEW
from toolpost import Failed, tool


@tool(side_effects="write")
async def pay() -> str:
    """Pay, without a word from the bank."""
    raise TimeoutError("the bank does not answer")


@tool(side_effects="read", timeout_s=0.05)
async def look() -> str:
    """Look, which takes for ever."""
    await asyncio.Event().wait()
    return "seen"


@pytest.mark.parametrize(("name", "is_retryable"), [("pay", False), ("look", True)])
async def test_a_timeout_is_retryable_only_where_the_call_may_be_repeated(
    tmp_path: Path, name: str, is_retryable: bool
) -> None:
    async with served(tmp_path / "data", [pay, look]) as gate:
        outcome = await gate.box.call(name, idempotency_key="once")
        kept = await gate.box.call(name, idempotency_key="once")  # as the journal has it
        rest = await gate.http.post("/api/v1/calls", json={"tool": name})
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": name, "arguments": {}, "_meta": META}
        sent = {**JSON, "MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": name}
        mcp = await gate.http.post("/mcp", json=message, headers=sent)

    assert isinstance(outcome, Failed)
    assert isinstance(kept, Failed)
    assert (outcome.error.error_code, kept.error.error_code) == ("timeout", "timeout")
    assert (outcome.error.is_retryable, kept.error.is_retryable) == (is_retryable, is_retryable)
    assert rest.json()["error"]["is_retryable"] is is_retryable
    assert mcp.json()["result"]["_meta"]["toolpost/retryable"] is is_retryable
