"""Requests as they are sent, answers as they come back, and what goes wrong between the two."""

import asyncio
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.wire.site import Received, Site, reply
from toolpost.contracts.errors import ToolConnectionError, ToolPermissionError, ToolTimeoutError, ToolValidationError
from toolpost.wire.client import MAX_REDIRECTS, PAGE_BYTES, PAGE_TIMEOUT_S, HttpClient
from toolpost.wire.http1 import Http1Transport
from toolpost.wire.messages import Request
from toolpost.wire.network import NetworkPolicy


def client_for(site: Site, transport: Http1Transport | None = None, **options: float) -> HttpClient:
    given: dict[str, Any] = {"timeout_s": 60, **options}
    return HttpClient(NetworkPolicy().for_source(site.url), transport=transport, **given)


async def body_of(client: HttpClient, url: str, **options: float) -> bytes:
    return await (await client.send(Request("GET", url, **options))).read()  # type: ignore[arg-type]


async def parts() -> AsyncIterator[bytes]:
    yield b"abc"
    yield b"def"


# ---------------------------------------------------------------- requests and answers


async def test_an_answer_has_a_status_header_fields_and_a_body(transport: Http1Transport) -> None:
    said = reply(404, b"gone", content_type='Text/Plain; charset="latin-1"', set_cookie="a=1").replace(
        b"set-cookie", b"Set-Cookie: b=2\r\nset-cookie"
    )
    async with Site(said) as site, client_for(site, transport) as client:
        response = await client.send(Request("GET", f"{site.url}/thing"))

        assert (response.status, response.url) == (404, f"{site.url}/thing")
        assert response.media_type == "text/plain"
        assert response.headers.get_all("Set-Cookie") == ("b=2", "a=1")
        assert "CONTENT-TYPE" in response.headers
        assert (await response.read(), await response.read()) == (b"gone", b"gone")
        assert repr(response) == "Response(404)"


