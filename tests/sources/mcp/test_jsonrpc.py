"""JSON-RPC over a link that ends when the test says so."""

import asyncio
import gc
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.dispatcher import CallOptions

from toolpost.contracts.errors import ToolConnectionError
from toolpost.sources.mcp.jsonrpc import JsonRpc, Message, PendingRequest


class EndingLink:
    """Waits for a request, then delivers messages and ends within the same turn of the event loop."""

    def __init__(self, *messages: Message) -> None:
        self._messages = messages
        self._asked = asyncio.Event()

    async def run(self, rpc: JsonRpc) -> None:
        await self._asked.wait()
        for message in self._messages:
            rpc.receive(message)

    def ask(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        self._asked.set()

    async def tell(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        raise AssertionError("nothing is told on a link that has ended")

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        raise AssertionError("nobody gives up")


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
