"""What one process knows of a server, all processes on the store know: breakers, probes, gates and retry budgets."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from toolpost import Completed, ExternalToolConfig, Failed, RetryPolicy, Toolbox
from toolpost.contracts.clock import Clock

PATIENCE_S = 30.0
ONCE = RetryPolicy(max_attempts=1)


class Server:
    """An API whose next responses the test decides; it counts the requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.head = "200 OK"
        self.may_respond = asyncio.Event()
        self.may_respond.set()
        self.url = ""
        self.handlers = set[asyncio.Task[None]]()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers.add(asyncio.get_running_loop().create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            self.requests += 1
            await self.may_respond.wait()
            head = f"HTTP/1.1 {self.head}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
            writer.write(head.encode())
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    api = Server()
    async with await asyncio.start_server(api.accept, "127.0.0.1", 0) as listening:
        api.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield api
        await asyncio.gather(*api.handlers)


@asynccontextmanager
async def two_processes(
    folder: Path, server: Server, shift: list[float], retries: RetryPolicy = ONCE
) -> AsyncGenerator[list[Toolbox]]:
    """Open two Toolboxes on one data folder, as two processes do."""
    operation = {"operationId": "work", "responses": {"200": {"description": "done"}}}
    document = {"openapi": "3.1.0", "info": {"title": "api", "version": "1"}, "paths": {"/work": {"get": operation}}}
    (folder / "api.json").write_text(json.dumps({**document, "servers": [{"url": server.url}]}))
    source = ExternalToolConfig(
        name="api", transport="http", connection=str(folder / "api.json"), retry_policy=retries, required=True
    )
    clock = Clock(monotonic=lambda: time.monotonic() + shift[0])
    settings = {"data_dir": str(folder / "data"), "builtins": []}
    async with AsyncExitStack() as stack:
        boxes = [Toolbox(settings={**settings, "sources": [source]}, clock=clock) for _ in range(2)]
        yield [await stack.enter_async_context(box) for box in boxes]


async def error_of(box: Toolbox) -> str:
    outcome = await box.call("api.work", timeout_s=5)
    return outcome.error.error_code if isinstance(outcome, Failed) else outcome.status


async def until_open(box: Toolbox) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (breaker := box.router.guards.breaker("api")) is None or breaker.state == "closed":
            await asyncio.sleep(0.01)


async def test_a_breaker_that_one_process_opens_is_open_in_another(tmp_path: Path, server: Server) -> None:
    server.head = "503 Service Unavailable"
    async with two_processes(tmp_path, server, [0.0]) as (one, other):
        assert [await error_of(one) for _ in range(6)] == ["server_error"] * 5 + ["circuit_open"]
        await until_open(other)
        assert await error_of(other) == "circuit_open"
        events = [event.code.name for event in await one.events() if event.code.name.startswith("BREAKER")]

    assert server.requests == 5
    assert events == ["BREAKER_OPENED"]


@pytest.mark.sqlite  # it moves the clock of processes, and the cooldown is on the clock of a server
async def test_one_process_probes_and_closes_the_breaker_for_all(tmp_path: Path, server: Server) -> None:
    shift = [0.0]
    server.head = "503 Service Unavailable"
    async with two_processes(tmp_path, server, shift) as (one, other):
        for _ in range(5):
            await one.call("api.work")
        await until_open(other)
        shift[0], server.head = 31.0, "200 OK"
        server.may_respond.clear()
        probes = [asyncio.create_task(error_of(box)) for box in (one, other, one, other)]
        async with asyncio.timeout(PATIENCE_S):
            while sum(probe.done() for probe in probes) < 3 or server.requests < 6:
                await asyncio.sleep(0.01)
        server.may_respond.set()
        results = sorted([await probe for probe in probes])
        async with asyncio.timeout(PATIENCE_S):
            while {await error_of(box) for box in (one, other)} != {"completed"}:
                await asyncio.sleep(0.01)

    assert results == ["circuit_open"] * 3 + ["completed"]


async def test_a_pause_that_a_server_requests_holds_for_all_processes(tmp_path: Path, server: Server) -> None:
    shift = [0.0]
    server.head = "429 Too Many Requests\r\nRetry-After: 60"
    async with two_processes(tmp_path, server, shift) as (one, other):
        assert await error_of(one) == "rate_limited"
        async with asyncio.timeout(PATIENCE_S):
            while not other.router.guards.gates.opens_at:
                await asyncio.sleep(0.01)
        refused = [await box.call("api.work", timeout_s=5) for box in (one, other)]
        shift[0], server.head = 61.0, "200 OK"
        later = [await box.call("api.work") for box in (one, other)]

    errors = [outcome.error for outcome in refused if isinstance(outcome, Failed)]
    assert ["nothing was sent" in error.message and error.is_retryable for error in errors] == [True, True]
    assert all(50 < (error.retry_after_s or 0) <= 60 for error in errors)
    assert [type(outcome) for outcome in later] == [Completed, Completed]
    assert server.requests == 3


async def test_processes_share_one_budget_of_retries(tmp_path: Path, server: Server) -> None:
    hasty = RetryPolicy(max_attempts=2, wait_exponential_min_s=0.01, wait_exponential_max_s=0.1)
    async with two_processes(tmp_path, server, [0.0], hasty) as boxes:
        for number in range(40):
            server.head = "503 Service Unavailable" if number % 3 else "200 OK"  # the breaker stays closed
            await boxes[number % 2].call("api.work")

    successes = 14
    assert 10 <= server.requests - 40 <= 10 + successes / 10