async def test_a_request_is_sent_as_it_is_written(transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:
        headers = (("X-Tag", "one"), ("X-Tag", "two"), ("Accept", "application/json"), ("X-Umlaut", "  grüße\t"))
        await client.send(Request("PATCH", f"{site.url}/a/./ü?q=[1]&x={{y}}#part", headers=headers, body=b"{}"))

        assert (site.last.method, site.last.path) == ("PATCH", "/a/./%C3%BC?q=[1]&x=%7By%7D")
        assert site.last.body == b"{}"
        assert site.last.all("x-tag") == ["one", "two"]
        assert site.last.all("x-umlaut") == ["grüße"]
        assert site.last.all("accept") == ["application/json"]
        assert site.last.all("host") == [f"127.0.0.1:{site.port}"]
        assert site.last.all("content-length") == ["2"]
        assert site.last.all("content-type") == []


@pytest.mark.parametrize(
    ("written", "path"), [("", "/"), ("?q=1", "/?q=1"), ("#f", "/"), ("/%2e%2E/%zz", "/%2e%2E/%zz")]
)
async def test_nothing_is_decoded_or_tidied_up_in_a_path(written: str, path: str, transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:
        await client.send(Request("GET", site.url + written))

        assert site.last.path == path


@pytest.mark.parametrize(("body", "length"), [(b"", "0"), (None, "0"), (b"x" * 3_000_000, "3000000")])
async def test_a_body_of_bytes_has_a_length(body: bytes | None, length: str, transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:
        await client.send(Request("POST", site.url, body=body))

        assert site.last.all("content-length") == [length]
        assert site.last.body == (body or b"")


async def test_a_body_can_be_a_stream(transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:
        await client.send(Request("POST", site.url, body=parts()))

        assert site.last.body == b"abcdef"
        assert site.last.all("content-type") == []


async def test_an_answer_can_be_streamed_and_left_early(transport: Http1Transport) -> None:
    async def endless(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(framed=False))
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    async with Site(endless) as site, client_for(site, transport) as client:
        async with await client.send(Request("GET", site.url)) as response:
            stream = response.stream()
            assert set(await anext(stream)) == {ord("x")}
            await stream.aclose()

        assert await site.all_closed()


async def test_a_long_header_field_is_read(transport: Http1Transport) -> None:
    async with Site(reply(200, link="x" * 30_000)) as site, client_for(site, transport) as client:
        assert len((await client.send(Request("GET", site.url))).headers.get("link") or "") == 30_000


async def test_a_head_that_never_ends_is_not_read_for_ever(transport: Http1Transport) -> None:
    async def chatter(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while True:
            writer.write(b"y" * 10_000)
            await writer.drain()

    async with Site(chatter) as site, client_for(site, transport) as client:
        with pytest.raises(ToolConnectionError):
            await client.send(Request("GET", site.url))
        assert await site.all_closed()


async def test_nothing_of_a_request_that_may_be_secret_is_in_its_repr() -> None:
    request = Request("POST", "https://hooks.example/hunter2?k=hunter2", headers={"X-Key": "hunter2"}, body=b"hunter2")

    assert "hunter2" not in repr(request)


async def test_a_method_is_a_word(transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:
        await client.send(Request("query", site.url))
        for method in ("GET /other HTTP/1.1\r\nX:", "", "connect"):
            with pytest.raises(ToolValidationError, match="is not a valid method"):
                await client.send(Request(method, site.url))

        assert [received.method for received in site.requests] == ["QUERY"]


# ---------------------------------------------------------------- connections


async def test_connections_are_kept_and_used_again(transport: Http1Transport) -> None:
    async with Site(reply(200, b"hi")) as site, client_for(site, transport) as client:
        for _ in range(20):
            assert await body_of(client, site.url) == b"hi"

        assert (len(site.requests), site.connections) == (20, 1)


async def test_a_hundred_requests_run_at_a_time(transport: Http1Transport) -> None:
    waiting = asyncio.Event()

    async def when_all_are_here(received: Received, writer: asyncio.StreamWriter) -> None:
        if len(site.requests) == 100:
            waiting.set()
        await waiting.wait()
        writer.write(reply(200, received.path.encode()))

    async with Site(when_all_are_here) as site, client_for(site, transport) as client:
        bodies = await asyncio.gather(*(body_of(client, f"{site.url}/{n}") for n in range(100)))

        assert bodies == [f"/{n}".encode() for n in range(100)]
        assert site.connections == 100


@pytest.mark.parametrize("begun", [b"", reply(200, b"x" * 10)[:-5]], ids=["before the head", "within the body"])
async def test_cancelling_closes_the_connection(begun: bytes, transport: Http1Transport) -> None:
    async def half(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(begun)
        asked.set()
        await asyncio.Event().wait()

    asked = asyncio.Event()
    async with Site(half) as site, client_for(site, transport) as client:
        call = asyncio.create_task(body_of(client, site.url))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        assert await site.all_closed()


async def test_a_closed_client_sends_nothing(transport: Http1Transport) -> None:
    async with Site() as site:
        client = client_for(site)
        await client.send(Request("GET", site.url))
        await client.close()
        with pytest.raises(ToolConnectionError, match="closed") as failed:
            await client.send(Request("GET", site.url))
        await transport.close()
        with pytest.raises(ToolConnectionError, match="closed"):
            await client_for(site, transport).send(Request("GET", site.url))

        assert not failed.value.sent
        assert await site.all_closed()
        assert len(site.requests) == 1


async def test_the_environment_names_no_proxy(transport: Http1Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site() as proxy, Site(reply(200, b"direct")) as site:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        async with client_for(site, transport) as client:
            assert await body_of(client, site.url) == b"direct"

        assert proxy.connections == 0


@pytest.mark.programs
def test_a_missing_extra_is_reported_with_its_install_line() -> None:
    program = (
        "import sys; sys.modules['httptools'] = None\n"
        "from toolpost.wire.client import HttpClient\n"
        "from toolpost.wire.network import NetworkPolicy\n"
        "HttpClient(NetworkPolicy())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr.strip().endswith("ConfigError: HTTP needs httptools; run: pip install 'toolpost[http]'")


@pytest.mark.programs
def test_httptools_is_imported_only_for_a_client() -> None:
    program = "import sys, toolpost.wire.client; print({'httptools', 'httpx2'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- failures


async def test_what_never_connected_was_not_sent(transport: Http1Transport) -> None:
    async with Site() as site:
        pass
    async with client_for(site, transport) as client:
        with pytest.raises(ToolConnectionError, match=rf"^POST {site.url}: no connection to 127\.0\.0\.1") as failed:
            await client.send(Request("POST", f"{site.url}/secret?key=secret"))

    assert not failed.value.sent
    assert "secret" not in str(failed.value)


async def reset(received: Received, writer: asyncio.StreamWriter) -> None:
    """Close without a word, and rudely: the other side gets a RST."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hang_up(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def stop_half_way(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, b"x" * 1000)[:-10])
    writer.close()


async def stop_within_a_chunk(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(framed=False, transfer_encoding="chunked") + b"ff\r\nabc")
    writer.close()


async def speak_something_else(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    writer.close()


@pytest.mark.parametrize("fault", [reset, hang_up, stop_half_way, stop_within_a_chunk, speak_something_else])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_what_broke_later_may_have_been_sent_and_is_not_repeated(
    fault: object, method: str, transport: Http1Transport
) -> None:
    async with Site() as site, client_for(site, transport) as client:
        await body_of(client, site.url)  # so that the failing request finds a connection that is kept
        site.answer = fault  # type: ignore[assignment]
        with pytest.raises(ToolConnectionError, match=f"^{method} {site.url}: ") as failed:
            await (await client.send(Request(method, site.url))).read()

        assert failed.value.sent
        assert len(site.requests) == 2


async def test_a_server_that_does_not_speak_tls_was_not_sent_anything(transport: Http1Transport) -> None:
    async def insulted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    heard: list[bytes] = []
    server = await asyncio.start_server(insulted, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpClient(NetworkPolicy().for_source(url), transport=transport) as client:
        with pytest.raises(ToolConnectionError) as failed:
            await client.send(Request("POST", url, body=b"secret"))

    assert not failed.value.sent
    assert b"secret" not in b"".join(heard)


@pytest.mark.waits
async def test_a_handshake_that_never_ends_was_not_sent(transport: Http1Transport) -> None:
    async with Site() as site, client_for(site, transport) as client:  # it waits for a line that TLS does not have
        url = site.url.replace("http:", "https:")
        with pytest.raises(ToolConnectionError, match=r"no connection to 127\.0\.0\.1 within 1\.6 s") as failed:
            await client.send(Request("POST", url, timeout_s=2))

        assert not failed.value.sent


# ---------------------------------------------------------------- time


@pytest.mark.req("NSSRF-04")
def test_pages_have_ten_seconds_five_megabytes_and_three_redirects() -> None:
    client = HttpClient(NetworkPolicy())

    assert (client.timeout_s, client.max_bytes, client.max_redirects) == (10.0, 5 * 1024 * 1024, 3)
    assert (PAGE_TIMEOUT_S, PAGE_BYTES, MAX_REDIRECTS) == (10.0, 5 * 1024 * 1024, 3)


async def silence(received: Received, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def slow_head(received: Received, writer: asyncio.StreamWriter) -> None:
    await trickle(reply(200, b"", x="y" * 10_000), writer)


async def slow_body(received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(200, b"x" * 10_000)[:-10_000])
    await trickle(b"x" * 10_000, writer)


async def trickle(content: bytes, writer: asyncio.StreamWriter) -> None:
    for byte in content:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.req("NSSRF-04")
@pytest.mark.parametrize("server", [silence, slow_head, slow_body])
@pytest.mark.waits
async def test_a_server_that_takes_its_time_meets_the_deadline(server: object, transport: Http1Transport) -> None:
    began = time.monotonic()
    async with Site(server) as site, client_for(site, transport) as client:  # type: ignore[arg-type]
        with pytest.raises(ToolTimeoutError, match=f"^GET {site.url}: "):
            await body_of(client, f"{site.url}/?key=secret", timeout_s=0.75)

        assert await site.all_closed()
    assert time.monotonic() - began >= 0.75


@pytest.mark.waits
async def test_a_stream_meets_the_deadline_too(transport: Http1Transport) -> None:
    async with Site(slow_body) as site, client_for(site, transport, timeout_s=0.75) as client:
        response = await client.send(Request("GET", site.url))
        with pytest.raises(ToolTimeoutError):
            _ = [piece async for piece in response.stream()]

        assert await site.all_closed()


@pytest.mark.waits
async def test_the_deadline_is_for_all_redirects_together(transport: Http1Transport) -> None:
    async def onward(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.6)
        writer.write(reply(302, location="/"))

    async with Site(onward) as site, client_for(site, transport) as client:
        with pytest.raises(ToolTimeoutError, match=r"no answer within 1 s"):
            await body_of(client, site.url, timeout_s=1)


async def test_an_address_that_was_refused_is_reported_before_anything_else(transport: Http1Transport) -> None:
    async with Site() as site, HttpClient(NetworkPolicy(), transport=transport) as client:
        with pytest.raises(ToolPermissionError, match=r"^Permission denied: host '127\.0\.0\.1'") as refused:
            await client.send(Request("GET", site.url))

        assert refused.value.error_code == "address_refused"
        assert site.connections == 0
