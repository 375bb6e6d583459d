"""The status of the gateway, its metrics, and the scope that reads both and nothing else."""

import re
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served
from tests.gateway.test_callers import issuer, oidc, signed
from tests.gateway.test_workers import Pair, pair
from toolpost.contracts.callers import check_key_scopes
from toolpost.contracts.errors import ToolError
from toolpost.contracts.events import CallRef, EventCode, RunEvent
from toolpost.contracts.store_status import SILENT_S
from toolpost.gateway.rest.openapi import OPERATIONS

__all__ = ["issuer", "pair"]  # fixtures of other modules

STATUS = "/api/v1/status"


async def observer(gate: Served) -> dict[str, str]:
    made = await gate.http.post("/api/v1/keys", json={"name": "prometheus", "scopes": ["observe"]})
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['token']}"}


@pytest.mark.req("OPS-01")
async def test_the_status_names_sources_processes_queues_and_disk(tmp_path: Path) -> None:
    down = {"name": "shop", "transport": "python", "connection": str(tmp_path / "missing.py")}
    async with served(tmp_path / "data", [add], sources=[down]) as gate:
        await gate.box.wait_for_sources()
        await gate.box.store.events.flush()
        status = (await gate.http.get(STATUS)).json()

    assert (status["status"], status["workers"], status["store"]["writable"]) == ("degraded", 1, True)
    [source], [owner] = status["sources"], status["owners"]
    assert (source["name"], source["state"]) == ("shop", "down")
    assert source["error"] in status["problems"][0]
    assert (owner["alive"], owner["unfinished"]) == (True, 0)
    assert [queue["name"] for queue in status["queues"]] == ["runs", "tasks", "calls", "events"]
    assert 0 < status["disk"]["free_bytes"] <= status["disk"]["total_bytes"]
    assert (status["runs"], status["pending"]["open"], status["silent"]) == ({"running": 0, "paused": 0}, 0, [])


async def test_a_gateway_without_problems_is_ready(gate: Served) -> None:
    status = (await gate.http.get(STATUS, headers=await observer(gate))).json()

    assert (status["status"], status["problems"]) == ("ready", [])


async def test_a_running_call_without_events_is_a_problem(gate: Served) -> None:
    call = CallRef("run_slow", "call_slow", "shop.pay", "acme", "ann", "", dict)
    gate.box.store.events.emit(RunEvent(EventCode.TOOL_CALL_REQUESTED, time.time() - 3 * SILENT_S, call, {}))
    await gate.box.store.events.flush()
    status = (await gate.http.get(STATUS)).json()

    assert [run["run_id"] for run in status["silent"]] == ["run_slow"]
    assert any("run run_slow (shop.pay) is running and has no event for 3 h" in one for one in status["problems"])


async def test_the_oldest_pending_action_is_measured(gate: Served) -> None:
    await gate.http.post("/api/v1/calls", json={"tool": "drop", "arguments": {"name": "t"}})
    await gate.box.store.events.flush()
    status, text = (await gate.http.get(STATUS)).json(), (await gate.http.get("/metrics")).text

    assert status["pending"]["open"] == 1
    assert status["runs"] == {"running": 0, "paused": 1}
    assert 0 < float(re.findall(r"^toolpost_pending_oldest_seconds (\S+)$", text, re.MULTILINE)[0]) < 60
    assert 'toolpost_open_runs{status="paused"} 1\n' in text


async def test_durations_are_a_histogram(gate: Served) -> None:
    for number in range(3):
        await gate.box.call("add", {"a": number, "b": 2})
    text = (await gate.http.get("/metrics")).text

    counts = [
        int(one)
        for one in re.findall(r'^toolpost_tool_call_seconds_bucket{tool="add",le="\S+"} (\d+)$', text, re.MULTILINE)
    ]
    assert (len(counts), counts[-1], counts) == (16, 3, sorted(counts))
    assert 'toolpost_tool_call_seconds_bucket{tool="add",le="+Inf"} 3\n' in text
    assert 'toolpost_tool_call_seconds_count{tool="add"} 3\n' in text
    assert float(re.findall(r'^toolpost_tool_call_seconds_sum{tool="add"} (\S+)$', text, re.MULTILINE)[0]) > 0
    assert text.count("# TYPE toolpost_tool_call_seconds histogram\n") == 1


