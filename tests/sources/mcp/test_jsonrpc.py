"""JSON-RPC over a link that ends when the test says so."""

import asyncio
import gc
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.dispatcher import CallOptions

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.jsonrpc import JsonRpc, PendingRequest
from toolpost.sources.mcp.peer_requests import Message
from toolpost.sources.mcp.server_object import Loopback


class EndingLink:
    """Waits for a request, then delivers messages and ends within the same turn of the event loop."""

    def __init__(self, *messages: Message) -> None:
        self._messages = messages
        self._asked = asyncio.Event()

    async def run(self, rpc: JsonRpc) -> None:
        await self._asked.wait()
        for message in self._messages:
            rpc.receive(message)

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        self._asked.set()

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        raise AssertionError("nothing is told on a link that has ended")

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        raise AssertionError("nobody gives up")

    def hang_up(self) -> None:
        raise AssertionError("nobody floods")


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/tools/list_changed"},
        {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
        {"method": "ping", "id": 7},
    ],
    ids=["notification", "progress", "request"],
)
async def test_a_handler_that_never_began_leaves_no_coroutine_behind(message: Message) -> None:
    begun: list[str] = []

    async def handle(*given: Any) -> Any:
        begun.append("handler")

    async def report(progress: float, total: float | None, message: str | None) -> None:
        begun.append("report")

    rpc = JsonRpc(EndingLink({"jsonrpc": "2.0", **message}))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        running = asyncio.create_task(rpc.run(handle, handle))
        await asyncio.sleep(0)  # it runs
        with pytest.raises(ToolConnectionError, match="Connection closed"):
            await rpc.send_raw_request("tools/list", None, CallOptions(on_progress=report))
        await running
        gc.collect()

    assert (begun, [str(one.message) for one in told]) == ([], [])


async def asked_at_once(
    count: int, begun: list[int], *, cancelled: int
) -> tuple[asyncio.Task[None], asyncio.Task[None]]:
    """Run two ends of a link, of which one has asked the other for more than is begun at once."""
    link = Loopback()
    served, asking = JsonRpc(link), JsonRpc(link.other)

    async def serve(_context: Any, _method: str, params: Any) -> Any:
        begun.append(params["number"])
        return {}

    async def ignore(*_given: Any) -> Any:
        return None

    ends = asyncio.create_task(served.run(serve, ignore)), asyncio.create_task(asking.run(ignore, ignore))
    await asyncio.sleep(0)  # they run
    requests = [asking.begin("ask", {"number": number}) for number in range(count)]
    asking.abandon(requests[cancelled], "nobody wants it")
    for request in requests:
        request.future.add_done_callback(lambda future: future.cancelled() or future.exception())
    return ends


async def test_requests_that_wait_for_their_turn_are_not_begun_after_the_end() -> None:
    begun = list[int]()
    served, asking = await asked_at_once(60, begun, cancelled=59)
    await asyncio.sleep(0)  # some have begun
    served.cancel()
    asking.cancel()
    await asyncio.wait([served, asking])
    for _ in range(100):
        await asyncio.sleep(0)

    assert 0 < len(begun) < 40


async def test_a_request_that_is_cancelled_before_its_turn_is_not_begun() -> None:
    begun = list[int]()
    ends = await asked_at_once(60, begun, cancelled=50)
    for _ in range(100):
        await asyncio.sleep(0)
    for end in ends:
        end.cancel()
    await asyncio.wait(ends)

    assert begun == [number for number in range(60) if number != 50]
