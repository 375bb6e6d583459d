"""Guarded WebSocket connections: whom they reach, what they carry, and how they end."""

import asyncio
import base64
import gc
import hashlib
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import echo, serving, soon
from tests.wire.certificates import Authority
from tests.wire.site import Received, Site, reply
from tests.wire.stubs import Dialled, StubResolver
from tests.wire.test_network_proxies import Relay
from tests.wire.test_network_proxies import serving as relaying
from toolpost.contracts.errors import (
    ErrorCategory,
    ToolAuthError,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolPermissionError,
    ToolRateLimitError,
    ToolServerError,
    ToolValidationError,
)
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.websockets import WebSocket, connect_websocket

PUBLIC, INSIDE = "93.184.216.34", "127.0.0.1"
INSIDE_ALLOWED = NetworkPolicy(operator_hosts=frozenset({"inside.example"}))

Dial = Callable[..., Awaitable[WebSocket]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connects to a URL that an operator wrote, and hangs up when the test is over."""
    made: list[WebSocket] = []

    async def connect(url: str, **options: object) -> WebSocket:
        policy = NetworkPolicy().for_source(url)
        made.append(await connect_websocket(url, **{"policy": policy, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for websocket in made:
        await websocket.close()


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 16_383, 16_384, 65_535, 65_536, 1_000_000])
async def test_a_message_of_any_length_goes_there_and_back(size: int, dial: Dial) -> None:
    async with serving(echo) as url:
        websocket = await dial(url)
        await websocket.send("ü" * (size // 2))
        await websocket.send(bytes(index % 251 for index in range(size)))
        assert await websocket.receive() == "ü" * (size // 2)
        assert await websocket.receive() == bytes(index % 251 for index in range(size))


async def test_texts_of_every_short_length_go_there_and_back(dial: Dial) -> None:
    sent = ["a{}~"[:size] + "x" * (size - 4) for size in range(140)]
    async with serving(echo) as url:
        websocket = await dial(url)
        for text in sent:
            await websocket.send(text)
        assert [await websocket.receive() for _ in sent] == sent


async def test_messages_that_are_sent_together_arrive_in_their_order(dial: Dial) -> None:
    sent = [f"{number} {'x' * (30_000 if number % 7 == 3 else number)}" for number in range(50)]
    async with serving(echo) as url:
        websocket = await dial(url)
        await asyncio.gather(*(websocket.send(message) for message in sent))
        assert [await websocket.receive() for _ in sent] == sent


async def test_giving_up_on_a_message_does_not_lose_it(dial: Dial) -> None:
    async with serving(echo) as url:
        websocket = await dial(url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await websocket.receive()
        await websocket.send("still here")
        assert await websocket.receive() == "still here"


async def test_a_server_that_does_not_read_makes_senders_wait(dial: Dial) -> None:
    async def deaf(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await connection.wait_closed()

    async def flood(websocket: WebSocket) -> None:
        for _ in range(6_400):  # far more than a socket holds
            async with asyncio.timeout(0.5):
                await websocket.send("x" * 10_000)

    async with serving(deaf) as url:
        websocket = await dial(url)
        with pytest.raises(TimeoutError):
            await flood(websocket)


@pytest.mark.waits
async def test_a_message_that_is_given_up_before_its_turn_never_leaves_and_the_others_do(dial: Dial) -> None:
    received: list[str | bytes] = []
    awake = asyncio.Event()

    async def sleepy(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await soon(awake)
        connection.transport.resume_reading()
        async for message in connection:
            received.append(message)
            await connection.send("taken")

    async with serving(sleepy, max_size=None) as url:
        websocket = await dial(url)
        first = [asyncio.create_task(websocket.send(f"{number}{'x' * 2_000_000}")) for number in range(20)]
        left = await stuck(first)
        hasty, patient = first[len(left)], first[len(left) + 1 :]
        hasty.cancel()
        awake.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*patient)
            assert [await websocket.receive() for _ in first[1:]] == ["taken"] * 19
    assert 0 < len(left) < 19
    assert [int(message.strip("x")) for message in received if isinstance(message, str)] == [
        number for number in range(20) if number != len(left)
    ]
    assert hasty.cancelled()


async def stuck(sending: list[asyncio.Task[None]]) -> list[int]:
    """Those that have left once at least one has, and no more do."""
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    before, left = list[int](), [0]
    while before != left:
        await asyncio.sleep(0.3)
        before, left = left, [number for number, one in enumerate(sending) if one.done()]
    return left


async def test_headers_subprotocols_and_the_path_are_sent_as_they_are_meant(dial: Dial) -> None:
    seen: list[ServerConnection] = []

    async def note(connection: ServerConnection) -> None:
        seen.append(connection)
        await echo(connection)

    async with serving(note, subprotocols=["chat.v2"]) as url:
        headers = {"Authorization": "Bearer t", "X-Name": "Ada"}
        websocket = await dial(f"{url}/a%2Fb?q=1#part", headers=headers, subprotocols=["chat.v3", "chat.v2"])
        await websocket.send("hello")
        await websocket.receive()

    request = seen[0].request
    assert request is not None
    assert request.path == "/a%2Fb?q=1"
    assert request.headers.get_all("Host") == [url.removeprefix("ws://")]
    assert (request.headers["Authorization"], request.headers["X-Name"]) == ("Bearer t", "Ada")
    assert (request.headers["User-Agent"], websocket.subprotocol) == ("toolpost", "chat.v2")


@pytest.mark.req("NSSRF-07")
@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Host": "other.example"}},
        {"headers": {"Upgrade": "h2c"}},
        {"headers": {"sec-websocket-extensions": "x"}},
        {"headers": {"X": "a\r\nHost: b"}},
        {"subprotocols": ["a, b"]},
        {"subprotocols": ["a\r\nHost: b"]},
    ],
    ids=["host", "upgrade", "handshake", "line break", "two in one", "line break in a subprotocol"],
)
async def test_what_belongs_to_the_connection_cannot_be_set(
    options: dict[str, object], dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = Dialled(monkeypatch)
    with pytest.raises(ToolValidationError):
        await dial(f"ws://{PUBLIC}", **options)
    assert dialled.addresses == []


# ---------------------------------------------------------------- the guard


@pytest.mark.parametrize("url", ["http://a.example/", "https://a.example", "file:///etc/hosts", "ws:/x", "//a.example"])
async def test_only_websockets_are_connected_to(url: str) -> None:
    with pytest.raises(ToolPermissionError, match=r"only ws and wss|no host"):
        await connect_websocket(url, policy=NetworkPolicy())


@pytest.mark.req("NSSRF-02")
@pytest.mark.req("NSSRF-03")
@pytest.mark.parametrize(
    ("url", "answers"),
    [
        ("ws://127.0.0.1:9/", []),
        ("ws://169.254.169.254/", []),
        ("wss://[::1]/", []),
        ("ws://0x7f.1/", []),
        ("ws://me@127.0.0.1/", []),
        ("wss://name.example/", [INSIDE]),
        ("ws://name.example/", [PUBLIC, "10.0.0.1"]),
    ],
    ids=["loopback", "metadata", "six", "disguised", "with a name", "by name", "one of two"],
)
async def test_a_refused_address_is_never_connected_to(
    url: str, answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = Dialled(monkeypatch)
    with pytest.raises(ToolPermissionError) as refused:
        await connect_websocket(url, policy=NetworkPolicy(), resolver=StubResolver(answers))
    assert refused.value.error_code == "address_refused"
    assert dialled.addresses == []


@pytest.mark.req("NSSRF-03")
async def test_a_name_is_looked_up_once_and_its_address_is_connected_to(dial: Dial) -> None:
    resolver = StubResolver([INSIDE], [PUBLIC])
    hosts: list[str] = []

    async def note(connection: ServerConnection) -> None:
        assert connection.request is not None
        hosts.append(connection.request.headers["Host"])
        await connection.send("hi")

    async with serving(note) as url:
        there = f"inside.example:{port_of(url)}"
        websocket = await dial(f"ws://{there}", policy=INSIDE_ALLOWED, resolver=resolver)
        assert await websocket.receive() == "hi"

    assert len(resolver.asked) == 1
    assert hosts == [there]


@pytest.mark.req("NSSRF-03")
async def test_a_peer_that_is_not_the_judged_address_is_reported_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site() as site:
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda sock, _: connect(sock, (INSIDE, site.port)))
        with pytest.raises(ToolPermissionError, match=f"peer {INSIDE} is not {PUBLIC}"):
            await connect_websocket("ws://a.example", policy=NetworkPolicy(), resolver=StubResolver([PUBLIC]))
        assert site.requests == []


@pytest.mark.skipif(not Path("/proc/net").exists(), reason="all of 127/8 is loopback on Linux")
async def test_the_next_address_is_tried_when_one_does_not_answer(dial: Dial) -> None:
    async with serving(echo) as url:
        resolver = StubResolver(["127.0.0.2", "127.0.0.3", INSIDE])
        there = f"ws://inside.example:{port_of(url)}"
        websocket = await dial(there, policy=INSIDE_ALLOWED, resolver=resolver)
        await websocket.send("hi")
        assert await websocket.receive() == "hi"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int, dial: Dial) -> None:
    async with Site() as other, Site() as site:
        site.answer = reply(status, location=other.url)
        with pytest.raises(ToolNodeError, match="redirects are not followed") as failed:
            await dial(site.url.replace("http", "ws"))
        assert failed.value.status_code == status
        assert (len(site.requests), other.connections) == (1, 0)


async def test_tls_verifies_the_name_while_the_connection_goes_to_the_address(dial: Dial, authority: Authority) -> None:
    async with serving(echo, ssl=authority.server("inside.example")) as url:
        there = f"wss://inside.example:{port_of(url)}"
        websocket = await dial(there, policy=INSIDE_ALLOWED, resolver=StubResolver([INSIDE]))
        await websocket.send("secret")
        assert await websocket.receive() == "secret"


async def test_a_certificate_for_another_name_is_refused(dial: Dial, authority: Authority) -> None:
    async with serving(echo, ssl=authority.server("other.example")) as url:
        there = f"wss://inside.example:{port_of(url)}"
        with pytest.raises(ToolConnectionError, match="certificate") as refused:
            await dial(there, policy=INSIDE_ALLOWED, resolver=StubResolver([INSIDE]))
    assert refused.value.category is ErrorCategory.NON_RETRYABLE_CLIENT
    assert not refused.value.sent


async def test_a_proxy_carries_it_to_the_judged_address(dial: Dial) -> None:
    relay = Relay()
    async with serving(echo) as url, relaying(relay) as proxy:
        there = f"ws://inside.example:{port_of(url)}"
        policy = replace(INSIDE_ALLOWED, proxy=f"http://{proxy}")
        websocket = await dial(there, policy=policy, resolver=StubResolver([INSIDE]))
        await websocket.send("hi")
        assert await websocket.receive() == "hi"
        await websocket.close()
    assert [head.split()[:2] for head in relay.asked] == [["CONNECT", f"127.0.0.1:{port_of(url)}"]]


async def test_a_proxy_that_opens_no_tunnel_is_reported(dial: Dial) -> None:
    async with relaying(Relay(b"HTTP/1.1 407 Who are you\r\n\r\n")) as proxy:
        with pytest.raises(ToolConnectionError, match="407 Who are you") as failed:
            await dial(f"ws://{PUBLIC}", policy=NetworkPolicy(proxy=f"http://{proxy}"))
    assert not failed.value.sent


# ---------------------------------------------------------------- handshakes that fail


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ToolAuthError),
        (403, ToolAuthError),
        (404, ToolClientError),
        (429, ToolRateLimitError),
        (503, ToolServerError),
        (200, ToolNodeError),
    ],
)
async def test_a_refused_handshake_is_reported_by_its_status_with_its_reason(
    status: int, kind: type[ToolError], dial: Dial
) -> None:
    answer = reply(status, b"no\tsuch\x1b[2J room", content_type="text/plain", retry_after="7")
    async with Site(answer) as site:
        with pytest.raises(kind, match=r"handshake with \d+ Because: no such \[2J room") as failed:
            await dial(f"{site.url.replace('http', 'ws')}/?token=secret")
    assert (failed.value.status_code, failed.value.retry_after_s) == (status, 7)
    assert "secret" not in str(failed.value)


async def test_a_server_that_is_not_there_was_sent_nothing(dial: Dial) -> None:
    async with Site() as gone:
        pass
    with pytest.raises(ToolConnectionError, match="Connection refused") as failed:
        await dial(f"ws://127.0.0.1:{gone.port}")
    assert not failed.value.sent


async def test_a_server_that_never_answers_the_handshake_is_given_up(dial: Dial) -> None:
    async def silent(_: Received, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with Site(silent) as site:
        with pytest.raises(ToolConnectionError, match=r"no connection within 0\.2 s") as failed:
            await dial(site.url.replace("http", "ws"), timeout_s=0.2)
        assert await site.all_closed()
    assert not failed.value.sent


def upgraded(received: Received, **fields: str) -> bytes:
    key = received.all("sec-websocket-key")[0] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    given = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_accept": accept, **fields}
    return reply(101, b"", framed=False, **given)


@pytest.mark.parametrize(
    "fields",
    [
        {"sec_websocket_accept": "x"},
        {"upgrade": "h2c"},
        {"connection": "close"},
        {"sec_websocket_protocol": "never.offered"},
        {"sec_websocket_extensions": "never-offered"},
        {"sec_websocket_extensions": "permessage-deflate; server_max_window_bits=99"},
    ],
    ids=["wrong key", "another protocol", "no upgrade", "uninvited subprotocol", "uninvited extension", "odd window"],
)
async def test_a_handshake_that_is_none_is_refused(fields: dict[str, str], dial: Dial) -> None:
    async def forge(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(upgraded(received, **fields))

    async with Site(forge) as site:
        with pytest.raises(ToolClientError) as failed:
            await dial(site.url.replace("http", "ws"), subprotocols=["chat"])
        assert await site.all_closed()
    assert failed.value.error_code == "handshake_refused"


# ---------------------------------------------------------------- endings


@pytest.mark.req("NSSRF-05")
@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_a_message_above_the_limit_is_refused_even_if_it_is_small_before_it_is_decompressed(
    compression: str | None, dial: Dial
) -> None:
    async def flood(connection: ServerConnection) -> None:
        await connection.send("x" * 1000)
        await connection.send("x" * (1000 if compression is None else 10_000_000) + "x")
        await connection.wait_closed()

    async with serving(flood, compression=compression) as url:
        websocket = await dial(url, max_message_bytes=1000)
        assert await websocket.receive() == "x" * 1000
        with pytest.raises(ToolClientError, match="larger than 1,000 bytes") as failed:
            await websocket.receive()
    assert failed.value.error_code == "response_too_large"
    assert websocket.closed


async def test_what_a_server_compresses_is_read(dial: Dial) -> None:
    async def talk(connection: ServerConnection) -> None:
        assert [extension.name for extension in connection.protocol.extensions] == ["permessage-deflate"]
        for _ in range(3):
            await connection.send("again and " * 1000)

    async with serving(talk) as url:
        websocket = await dial(url)
        assert [await websocket.receive() for _ in range(3)] == ["again and " * 1000] * 3


@pytest.mark.parametrize(
    ("code", "told", "well"),
    [(1000, "code 1000: bye", True), (1001, "code 1001: bye", False), (4321, "code 4321: bye", False)],
)
async def test_a_close_is_reported_with_its_code_and_its_reason(code: int, told: str, well: bool, dial: Dial) -> None:
    async def leave(connection: ServerConnection) -> None:
        await connection.close(code, "bye")

    async with serving(leave) as url:
        websocket = await dial(url)
        for _ in range(2):
            with pytest.raises(ToolConnectionError, match=told) as failed:
                await websocket.receive()
            assert failed.value.sent
        assert websocket.ended_well is well
        with pytest.raises(ToolConnectionError) as unsent:
            await websocket.send("too late")
        assert not unsent.value.sent


async def test_a_connection_that_is_cut_did_not_end_well(dial: Dial) -> None:
    async def cut(connection: ServerConnection) -> None:
        connection.transport.abort()

    async with serving(cut) as url:
        websocket = await dial(url)
        with pytest.raises(ToolConnectionError, match="without a close frame") as failed:
            await websocket.receive()
    assert failed.value.sent
    assert not websocket.ended_well


async def test_a_server_that_does_not_answer_pings_is_gone(dial: Dial) -> None:
    async def mute(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(upgraded(received))
        await asyncio.sleep(60)

    async with Site(mute) as site:
        websocket = await dial(site.url.replace("http", "ws"), ping_s=0.1)
        with pytest.raises(ToolConnectionError, match="PONG"):
            await websocket.receive()
        assert websocket.closed


async def test_closing_says_goodbye(dial: Dial) -> None:
    codes: list[int | None] = []

    async def note(connection: ServerConnection) -> None:
        await connection.wait_closed()
        codes.append(connection.close_code)

    async with serving(note) as url:
        websocket = await dial(url)
        await websocket.send("unread")
        await websocket.close()
        await websocket.close()
    assert codes == [1000]


async def test_being_cancelled_in_the_goodbye_leaves_nothing_open() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["message"]))
    async with serving(echo) as url:
        websocket = await connect_websocket(url, policy=NetworkPolicy().for_source(url))
        closing = asyncio.create_task(websocket.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        del websocket, closing
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    assert complaints == []


@pytest.mark.waits
async def test_a_server_that_talks_on_does_not_keep_a_connection_open(dial: Dial) -> None:
    async def talk(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(upgraded(received))
        while True:
            writer.write(b"\x81\x02hi")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with Site(talk) as site:
        websocket = await dial(site.url.replace("http", "ws"))
        async with asyncio.timeout(30):
            await websocket.close()
        assert await site.all_closed()
