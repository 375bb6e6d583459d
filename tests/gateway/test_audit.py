"""The audit trail: who called what, who allowed it and what came of it, without secrets, and proof against changes."""

import asyncio
import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.gateway.serving import Served, add, served
from toolpost import tool
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import create_caller_key, revoke_caller_key


@tool(side_effects="write", destructive=True)
async def drop(name: str, password: SecretStr) -> str:
    """Drop a table."""
    return f"{name} is gone"


@pytest.mark.req("FUT-11")
async def test_the_trail_names_who_asked_who_allowed_and_what_came_of_it(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [drop]) as gate:
        arguments = {"name": "orders", "password": "hunter2-hunter2"}
        agent = await gate.key("acme:bot", "call")
        call = await gate.http.post("/api/v1/calls", json={"tool": "drop", "arguments": arguments}, headers=agent)
        person = await gate.key("acme:ann", "answer", "admin")
        asked = f"/api/v1/pending/{call.json()['pending']['id']}/answer"
        await gate.http.post(asked, json={"decision": "approve"}, headers=person)
        trail = await gate.http.get("/api/v1/audit", headers=person)

    events = [json.loads(line) for line in trail.text.splitlines()]
    assert [(event["type"], event["user"], event["payload"].get("by")) for event in events] == [
        ("TOOL_CALL_REQUESTED", "bot", None),
        ("APPROVAL_REQUESTED", "bot", None),
        ("APPROVAL_GRANTED", "bot", "acme:ann"),
        ("TOOL_CALL_STARTED", "bot", None),
        ("TOOL_CALL_COMPLETED", "bot", None),
    ]
    assert events[0]["payload"]["params"] == {"name": "orders", "password": "[redacted]"}
    assert (events[-1]["payload"]["tool_name"], events[-1]["payload"]["summary"]) == ("drop", "orders is gone")
    assert "hunter2" not in trail.text


@pytest.mark.sqlite
@pytest.mark.req("FUT-11")
async def test_a_trail_that_someone_changed_does_not_verify(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder, [add]) as gate:
        await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 1}})
        before = await verdict(gate)
    with closing(sqlite3.connect(folder / "toolpost.db")) as database, database:
        database.execute("UPDATE segments SET tool_name = replace(tool_name, 'add', 'sub')")
    async with served(folder, [add]) as gate:
        after = await verdict(gate)

    assert (before["status"], after["status"]) == ("verified", "changed")
    assert after["problems"]


@pytest.mark.sqlite
async def test_the_verdict_says_nothing_of_the_runs_of_other_tenants(tmp_path: Path) -> None:
    folder, call = tmp_path / "data", {"tool": "add", "arguments": {"a": 1, "b": 1}}
    async with served(folder, [add]) as gate:
        await gate.http.post("/api/v1/calls", json=call)
        await gate.http.post("/api/v1/calls", json=call, headers=await gate.key("other:bob", "call"))
    of_other = "run IN (SELECT nr FROM runs WHERE tenant = 'other')"
    with closing(sqlite3.connect(folder / "toolpost.db")) as database, database:
        database.execute(f"UPDATE segments SET tool_name = replace(tool_name, 'add', 'sub') WHERE {of_other}")
    async with served(folder, [add]) as gate:
        ours = await verdict(gate)
        theirs = await verdict(gate, await gate.key("other:eve", "admin"))

    assert (ours, theirs["status"]) == ({"status": "verified", "problems": []}, "changed")


async def verdict(gate: Served, headers: dict[str, str] | None = None) -> Any:
    reply = await gate.http.get("/api/v1/audit", params={"verify": "yes"}, headers=headers or {})
    return json.loads(reply.text.splitlines()[-1])


async def test_the_trail_of_a_tenant_has_the_keys_of_its_callers(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        key, text = await create_caller_key(gate.box, "bot", Principal("acme", "bot"), ["call"], by="acme:olga")
        other, _ = await create_caller_key(gate.box, "bee", Principal("evil", "bee"), ["call"], by="evil:eve")
        revoked = [await revoke_caller_key(gate.box, one.id, by="acme:olga") for one in (key, other)]
        trail = (await gate.http.get("/api/v1/audit")).text

    events = [json.loads(line) for line in trail.splitlines()]
    assert revoked == [True, False]
    assert [(event["type"], event["payload"]["key_id"], event["payload"]["by"]) for event in events] == [
        ("CALLER_KEY_CREATED", key.id, "acme:olga"),
        ("CALLER_KEY_REVOKED", key.id, "acme:olga"),
    ]
    assert text.rpartition("_")[2] not in trail


async def test_the_trail_is_a_table_with_the_same_filters_and_no_formulas(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        for user in ("=cmd", "bot", "\uff1dcmd"):
            await gate.box.call("add", {"a": 1, "b": 1}, user=f"acme:{user}")
        reply = await gate.http.get("/api/v1/audit", params={"format": "csv", "type": "TOOL_CALL_COMPLETED"})
        lines = await gate.http.get("/api/v1/audit", params={"user": "bot"})

    table = list(csv.DictReader(io.StringIO(reply.text)))
    assert reply.headers["content-type"].startswith("text/csv")
    assert [(row["type"], row["tool"], row["user"]) for row in table] == [
        ("TOOL_CALL_COMPLETED", "add", "'=cmd"),
        ("TOOL_CALL_COMPLETED", "add", "bot"),
        ("TOOL_CALL_COMPLETED", "add", "'\uff1dcmd"),
    ]
    assert json.loads(table[1]["payload"])["summary"] == 2
    bots = [json.loads(line) for line in lines.text.splitlines()]
    assert [event["user"] for event in bots] == ["bot"] * 3
    assert bots[-1]["hash"] == table[1]["hash"]


async def test_the_verification_of_a_long_trail_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
        half, verify = asyncio.Event(), gate.box.store.events.verify

        async def slow(run_id: str | None, *, tenant: str, on_progress: Callable[[int, int], None]) -> list[str]:
            on_progress(1, 2)
            await half.wait()
            return await verify(run_id, tenant=tenant, on_progress=on_progress)

        monkeypatch.setattr(gate.box.store.events, "verify", slow)
        lines: list[Any] = []
        async with gate.http.stream("GET", "/api/v1/audit", params={"verify": "progress"}) as reply:
            async for line in reply.aiter_lines():
                lines.append(json.loads(line))
                half.set()
        whole = [line.get("status", line.get("type")) for line in lines]

    assert lines[0] == {"status": "verifying", "verified": 1, "runs": 2}
    assert whole[-4:] == ["TOOL_CALL_REQUESTED", "TOOL_CALL_STARTED", "TOOL_CALL_COMPLETED", "verified"]


async def test_one_run_of_the_trail_is_verified_and_a_table_has_no_place_for_that(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add]) as gate:
        run_id = (await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")).run_id
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
        one = await gate.http.get("/api/v1/audit", params={"run": run_id, "verify": "yes"})
        table = await gate.http.get("/api/v1/audit", params={"format": "csv", "verify": "yes"})
        none = await gate.http.get("/api/v1/audit", params={"run": "run_none"})

    assert json.loads(one.text.splitlines()[-1]) == {"status": "verified", "problems": []}
    assert len(one.text.splitlines()) == 4
    assert (table.status_code, table.json()["code"]) == (400, "not_in_csv")
    assert (none.status_code, none.json()["code"]) == (404, "run_not_found")
