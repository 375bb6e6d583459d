"""Calls as tasks, for clients that know them: followed, answered and cancelled, by their own caller alone."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from conformance.fixture import Fixture, serving, serving_fixture
from tests.gateway.serving import OPERATOR, Served, served
from tests.patient_settings import PatientSettings
from toolpost import Toolbox, ToolContext, tool
from toolpost.gateway.mcp import calls as mcp_calls
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.mcp.tasks import TASKS

VERSION = "2026-07-28"


def request(method: str, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A request of a client that knows tasks, and its headers."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {TASKS: {}}},
    }
    headers = {
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
        "Mcp-Name": params.get("taskId") or params["name"],
        "Accept": "application/json, text/event-stream",
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers


class Caller:
    """A client of the newer protocol that declares tasks."""

    def __init__(self, url: str, user: str, fixture: Fixture) -> None:
        self.fixture = fixture
        self._http = httpx2.AsyncClient(headers={"X-User": user}, trust_env=False, timeout=60)
        self._url = url

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        body, headers = request(method, **params)
        answered: dict[str, Any] = (await self._http.post(self._url, json=body, headers=headers)).json()
        return answered

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = (await self.ask("tools/call", name=f"fixture__{tool}", arguments=arguments))["result"]
        return result

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Ask about a task until it stands so."""
        async with asyncio.timeout(60):
            while True:
                task: dict[str, Any] = (await self.ask("tasks/get", taskId=task_id))["result"]
                if task["status"] in statuses:
                    return task
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        await self._http.aclose()


@asynccontextmanager
async def callers(*users: str) -> AsyncGenerator[list[Caller]]:
    fixture = Fixture()
    async with serving_fixture(fixture) as url:
        source = {"name": "fixture", "transport": "mcp", "connection": url, "required": True}
        settings = {"data_dir": None, "policy": "exploratory", "builtins": "none", "sources": [source]}
        async with Toolbox(settings=PatientSettings.model_validate(settings)) as box:
            server = McpServer(
                box,
                principal=lambda ctx: str(ctx.request and ctx.request.headers["x-user"]),
                interactive=lambda _ctx: True,
            )
            async with server.publishing(), serving(server.server) as served:
                made = [Caller(served, user, fixture) for user in users]
                yield made
                for one in made:
                    await one.close()


async def test_a_task_is_its_callers_alone_and_is_cancelled_at_the_server_behind() -> None:
    async with callers("acme:ann", "acme:bob") as (ann, bob):
        task_id = (await ann.call("slow_compute", seconds=60))["taskId"]
        seen = await bob.ask("tasks/get", taskId=task_id)
        refused = await bob.ask("tasks/cancel", taskId=task_id)
        async with asyncio.timeout(30):
            while not ann.fixture.computing:
                await asyncio.sleep(0.02)
            await ann.ask("tasks/cancel", taskId=task_id)
            while ann.fixture.computing:
                await asyncio.sleep(0.02)
        ended = await ann.until(task_id, "cancelled")

    assert (seen["error"]["code"], refused["error"]["code"]) == (-32602, -32602)
    assert "result" not in ended


@pytest.mark.waits
async def test_questions_of_a_task_are_answered_in_parts_and_it_continues() -> None:
    async with callers("acme:ann") as (ann,):
        task_id = (await ann.call("multi_input"))["taskId"]
        asked = (await ann.until(task_id, "input_required"))["inputRequests"]
        form = {"action": "accept", "content": {"name": "x"}}
        await ann.ask("tasks/update", taskId=task_id, inputResponses={"first": form})
        left = (await ann.until(task_id, "input_required"))["inputRequests"]
        await ann.ask("tasks/update", taskId=task_id, inputResponses={"second": form})
        done = await ann.until(task_id, "completed", "failed")

    assert (set(asked), set(left)) == ({"first", "second"}, {"second"})
    assert done["result"]["content"][0]["text"].count("accept") == 2


@pytest.mark.waits
async def test_a_task_that_breaks_the_protocol_has_failed_and_one_whose_tool_fails_is_completed() -> None:
    async with callers("acme:ann") as (ann,):
        broken = await ann.until((await ann.call("protocol_error_job"))["taskId"], "failed", "completed")
        failing = await ann.until((await ann.call("failing_job"))["taskId"], "failed", "completed")

    assert broken["error"] == {"code": -32603, "message": "the job broke"}
    assert (failing["status"], failing["result"]["isError"]) == ("completed", True)


