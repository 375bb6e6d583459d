"""`toolpost serve` and `toolpost up`, as other programs start and reach them."""

import asyncio
import json
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.program import child_environment, command, warm_command
from tests.gateway.running import Gateway, furnish, running, serving
from toolpost.wire.http_server import listen_when_free

pytestmark = pytest.mark.programs
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
HANGING_CALL = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "local__hang", "arguments": {}}},
]
WATCHED = """
import importlib.abc, sys, threading
from toolpost.cli import main

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("mcp.server", "httpx2"):
            with open("imports", "a") as file:
                print(name, threading.current_thread() is threading.main_thread(), file=file)

sys.meta_path.insert(0, Watch())
sys.exit(main(["up", "--port", "0", "--json"]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return furnish(tmp_path)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_that_starts_serve_lists_and_calls(home: Path, era: Any) -> None:
    program, *arguments = command("serve") if era == "auto" else warm_command("serve")
    server = StdioServerParameters(command=program, args=arguments, cwd=home, env=child_environment())
    async with Client(stdio_client(server), mode=era) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        result = await client.call_tool("local__add", {"a": 2, "b": 3})

    assert {"local__add", "base64_encode"} <= names
    assert result.structured_content == {"result": 5}


async def test_the_command_in_the_result_of_a_waiting_call_works_as_it_stands(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program, *arguments = warm_command("serve", "--config", str(home / "toolpost.yaml"), "--user", "acme:agent")
    server = StdioServerParameters(command=program, args=arguments, cwd=home.parent, env=child_environment())
    async with Client(stdio_client(server), mode="legacy") as client:
        told = await client.call_tool("local__drop", {"name": "orders"})
    [hint] = re.findall(r"`toolpost (pending approve [^`]+)`", str(told.content))
    done = subprocess.run(
        warm_command(*shlex.split(hint)),
        cwd=tmp_path_factory.mktemp("elsewhere"),
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "orders is gone\n"), done.stderr
    assert (home / "dropped").read_text() == "orders\n"


async def test_up_serves_whoever_shows_the_token_of_the_data_folder(home: Path) -> None:
    with running(home) as gateway:
        address, token = gateway.address, home / ".toolpost" / "token"
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            async with Client(streamable_http_client(address, http_client=http)) as client:
                result = await client.call_tool("local__add", {"a": 2, "b": 3})
            foreign = await http.post(address, json={}, headers={"Host": "evil.example"})
            page = await http.post(address, json={}, headers={"Origin": "http://evil.example"})
            huge = await http.post(address, content=b"x" * 5_000_000)
        async with httpx2.AsyncClient() as http:
            stranger = await http.post(address, json={})
            health = await http.get(address.replace("/mcp", "/healthz"))

    assert result.structured_content == {"result": 5}
    assert [stranger.status_code, health.status_code] == [401, 200]
    assert foreign.status_code in (403, 421)
    assert (page.status_code, huge.status_code) == (403, 413)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


async def test_up_imports_the_sdk_of_mcp_for_its_first_client_and_not_on_the_event_loop(home: Path) -> None:
    with running(home, program=[sys.executable, "-c", WATCHED]) as gateway:
        async with httpx2.AsyncClient(headers=gateway.headers, timeout=60) as http:
            tools = await http.get(gateway.address.replace("/mcp", "/api/v1/tools"))
            early = (home / "imports").exists()
            async with Client(streamable_http_client(gateway.address, http_client=http)) as client:
                names = {one.name for one in (await client.list_tools()).tools}
        imported = dict(line.split() for line in (home / "imports").read_text().splitlines())

    assert (tools.status_code, early) == (200, False)
    assert "local__add" in names
    assert imported == {"mcp.server": "False", "httpx2": "False"}


async def test_up_finishes_the_calls_under_way_and_leaves_with_success(home: Path) -> None:
    with running(home, stopping=True, warm=False) as gateway:
        http = httpx2.AsyncClient(headers=gateway.headers, timeout=60)
        async with http, Client(streamable_http_client(gateway.address, http_client=http)) as client:
            await client.list_tools()  # a client looks up the output schema when the result comes
            call = asyncio.create_task(client.call_tool("local__nap", {}))
            while not (home / "begun").exists():
                await asyncio.sleep(0.05)
            gateway.process.send_signal(signal.SIGTERM)
            result = await call

    assert result.structured_content == {"result": "rested"}
    assert gateway.process.returncode == 0


def test_a_port_that_is_taken_is_said(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        second = subprocess.run(
            warm_command("up", "--port", port),
            cwd=home,
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port" in second.stderr


@contextmanager
def hanging_call(home: Path, gateway: Gateway) -> Iterator[None]:
    """A call that never ends by itself is under way."""
    url = gateway.address.replace("/mcp", "/api/v1/tools/local.hang")
    with ThreadPoolExecutor() as pool:
        pool.submit(httpx2.post, url, json={}, headers=gateway.headers, timeout=60)
        while not (home / "hanging").exists():
            assert gateway.process.poll() is None
        yield


def test_up_says_at_once_what_it_waits_for_when_it_stops(home: Path) -> None:
    with (
        (home / "said").open("w") as said,
        running(home, "--shutdown-limit", "0.5", stderr=said, stopping=True, warm=False) as gateway,
        hanging_call(home, gateway),
    ):
        gateway.process.send_signal(signal.SIGTERM)

    assert "stopping; waiting up to 0.5 s for 1 call: local.hang" in (home / "said").read_text()
    assert gateway.process.returncode == 0


def test_the_address_of_a_killed_gateway_is_free_while_its_workers_finish_their_calls(home: Path) -> None:
    options = ("--workers", "2", "--shutdown-limit", "5")
    with running(home, *options, stopping=True, warm=False) as gateway:
        workers, port = psutil.Process(gateway.process.pid).children(), gateway.address.split(":")[2].split("/")[0]
        with hanging_call(home, gateway):
            gateway.process.kill()
            with running(home, *options, "--port", port, warm=False) as second:
                health = httpx2.get(second.address.replace("/mcp", "/healthz"), timeout=60)
    psutil.wait_procs(workers, timeout=60)

    assert second.address == gateway.address
    assert health.status_code == 200


async def test_a_gateway_waits_for_the_address_of_one_that_says_that_it_stops() -> None:
    told: list[str] = []
    stops = b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"code": "stopping"}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(stops)
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]

    def leave() -> None:
        told.append("waits")
        other.close()

    async with listen_when_free("127.0.0.1", port, on_wait=leave) as listening:
        assert listening.getsockname()[1] == port
    assert told == ["waits"]


def test_serve_ends_quietly_with_a_client_that_is_gone_and_cancels_its_call(home: Path) -> None:
    environment = child_environment()
    with subprocess.Popen(
        serving(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in HANGING_CALL))
        process.stdin.flush()
        while not (home / "hanging").exists():
            assert process.poll() is None
        process.stdout.close()
        process.stdin.close()
        said, code = process.stderr.read(), process.wait(60)

    assert (code, said) == (0, b"")
    assert (home / "cancelled").exists()


def test_serve_answers_the_request_after_lines_that_are_none(home: Path) -> None:
    lines = [b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"id": 7}', b"x" * 50_000_000]
    hello, ready, _ = (json.dumps(message).encode() for message in HANGING_CALL)
    ping = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "ping"}).encode()
    sent = b"\n".join([hello, ready, *lines, ping, b""])
    with subprocess.Popen(
        serving(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=child_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(sent)
        process.stdin.flush()
        said = next(line for line in process.stdout if json.loads(line).get("id") == 9)
        process.stdin.close()
        process.stdout.read()

    assert json.loads(said)["result"] == {}
    assert process.returncode == 0
