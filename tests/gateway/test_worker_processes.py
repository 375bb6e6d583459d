"""Two worker processes on one store, each asked on a connection of its own: rates, keys, answers and events hold."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.cli.program import child_environment, warm_command
from tests.gateway.running import CONFIG, Gateway, furnish, running
from tests.gateway.test_rest_events import read_events, take

pytestmark = pytest.mark.programs
_PER_MINUTE = 4


class Workers:
    """A gateway of two workers, and connections of which each is held by a worker that was chosen."""

    def __init__(self, rest: str, token: str, processes: list[psutil.Process], stack: AsyncExitStack) -> None:
        self._rest = rest
        self._token = token
        self._processes = processes
        self._stack = stack

    async def connect(self, number: int, *, token: str | None = None) -> httpx2.AsyncClient:
        """Return a client with one connection, which the other worker cannot take because it is stopped."""
        bearer = {"Authorization": f"Bearer {token or self._token}"}
        limits = httpx2.Limits(max_connections=1, keepalive_expiry=None)
        client = httpx2.AsyncClient(base_url=self._rest, headers=bearer, limits=limits, timeout=60, trust_env=False)
        http = await self._stack.enter_async_context(client)
        other = self._processes[1 - number]
        other.suspend()
        try:
            assert (await http.get(self._rest.replace("/api/v1", "/healthz"))).status_code == 200
        finally:
            other.resume()
        return http


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = f"{CONFIG}server: {{requests_per_minute: {_PER_MINUTE}}}\n"
    return furnish(tmp_path_factory.mktemp("home"), config=config)


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[Gateway]:
    """One for all tests: each asks about calls, keys and events that are its own."""
    with running(home, "--workers", "2", warm=False) as started:
        yield started


@pytest.fixture
async def workers(gateway: Gateway) -> AsyncIterator[Workers]:
    rest, processes = gateway.address.replace("/mcp", "/api/v1"), psutil.Process(gateway.process.pid).children()
    async with AsyncExitStack() as stack:
        yield Workers(rest, gateway.token, processes, stack)


def new_key(home: Path) -> str:
    """Create a key for an agent, as an operator does."""
    arguments = warm_command("keys", "create", "bot", "--for", "acme:bot", "--json")
    done = subprocess.run(arguments, cwd=home, env=child_environment(), capture_output=True, text=True, check=True)
    key: str = json.loads(done.stdout)["key"]
    return key


async def test_a_key_has_one_rate_however_many_workers_it_talks_to(workers: Workers, home: Path) -> None:
    key = await asyncio.to_thread(new_key, home)
    both = [await workers.connect(number, token=key) for number in (0, 1)]
    began = time.monotonic()
    statuses = [(await both[number % 2].get("/tools")).status_code for number in range(4 * _PER_MINUTE)]
    regained = (time.monotonic() - began) * _PER_MINUTE / 60

    assert statuses[:_PER_MINUTE] == [200] * _PER_MINUTE
    assert statuses.count(200) <= _PER_MINUTE + regained
    assert set(statuses) == {200, 429}


async def test_an_address_has_one_rate_of_sign_ins_however_many_workers_it_talks_to(workers: Workers) -> None:
    both = [await workers.connect(number) for number in (0, 1)]
    began = time.monotonic()
    statuses = [(await both[number % 2].post("/sessions", json={})).status_code for number in range(16)]
    regained = (time.monotonic() - began) / 6

    assert statuses[:10].count(429) == 0
    assert 10 <= 16 - statuses.count(429) <= 10 + regained


async def test_an_idempotency_key_and_an_answer_count_once_at_both_workers_at_once(
    workers: Workers, home: Path
) -> None:
    one, other = [await workers.connect(number) for number in (0, 1)]
    call, key = {"tool": "local.drop", "arguments": {"name": "orders"}}, {"Idempotency-Key": "k"}
    asked = [await http.post("/calls", json=call, headers=key) for http in (one, other)]
    pending = asked[0].json()["pending"]["id"]
    approve = {"decision": "approve"}
    answered = await asyncio.gather(*(http.post(f"/pending/{pending}/answer", json=approve) for http in (one, other)))
    again = [await http.post("/calls", json=call, headers=key) for http in (one, other)]
    different = await other.post("/calls", json={**call, "arguments": {"name": "users"}}, headers=key)

    assert asked[0].json()["call_id"] == asked[1].json()["call_id"]
    assert sorted(reply.status_code for reply in answered) == [200, 409]
    assert [reply.json()["content"] for reply in again] == ["orders is gone"] * 2
    assert different.status_code == 422
    assert (home / "dropped").read_text() == "orders\n"


@asynccontextmanager
async def listening(http: httpx2.AsyncClient, **headers: str) -> AsyncIterator[Any]:
    async with http.stream("GET", "/events", params={"tool": "local.add"}, headers=headers) as reply:
        lines = reply.aiter_lines()
        assert await anext(lines) == ": listening"
        yield read_events(lines)


async def test_a_listener_continues_at_the_other_worker_without_a_gap(workers: Workers) -> None:
    calling = [await workers.connect(number) for number in (0, 1)]
    hearing = [await workers.connect(number) for number in (0, 1)]

    async def call(times: int) -> None:
        for number in range(times):
            arguments = {"a": number, "b": 1}
            await asyncio.gather(
                *(http.post("/calls", json={"tool": "local.add", "arguments": arguments}) for http in calling)
            )

    async with listening(hearing[0]) as events:
        await call(5)
        first = await take(events, 17)  # in the middle of a call
    await call(3)
    async with listening(hearing[1], **{"Last-Event-ID": str(first[-1]["id"])}) as events:
        await call(2)
        rest = await take(events, 43)
    seen = first + rest

    assert [event["id"] for event in seen] == sorted({event["id"] for event in seen})
    assert {event["type"] for event in seen} == {"TOOL_CALL_REQUESTED", "TOOL_CALL_STARTED", "TOOL_CALL_COMPLETED"}
    assert sum(event["type"] == "TOOL_CALL_COMPLETED" for event in seen) == 20
