"""A bridge for callers without an event loop: a loop in a thread of its own, and an MCP client that blocks."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from toolpost.contracts.spec import ToolSpec

T = TypeVar("T")
EXIT_PATIENCE_S = 2.0


class EventLoopThread:
    """An event loop in a thread of its own; `run` waits for a coroutine there, whatever runs in this thread.

    A program that ends without leaving the context ends the thread all the same, and waits for it a few seconds.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="toolpost-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        atexit.register(self._end_at_exit)
        return self

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine to its end and return its result; an interrupt here, or TimeoutError, cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the thread of the event loop: await the coroutine instead")
        waiting = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return waiting.result(timeout_s)
        except BaseException:
            waiting.cancel()
            raise

    def __exit__(self, *_: object) -> None:
        atexit.unregister(self._end_at_exit)
        self.run(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _end_at_exit(self) -> None:
        if not self._thread.is_alive():  # a forked process has the object without its thread
            return
        with contextlib.suppress(Exception):  # the program is over: what is not closed by now is left
            self.run(self._finish(), timeout_s=EXIT_PATIENCE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(EXIT_PATIENCE_S)

    async def _finish(self) -> None:
        """Cancel what is left on the loop, and close its generators and threads."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.loop.shutdown_default_executor()


class AsyncClient(Protocol):
    """What a blocking client needs of an `MCPClient`."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *_: object) -> None: ...

    async def list_tools(self) -> list[ToolSpec]:
        """Return the tools."""
        ...

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool."""
        ...


class BlockingMCPClient:
    """An `MCPClient` for code without an event loop; `with MCPClient(server_uri) as client` makes one."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._thread = EventLoopThread()

    def open(self) -> Self:
        """Connect."""
        self._thread.__enter__()
        try:
            self._thread.run(self._client.__aenter__())
        except BaseException:
            self._thread.__exit__()
            raise
        atexit.register(self._disconnect_at_exit)
        return self

    def list_tools(self) -> list[ToolSpec]:
        """Return the server's tools, as `MCPClient.list_tools` does."""
        return self._thread.run(self._client.list_tools())

    def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool and return its content, as `MCPClient.call_tool` does."""
        return self._thread.run(self._client.call_tool(tool_name, arguments))

    def close(self) -> None:
        """Disconnect, and end the thread."""
        atexit.unregister(self._disconnect_at_exit)
        try:
            self._thread.run(self._client.__aexit__(None, None, None))
        finally:
            self._thread.__exit__()

    def _disconnect_at_exit(self) -> None:
        """Disconnect in a program that ends without closing; the thread ends itself after this."""
        with contextlib.suppress(Exception):  # nobody is left to be told
            self._thread.run(self._client.__aexit__(None, None, None), timeout_s=EXIT_PATIENCE_S)
