"""Which key made a call stands in the event of its request, whichever way the call came."""

from pathlib import Path

import pytest

from tests.gateway.serving import add, served
from tests.gateway.test_a2a import message as a2a_message
from tests.gateway.test_a2a import rpc
from tests.gateway.test_encoded_lists import JSON, META, NEW
from toolpost.contracts.events import EventFilter, RunFilter


@pytest.mark.parametrize("way", ["rest", "mcp", "a2a"])
async def test_runs_and_events_are_found_by_the_key_that_made_the_call(tmp_path: Path, way: str) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        bot = await gate.key("acme:bot", "call")
        await gate.http.post("/api/v1/tools/add", json={"a": 0, "b": 0})  # by the operator
        match way:
            case "rest":
                await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}}, headers=bot)
            case "mcp":
                params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                sent = {**JSON, **bot, "MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
                await gate.http.post("/mcp", json=message, headers=sent)
            case _:
                await rpc(gate, "SendMessage", a2a_message("add", {"a": 1, "b": 2}), bot)
        [key] = await gate.box.store.caller_keys.list()
        caller = f"key:{key.id}"
        events = await gate.box.events(user="acme:olga", only=EventFilter(caller=caller))
        runs = await gate.box.runs(user="acme:olga", only=RunFilter(caller=caller))
        all_runs = await gate.box.runs(user="acme:olga")
        listed = (await gate.http.get("/api/v1/runs")).json()["items"]

    assert [event.code for event in events] == [400, 405, 410]
    assert events[0].payload["caller"] == caller
    assert [run.run_id for run in runs] == [events[0].run_id]
    assert len(all_runs) == 2
    assert {(run["caller"], run["caller_name"]) for run in listed} == {(caller, "acme:bot"), ("operator", None)}