class Table:
    """Tools that wait for `go`: a call that ends before its run is on disk needs no task."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.tools = [tool(side_effects="pure")(self.count), tool(side_effects="pure")(self.book)]

    async def count(self) -> int:
        """Count the seats."""
        await self.go.wait()
        return 3

    async def book(self, ctx: ToolContext) -> str:
        """Book a table for as many as a person says."""
        await self.go.wait()
        guests = await ctx.pause("guests", {"prompt": "How many guests?"})
        return f"a table for {guests}"


async def ask(gate: Served, method: str, headers: dict[str, str] | None = None, **params: Any) -> dict[str, Any]:
    body, sent = request(method, **params)
    answered: dict[str, Any] = (await gate.http.post("/mcp", json=body, headers={**sent, **(headers or {})})).json()
    return answered


async def ended_task(gate: Served, task_id: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while (task := (await ask(gate, "tasks/get", taskId=task_id))["result"])["status"] == "working":
            await asyncio.sleep(0.02)
    return cast("dict[str, Any]", task)


@tool(side_effects="pure")
async def hang() -> None:
    """Wait until it is cancelled."""
    await asyncio.Event().wait()


@pytest.mark.sqlite
async def test_a_task_is_named_once_its_run_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_calls, "_TASK_AFTER_S", 0)
    database, read = tmp_path / "data" / "toolpost.db", "SELECT 'task_' || run_id FROM runs"
    async with served(tmp_path / "data", [hang]) as gate:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else can write
            asking = asyncio.create_task(ask(gate, "tools/call", name="hang", arguments={}))
            for _ in range(20):
                assert (await gate.http.get("/api/v1/tools")).status_code == 200
            told_early = asking.done()
            other.execute("ROLLBACK")
            created = (await asking)["result"]
            on_disk = other.execute(read).fetchall()

    assert not told_early
    assert (created["resultType"], on_disk) == ("task", [(created["taskId"],)])


async def test_a_task_of_a_source_that_still_connects_is_named_once_its_run_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "_TASK_AFTER_S", 0)
    (tmp_path / "slow.py").write_text(
        "import asyncio, time\nfrom pathlib import Path\nfrom toolpost import tool\n\n"
        "while not Path(__file__).with_name('go').exists():\n    time.sleep(0.01)\n\n"
        "@tool(side_effects='pure')\nasync def hang() -> None:\n    await asyncio.Event().wait()\n"
    )
    source = {"name": "slow", "transport": "python", "connection": str(tmp_path / "slow.py")}
    async with served(tmp_path / "data", sources=[source], startup_wait_s=0) as gate:
        asking = asyncio.create_task(ask(gate, "tools/call", name="slow.hang", arguments={}))
        for _ in range(20):
            assert (await gate.http.get("/healthz")).status_code == 200
        told_early = asking.done()
        (tmp_path / "go").touch()
        created = (await asking)["result"]
        run = await gate.box.run(created["taskId"].removeprefix("task_"), user=OPERATOR)

    assert (told_early, created["resultType"]) == (False, "task")
    assert run is not None


async def test_tasks_are_taken_up_again_after_a_restart_by_their_own_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "_TASK_AFTER_S", 0)
    table = Table()
    async with served(tmp_path / "data", table.tools) as gate:
        counted, booked = [
            (await ask(gate, "tools/call", name=name, arguments={}))["result"]["taskId"] for name in ("count", "book")
        ]
        table.go.set()
        await ended_task(gate, counted)
        async with asyncio.timeout(30):
            while not (waiting := await gate.box.pending.list(by=OPERATOR)):
                await asyncio.sleep(0.02)
    async with served(tmp_path / "data", table.tools) as gate:
        stranger = await ask(gate, "tasks/get", await gate.key("acme:bob", "call"), taskId=booked)
        waits = (await ask(gate, "tasks/get", taskId=booked))["result"]
        await gate.box.answer(waiting[0].id, 4, by=OPERATOR)
        results = [(await ended_task(gate, task_id))["result"] for task_id in (counted, booked)]
        made_up = await ask(gate, "tasks/get", taskId="task_run_1")

    assert (stranger["error"]["code"], made_up["error"]["code"]) == (-32602, -32602)
    assert waits["status"] == "working"
    assert [result["content"][0]["text"] for result in results] == ["3", "a table for 4"]


async def test_a_task_that_waits_for_a_person_is_cancelled_after_a_restart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "_TASK_AFTER_S", 0)
    table = Table()
    async with served(tmp_path / "data", table.tools) as gate:
        task_id = (await ask(gate, "tools/call", name="book", arguments={}))["result"]["taskId"]
        table.go.set()
        async with asyncio.timeout(30):
            while not await gate.box.pending.list(by=OPERATOR):
                await asyncio.sleep(0.02)
    async with served(tmp_path / "data", table.tools) as gate:
        while not (await ask(gate, "tasks/get", taskId=task_id))["result"].get("statusMessage"):
            await asyncio.sleep(0.02)
        await ask(gate, "tasks/cancel", taskId=task_id)
        task = (await ask(gate, "tasks/get", taskId=task_id))["result"]
        waiting = await gate.box.pending.list(by=OPERATOR)

    assert (task["status"], waiting) == ("cancelled", [])
