"""The place on this machine that browsers come back to."""

import asyncio

import httpx2
import pytest

from toolpost.contracts.errors import ToolError
from toolpost.wire.callback_server import CallbackResponse, CallbackServer


async def said(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if not request.endswith(b"\r\n\r\n"):
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return answer


async def test_a_browser_waits_for_its_answer_and_gets_it_even_when_the_place_closes() -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as web:
        async with CallbackServer() as place:
            coming = asyncio.create_task(web.get(f"{place.url}/notes?state=s&code=c"))
            visit = await asyncio.wait_for(place.receive(), 60)
            visit.respond(CallbackResponse(200, (("X-Said", "yes"),), b"welcome"))
        answer = await coming

    assert (visit.name, visit.query) == ("notes", "state=s&code=c")
    assert "code=c" not in repr(visit)
    assert (answer.status_code, answer.headers["x-said"], answer.text) == (200, "yes", "welcome")


async def test_what_is_no_visit_is_sent_away() -> None:
    async with CallbackServer() as place:
        elsewhere = await said(place.port, b"GET /other HTTP/1.1\r\n\r\n")
        nameless = await said(place.port, b"GET /callback HTTP/1.1\r\n\r\n")
        posted = await said(place.port, b"POST /callback/notes HTTP/1.1\r\n\r\n")
        endless = await said(place.port, b"GET /callback/notes?" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n")
        cut_short = await said(place.port, b"GET /callb")

    assert [one[9:12] for one in (elsewhere, nameless, posted, endless)] == [b"404", b"404", b"405", b"431"]
    assert cut_short == b""


async def test_a_preferred_port_is_left_for_another_and_a_demanded_one_is_not() -> None:
    async with CallbackServer() as first:
        async with CallbackServer(prefer=first.port) as second:
            assert second.port != first.port
        with pytest.raises(ToolError, match=f"port {first.port} of this machine is in use"):
            async with CallbackServer(port=first.port):
                pass
