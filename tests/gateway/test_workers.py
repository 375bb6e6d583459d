"""Several workers on one store: whoever is asked, the answer is right; one that dies is started again."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.program import child_environment, command
from tests.gateway.running import furnish, running
from tests.gateway.serving import Served, served
from tests.gateway.test_rest_events import listening, take
from toolpost import ExternalToolConfig, Toolbox, tool
from toolpost.contracts.callers import CallerScope
from toolpost.gateway.mcp.tasks import TASKS
from toolpost.gateway.rest.sources import apply_changes
from toolpost.gateway.siblings import Siblings, WorkerPlace

VERSION = "2026-07-28"


class Pair(NamedTuple):
    """Two workers of one gateway."""

    one: Served
    other: Served
    gone: asyncio.Event


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    gone = asyncio.Event()

    @tool(side_effects="pure")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool(side_effects="pure")
    async def hang() -> str:
        """Wait until it is cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return "never"

    with tempfile.TemporaryDirectory(prefix="toolpost-") as sockets:
        places = [WorkerPlace(number, 2, sockets) for number in (0, 1)]
        async with (
            served(tmp_path / "data", [add, hang], place=places[0]) as one,
            served(tmp_path / "data", [add, hang], place=places[1]) as other,
        ):
            yield Pair(one, other, gone)


class EitherWorker(httpx2.AsyncBaseTransport):
    """Send each request to the other worker than the one before."""

    def __init__(self, pair: Pair) -> None:
        self._urls = [httpx2.URL(gate.url) for gate in (pair.one, pair.other)]
        self._http = httpx2.AsyncHTTPTransport()
        self.workers: list[int] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = self._urls[len(self.workers) % 2]
        self.workers.append(len(self.workers) % 2)
        request.url = request.url.copy_with(port=url.port)
        return await self._http.handle_async_request(request)

    async def aclose(self) -> None:
        await self._http.aclose()


