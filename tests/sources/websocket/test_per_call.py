"""One connection for each call: through the front door, and when things go wrong."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from tests.sources.websocket.servers import echo, said, serving, soon, source, tool, toolbox
from tests.wire.stubs import Dialled, StubResolver
from tests.wire.test_websocket_endings import Peer
from toolpost import Completed, Failed, ToolNode, ToolRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolConnectionError, ToolTimeoutError
from toolpost.contracts.events import EventCode
from toolpost.contracts.source_kinds import AuthType, TransportType
from toolpost.sources.base import Services
from toolpost.sources.websocket.source import WebSocketSource


@pytest.mark.req("MISC-03")
async def test_a_websocket_api_is_reached_and_its_connection_closed_after_the_call() -> None:
    seen: list[ServerConnection] = []

    async def note(connection: ServerConnection) -> None:
        seen.append(connection)
        await said(connection)

    async with serving(note) as url, toolbox(source(url, {"add": tool()})) as box:
        first = await box.call("api.add", {"a": 1})
        async with asyncio.timeout(5):
            await seen[0].wait_closed()
        assert seen[0].close_code == 1000
        second = await box.call("api.add", {"a": 2})
    assert (first.content["got"], second.content["got"]) == ({"a": 1}, {"a": 2})
    assert len(seen) == 2


@pytest.mark.req("GEN-09", "MISC-03")
async def test_a_node_reaches_a_websocket_api() -> None:
    async with serving(said) as url:
        config = source(url, {"add": tool()})
        async with ToolNode(config=config, registry=ToolRegistry()) as node:
            result = await node.call("add", {"a": 1})
    assert (config.transport, result["got"]) == (TransportType.WEBSOCKET, {"a": 1})


async def test_calls_at_once_do_not_mix() -> None:
    async def slow_first(connection: ServerConnection) -> None:
        got = json.loads(await connection.recv())
        await asyncio.sleep(0.05 if got["n"] % 2 else 0)
        await connection.send(json.dumps(got))

    async with serving(slow_first) as url, toolbox(source(url, {"ask": tool()}, max_concurrency=20)) as box:
        outcomes = await asyncio.gather(*(box.call("api.ask", {"n": number}) for number in range(20)))
    assert [outcome.content for outcome in outcomes] == [{"n": number} for number in range(20)]


@pytest.mark.parametrize(("code", "told"), [(1000, "code 1000"), (1011, "code 1011: out of ink")])
async def test_a_close_before_the_answer_is_a_failure_and_not_repeated_where_that_is_unsafe(
    code: int, told: str
) -> None:
    calls: list[str | bytes] = []

    async def hang_up(connection: ServerConnection) -> None:
        calls.append(await connection.recv())
        await connection.close(code, "out of ink")

    tools = {"pay": tool(side_effects="external"), "look": tool()}
    async with serving(hang_up) as url, toolbox(source(url, tools, tries=2)) as box:
        paid = await box.call("api.pay", {})
        assert len(calls) == 1
        looked = await box.call("api.look", {})
        assert len(calls) == 3
    for outcome in (paid, looked):
        assert isinstance(outcome, Failed)
        assert outcome.error.error_code == "connection_failed"
        assert told in str(outcome.error)


async def test_a_server_that_is_not_there_is_reported_and_asked_again_even_for_unsafe_calls() -> None:
    async with serving(echo) as url:
        pass
    tools = {"pay": tool(side_effects="external")}
    async with toolbox(source(url, tools, tries=2)) as box:
        outcome = await box.call("api.pay", {})
        codes = [event.code for event in await box.store.events.read(run_id=outcome.run_id)]
    assert isinstance(outcome, Failed)
    assert "Connection refused" in str(outcome.error)
    assert codes.count(EventCode.CALL_RETRIED) == 1


async def test_a_server_that_never_answers_ends_in_a_timeout_that_says_so() -> None:
    gone = asyncio.Event()

    async def silent(connection: ServerConnection) -> None:
        await connection.wait_closed()
        gone.set()

    async with serving(silent) as url:
        (ask,) = await WebSocketSource(source(url, {"ask": tool(timeout_s=0.2)}), Services()).discover()
        with pytest.raises(ToolTimeoutError, match=r"no answer within 0\.19 s"):
            await ask.execute({}, ToolContext())
        async with asyncio.timeout(5):
            await gone.wait()


@pytest.mark.waits
async def test_an_answer_is_not_lost_in_a_goodbye_that_takes_longer_than_the_call_has() -> None:
    gone = asyncio.Event()
    parted = asyncio.Event()

    async def absent(connection: ServerConnection) -> None:
        await connection.send(await connection.recv())
        connection.transport.pause_reading()  # so that it hears no goodbye
        await soon(parted)
        connection.transport.resume_reading()
        await connection.wait_closed()
        gone.set()

    async with serving(absent) as url:
        own = WebSocketSource(source(url, {"pay": tool(timeout_s=0.5, side_effects="external")}), Services())
        (pay,) = await own.discover()
        async with asyncio.timeout(0.5):
            assert (await pay.execute({"n": 1}, ToolContext())).result == {"n": 1}
        await own.close()
        parted.set()
        async with asyncio.timeout(5):
            await gone.wait()


async def test_a_deadline_of_the_caller_ends_the_connection_too() -> None:
    gone = asyncio.Event()

    async def silent(connection: ServerConnection) -> None:
        await connection.wait_closed()
        gone.set()

    async with serving(silent) as url, toolbox(source(url, {"ask": tool()})) as box:
        outcome = await box.call("api.ask", {}, timeout_s=0.2)
        async with asyncio.timeout(5):
            await gone.wait()
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "timeout"


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_an_answer_above_the_limit_is_refused(compression: str | None) -> None:
    async def flood(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(json.dumps("x" * 5_000_000))

    tools = {"ask": tool()}
    async with (
        serving(flood, compression=compression) as url,
        toolbox(source(url, tools, max_message_bytes=2048)) as box,
    ):
        outcome = await box.call("api.ask", {})
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "response_too_large"
    assert "2,048 bytes" in str(outcome.error)


async def test_credentials_and_headers_go_into_the_handshake() -> None:
    seen: list[dict[str, str]] = []

    async def note(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(dict(connection.request.headers.raw_items()))
        await said(connection)

    options = {
        "headers": {"X-Team": "red", "authorization": "Basic stale"},
        "auth_type": AuthType.BEARER,
        "auth_config": {"token": "t0ken-of-ada"},
        "subprotocols": ["v1"],
    }
    async with serving(note, subprotocols=["v1"]) as url, toolbox(source(url, {"a": tool()}, **options)) as box:
        assert isinstance(await box.call("api.a", {}), Completed)
    (headers,) = seen
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer t0ken-of-ada", "red")
    assert "authorization" not in headers
    assert headers["Sec-WebSocket-Protocol"] == "v1"


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "auth_required"), (403, "auth_required"), (404, "client_error"), (500, "server_error")],
)
async def test_a_refused_handshake_is_reported_without_the_credential(status: int, code: str) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(status, f"not with {request.headers['Authorization']}")

    options = {"auth_type": AuthType.BEARER, "auth_config": {"token": "t0ken-of-ada"}}
    async with (
        serving(echo, process_request=refuse) as url,
        toolbox(source(url, {"a": tool()}, **options)) as box,
    ):
        outcome = await box.call("api.a", {})
    assert isinstance(outcome, Failed)
    assert (outcome.error.error_code, outcome.error.status_code) == (code, status)
    assert f"handshake with {status}" in str(outcome.error)
    assert "t0ken-of-ada" not in str(outcome.error)


TOKEN = "t0ken-of-ada-which-is-long"


async def repeat(connection: ServerConnection) -> None:
    assert connection.request is not None
    await connection.recv()
    await connection.send("x" * 65 + connection.request.headers["Authorization"])


def refuse(connection: ServerConnection, request: Request) -> Response:
    return connection.respond(403, "x" * 280 + request.headers["Authorization"])


@pytest.mark.parametrize("refused", [None, refuse], ids=["answer", "handshake"])
async def test_a_token_that_is_cut_where_a_long_text_is_cut_is_not_reported(refused: Any) -> None:
    options = {"auth_type": AuthType.BEARER, "auth_config": {"token": TOKEN}}
    async with (
        serving(repeat, process_request=refused) as url,
        toolbox(source(url, {"a": tool()}, **options)) as box,
    ):
        outcome = await box.call("api.a", {})
    assert isinstance(outcome, Failed)
    assert "xxx[redacted]…" in str(outcome.error)


@pytest.mark.parametrize("mode", ["per_call", "multiplexed"])
async def test_a_server_that_closes_before_anything_is_sent_is_reported_with_its_reason(mode: str) -> None:
    peer = Peer(b"\x88\x09" + (4401).to_bytes(2, "big") + b"too old", "Connection: Upgrade\r\n")
    async with await asyncio.start_server(peer, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with toolbox(source(url, {"pay": tool(side_effects="external")}, mode=mode)) as box:
            outcome = await box.call("api.pay", {})
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolConnectionError)
    assert not outcome.error.sent
    assert "code 4401: too old" in str(outcome.error)


@pytest.mark.req("NSSRF-02")
async def test_a_name_that_the_operator_wrote_does_not_lead_to_cloud_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", StubResolver(["169.254.169.254"]))
    dialled = Dialled(monkeypatch)
    async with toolbox(source("ws://turncoat.example", {"a": tool()})) as box:
        outcome = await box.call("api.a", {})
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "address_refused"
    assert dialled.addresses == []


PROGRAM = """
import asyncio, json, sys
sys.modules["websockets"] = None
from toolpost import ExternalToolConfig, Settings, Toolbox, tool
from toolpost.sources.base import Services

@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        total = (await box.call("add", {"a": 1, "b": 2})).content
    unused = [name for name, module in sys.modules.items() if "websocket" in name and module is not None]
    source = ExternalToolConfig(name="api", transport="websocket", connection="ws://127.0.0.1:9")
    async with Toolbox(settings=Settings(data_dir=None, sources=[source])) as box:
        print(json.dumps([total, unused, box.report[0].error]))

asyncio.run(main())
"""


@pytest.mark.programs
@pytest.mark.req("FUT-16")
def test_nothing_of_it_is_loaded_or_needed_until_a_source_asks_for_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)
    total, loaded, error = json.loads(done.stdout)
    assert (total, loaded) == (3, [])
    assert "pip install 'toolpost[websocket]'" in error