@pytest.mark.req("OPS-01")
async def test_metrics_contain_disk_lag_and_processes(gate: Served) -> None:
    text = (await gate.http.get("/metrics")).text
    values = dict(re.findall(r"^toolpost_(\S+) (\S+)$", text, re.MULTILINE))

    assert int(values["disk_free_bytes"]) > 1_000_000
    assert int(values["disk_total_bytes"]) >= int(values["disk_free_bytes"])
    assert (values['owners{state="alive"}'], values['owners{state="ended"}']) == ("1", "0")
    assert float(values["event_lag_seconds"]) < 60
    assert [values[f'queue_{name}{{queue="runs"}}'] for name in ("depth", "running", "oldest_seconds")] == [
        "0",
        "0",
        "0",
    ]


async def test_the_status_is_that_of_all_workers(pair: Pair) -> None:
    status = (await pair.one.http.get(STATUS)).json()
    text = (await pair.other.http.get("/metrics")).text

    assert (status["workers"], len(status["owners"])) == (2, 2)
    assert text.count("\ntoolpost_disk_free_bytes ") == 1


@pytest.mark.req("OPS-02")
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if not one.no_caller], ids=lambda one: one.id)
async def test_a_key_with_observe_is_refused_by_every_other_operation(gate: Served, operation: Any) -> None:
    path = re.sub(r"{\w+}", "add", f"/api/v1{operation.path}")
    body: Any = None if operation.takes is None else {}
    answer = await gate.http.request(operation.method, path, headers=await observer(gate), json=body)

    if operation.id == "show_status":
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")


@pytest.mark.req("OPS-02")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("POST", "/mcp/all"),
        ("POST", "/a2a"),
        ("GET", "/.well-known/utcp"),
        ("GET", "/api/v1/events"),
        ("POST", "/metrics"),
        ("GET", "/nothing"),
    ],
)
async def test_a_key_with_observe_is_refused_elsewhere(gate: Served, method: str, path: str) -> None:
    answer = await gate.http.request(method, path, headers=await observer(gate))

    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")


async def test_a_key_with_observe_reads_metrics_and_opens_no_session(gate: Served) -> None:
    key = await observer(gate)
    metrics = await gate.http.get("/metrics", headers=key)
    session = await gate.http.post("/api/v1/sessions", headers=key)

    assert (metrics.status_code, session.status_code) == (200, 403)
    assert "toolpost_store_writable 1\n" in metrics.text


@pytest.mark.parametrize("scopes", [["observe", "call"], ["observe", "answer"], ["observe", "admin"]])
async def test_observe_is_alone(gate: Served, scopes: list[str]) -> None:
    answer = await gate.http.post("/api/v1/keys", json={"name": "bot", "scopes": scopes})

    assert (answer.status_code, answer.json()["code"]) == (400, "key_scopes")
    with pytest.raises(ToolError, match="can do nothing else"):
        check_key_scopes(["observe"], person=True)


async def test_a_token_with_observe_and_call_sees_the_data_of_its_user_only(tmp_path: Path, issuer: str) -> None:
    roles = {"watch": {"scopes": ["observe"]}, "bot": {"scopes": ["call"]}, "boss": {"scopes": ["answer"]}}
    settings = oidc(issuer, person_clients=["desk"], tenant_claim=None, roles=roles)
    async with served(tmp_path / "data", [add], server=settings) as gate:
        watch = signed(issuer, azp="desk", roles=["watch"])
        both = signed(issuer, sub="ann", azp="desk", roles=["watch", "bot"])
        other = signed(issuer, sub="bob", azp="bots", roles=["bot"])
        await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}}, headers=other)
        seen = (await gate.http.get("/api/v1/runs", headers=both)).json()
        refused = [await gate.http.get(path, headers=watch) for path in ("/api/v1/runs", "/api/v1/me")]
        session = await gate.http.post("/api/v1/sessions", headers=watch)
        person = signed(issuer, azp="desk", roles=["watch", "boss"])
        opened = (await gate.http.post("/api/v1/sessions", headers=person)).json()
        status = await gate.http.get(STATUS, headers=watch)

    assert [one.status_code for one in (*refused, session)] == [403, 403, 403]
    assert seen["items"] == []
    assert opened["me"]["scopes"] == ["answer"]
    assert status.status_code == 200


async def test_an_agent_and_a_stranger_do_not_see_the_status(gate: Served) -> None:
    agent = await gate.http.get(STATUS, headers=await gate.key("acme:bot", "call"))
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False) as stranger:
        nobody = await stranger.get(STATUS)

    assert (agent.status_code, nobody.status_code) == (403, 401)