async def test_a_session_of_an_older_client_is_found_from_any_worker(pair: Pair) -> None:
    either = EitherWorker(pair)
    headers = {"Authorization": pair.one.http.headers["Authorization"]}
    async with httpx2.AsyncClient(transport=either, headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{pair.one.url}/mcp", http_client=http)
        async with Client(transport, mode="legacy") as client:
            listed = await client.list_tools()
            results = [await client.call_tool("add", {"a": 1, "b": n}) for n in range(6)]

    assert {"add", "hang"} <= {one.name for one in listed.tools}
    assert [result.structured_content for result in results] == [{"result": 1 + n} for n in range(6)]
    assert set(either.workers) == {0, 1}


async def ask(gate: Served, method: str, **params: Any) -> dict[str, Any]:
    """Send a request as a newer client that knows tasks does."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
    }
    headers = {
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
        "Mcp-Name": params.get("taskId") or params["name"],
        "Accept": "application/json, text/event-stream",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    result: dict[str, Any] = (await gate.http.post("/mcp", json=body, headers=headers)).json()["result"]
    return result


async def test_a_task_is_asked_about_and_cancelled_at_any_worker(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.gateway.mcp.calls._TASK_AFTER_S", 0.01)
    task_id = (await ask(pair.one, "tools/call", name="hang", arguments={}))["taskId"]
    seen = await ask(pair.other, "tasks/get", taskId=task_id)
    await ask(pair.other, "tasks/cancel", taskId=task_id)
    async with asyncio.timeout(30):
        await pair.gone.wait()

    assert seen["status"] == "working"


async def test_events_of_one_worker_come_to_listeners_of_the_other(pair: Pair) -> None:
    async with listening(pair.other, tool="add") as events:
        for n in range(10):
            await pair.one.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": n, "b": 1}})
            await pair.other.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": n, "b": 2}})
        seen = await take(events, 60)

    ids = [event["id"] for event in seen]
    assert ids == sorted(set(ids))
    assert sum(event["type"] == "TOOL_CALL_COMPLETED" for event in seen) == 20


@pytest.mark.parametrize("mark", ["9" * 5000, "٣", "01", "-1", "2", ""])
async def test_a_session_of_a_worker_that_there_is_not_is_answered_as_unknown(pair: Pair, mark: str) -> None:
    headers: dict[str, Any] = {"Mcp-Session-Id": f"x.{mark}".encode(), "Accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    reply = await pair.one.http.post("/mcp", json=ping, headers=headers)

    assert reply.status_code == 404
    assert "session" in reply.text.lower()


@pytest.mark.parametrize(("scope", "status"), [(None, 401), ("answer", 403)])
async def test_a_forbidden_request_is_refused_before_its_body_is_read(
    pair: Pair, scope: CallerScope | None, status: int
) -> None:
    bearer = {"Authorization": "Bearer none"} if scope is None else await pair.one.key("acme:ann", scope)
    url = httpx2.URL(pair.one.url)
    lines = ["POST /mcp HTTP/1.1", f"Host: {url.host}:{url.port}", "Mcp-Session-Id: x.1", "Content-Length: 4000000"]
    head = [*lines, f"Authorization: {bearer['Authorization']}", "", ""]
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write("\r\n".join(head).encode())
    async with asyncio.timeout(30):
        first = await reader.readline()
    writer.close()

    assert first.split()[1] == str(status).encode()


async def test_a_key_counts_and_a_run_is_cancelled_in_whatever_worker(pair: Pair) -> None:
    call, key = {"tool": "add", "arguments": {"a": 1, "b": 2}}, {"Idempotency-Key": "k"}
    first = await pair.one.http.post("/api/v1/calls", json=call, headers=key)
    again = await pair.other.http.post("/api/v1/calls", json=call, headers=key)
    started = (await pair.one.http.post("/api/v1/calls", json={"tool": "hang", "mode": "async"})).json()
    cancelled = await pair.other.http.post(f"/api/v1/runs/{started['run_id']}/cancel")
    async with asyncio.timeout(30):
        await pair.gone.wait()

    assert again.json()["call_id"] == first.json()["call_id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert cancelled.status_code == 202


async def test_figures_are_those_of_all_workers(pair: Pair) -> None:
    for gate, times in ((pair.one, 1), (pair.other, 2)):
        for _ in range(times):
            await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 2}})
    text = (await pair.one.http.get("/metrics")).text
    stats = (await pair.other.http.get("/api/v1/stats")).json()

    assert 'toolpost_tool_calls_total{tool="add",worker="0"} 1\n' in text
    assert 'toolpost_tool_calls_total{tool="add",worker="1"} 2\n' in text
    assert text.count("# TYPE toolpost_tool_calls_total") == text.count("\ntoolpost_pending_actions ") == 1
    assert stats["calls"]["add"]["count"] == 3


async def test_sources_are_added_and_removed_in_all_workers(pair: Pair, tmp_path: Path) -> None:
    code = '@tool(side_effects="pure")\ndef double(n: int) -> int:\n    "Double."\n    return 2 * n\n'
    (tmp_path / "more.py").write_text(f"from toolpost import tool\n\n{code}")
    source = {"name": "more", "transport": "python", "connection": str(tmp_path / "more.py")}
    added = await pair.one.http.post("/api/v1/sources", json=source)
    called = await pair.other.http.post("/api/v1/calls", json={"tool": "more.double", "arguments": {"n": 4}})
    removed = await pair.other.http.delete("/api/v1/sources/more")
    left = (await pair.one.http.get("/api/v1/sources")).json()

    assert (added.status_code, removed.status_code, left) == (201, 204, [])
    assert called.json()["content"] == 8


async def test_a_worker_that_does_not_do_what_another_was_told_is_named_in_the_log(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "more.py").write_text("")
    source = {"name": "more", "transport": "python", "connection": str(tmp_path / "more.py")}
    await pair.other.box.sources.add(ExternalToolConfig.model_validate(source))
    added = await pair.one.http.post("/api/v1/sources", json=source)

    assert added.status_code == 201
    assert "worker 1 refused POST /api/v1/sources: HTTP 409" in caplog.text


async def test_a_worker_that_is_started_later_is_reported_the_last_change_of_each_source(tmp_path: Path) -> None:
    def source(name: str, tool_name: str = "hi") -> dict[str, str]:
        file = tmp_path / f"{tool_name}.py"
        file.write_text(f"from toolpost import tool\n\n@tool(side_effects='pure')\ndef {tool_name}() -> None: ...\n")
        return {"name": name, "transport": "python", "connection": str(file)}

    configured = [source("moved"), source("gone"), source("stays")]
    with tempfile.TemporaryDirectory(prefix="toolpost-") as sockets:
        place = WorkerPlace(0, 2, sockets)
        async with served(tmp_path / "data", sources=configured, place=WorkerPlace(1, 2, sockets)) as gate:
            for number in range(5):
                added = await gate.http.post("/api/v1/sources", json=source(f"brief_{number}"))
                removed = await gate.http.delete(f"/api/v1/sources/brief_{number}")
                assert (added.status_code, removed.status_code) == (201, 204)
            await gate.http.delete("/api/v1/sources/gone")
            for tool_name in ("first", "second"):
                await gate.http.delete("/api/v1/sources/moved")
                await gate.http.post("/api/v1/sources", json=source("moved", tool_name))
            changed = await Siblings(place, (tmp_path / "data" / "token").read_text()).changed_sources()
        async with Toolbox(settings={"data_dir": str(tmp_path / "more"), "sources": configured}) as box:
            await apply_changes(box, changed)
            tools = [tool.spec.name for tool in box.registry.list()]

    assert (list(changed.changes), changed.count) == (["gone", "moved"], 15)
    assert tools == ["stays.hi", "moved.second"]


async def test_no_client_passes_for_a_sibling(pair: Pair) -> None:
    forged = {"X-Toolpost-Client": "127.0.0.1"}
    replies = [
        await pair.one.http.get("/workers/source-changes", headers=forged),
        await pair.one.http.get("/metrics", headers=forged),
    ]

    assert replies[0].status_code == 404
    assert replies[1].headers["content-type"].startswith("text/plain")


# ---------------------------------------------------------------- as a program


@pytest.mark.programs
async def test_a_worker_that_dies_is_started_again_and_all_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    gateway = subprocess.Popen(
        command("up", "--port", "0", "--workers", "2", "--json"),
        cwd=furnish(tmp_path),
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert gateway.stdout is not None
    assert gateway.stderr is not None
    told = json.loads(await asyncio.to_thread(gateway.stdout.readline))
    bearer = {"Authorization": f"Bearer {Path(told['token_file']).read_text()}"}
    workers = psutil.Process(gateway.pid).children()
    workers[0].kill()
    again = await asyncio.to_thread(gateway.stderr.readline)
    async with httpx2.AsyncClient(headers=bearer, timeout=60) as http:
        call = {"tool": "local.add", "arguments": {"a": 1, "b": 2}}
        results = [(await http.post(f"{told['rest']}/calls", json=call)).json()["content"] for _ in range(5)]
    gateway.kill()
    gateway.communicate()
    _, left = await asyncio.to_thread(psutil.wait_procs, workers, timeout=60)

    assert len(workers) == 2
    assert "worker 0 ended with SIGKILL" in again
    assert results == [3] * 5
    assert left == []


@pytest.mark.programs
async def test_workers_that_die_together_do_not_wait_for_each_other(tmp_path: Path) -> None:
    home, errors = furnish(tmp_path), tmp_path / "stderr"
    with errors.open("w") as stderr, running(home, "--workers", "2", stderr=stderr, warm=False) as gateway:
        workers = psutil.Process(gateway.process.pid).children()
        for worker in workers:
            worker.kill()
        async with asyncio.timeout(60), httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            metrics = gateway.address.replace("/mcp", "/metrics")
            while 'worker="1"' not in (text := (await http.get(metrics)).text) or 'worker="0"' not in text:
                await asyncio.sleep(0.05)

    told = errors.read_text()
    assert len(workers) == 2
    assert told.count("ended with SIGKILL") == 2
    assert "did not answer GET /workers/source-changes" not in told


@pytest.mark.programs
async def test_what_came_of_a_changed_configuration_is_said_once_for_all_workers(tmp_path: Path) -> None:
    home, errors = furnish(tmp_path), tmp_path / "stderr"
    with errors.open("w") as stderr, running(home, "--workers", "2", stderr=stderr) as gateway:
        more = "  - {name: more, transport: python, connection: ./tools.py}\n"
        (home / "toolpost.yaml").write_text((home / "toolpost.yaml").read_text() + more)
        metrics = gateway.address.replace("/mcp", "/metrics")
        async with asyncio.timeout(60), httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            while (await http.get(metrics)).text.count('toolpost_source_up{source="more",') < 2:
                await asyncio.sleep(0.05)
            while "source added: more" not in errors.read_text():
                await asyncio.sleep(0.05)

    assert errors.read_text().count("source added: more") == 1


async def test_a_session_is_valid_and_ended_in_all_workers_and_a_ticket_is_used_once(pair: Pair) -> None:
    async def redeem(gate: Served, text: str) -> httpx2.Response:
        return await gate.http.post("/api/v1/sessions/redeem", json={"ticket": text})

    text = (await pair.one.http.post("/api/v1/tickets")).json()["ticket"]
    opened = await asyncio.gather(redeem(pair.one, text), redeem(pair.other, text))
    [session] = [reply.json() for reply in opened if reply.status_code == 200]
    mine = {"Authorization": f"Bearer {session['token']}"}
    known = [await gate.http.get("/api/v1/me", headers=mine) for gate in (pair.one, pair.other)]
    await pair.other.http.delete(f"/api/v1/sessions/{session['me']['session']['id']}", headers=mine)
    after = [await gate.http.get("/api/v1/me", headers=mine) for gate in (pair.one, pair.other)]
    tries = [await redeem(gate, "tpt_0_x") for gate in (pair.one, pair.other) * 5]

    assert sorted(reply.status_code for reply in opened) == [200, 410]
    assert [reply.status_code for reply in known] == [200, 200]
    assert [reply.status_code for reply in after] == [401, 401]
    assert [reply.status_code for reply in tries] == [401] * 8 + [429] * 2  # two of ten were taken above
