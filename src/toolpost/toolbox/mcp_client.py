"""MCPClient: connect to one MCP server, list its tools and call them."""

from __future__ import annotations

import atexit
import contextlib
from typing import Any, Self

from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts import errors
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.source_kinds import TransportType
from toolpost.contracts.spec import ToolSpec
from toolpost.toolbox.blocking import EXIT_PATIENCE_S, EventLoopThread
from toolpost.toolbox.node import ToolNode


class MCPClient:
    """Connect to one MCP server by URL or command, list its tools and call them.

    `async with MCPClient(server_uri)` connects; without an address, call `connect` later. In code without an event
    loop, `with MCPClient(server_uri) as client` returns a client with blocking methods. `options` are those of an
    ExternalToolConfig.

    Raise MCPConnectionError without a connection and MCPToolExecutionError if a call fails; MCPClientError is the
    base class of both. Approvals and storage need a Toolbox.
    """

    def __init__(self, server_uri: str | None = None, **options: Any) -> None:
        self._server_uri = server_uri
        self._options = options
        self._node: ToolNode | None = None
        self._blocking: BlockingMCPClient | None = None

    async def connect(self, server_uri: str) -> None:
        """Connect to a server."""
        options = {"name": "server", "transport": TransportType.MCP, **self._options, "connection": server_uri}
        node = ToolNode(config=ExternalToolConfig.model_validate(options), registry=ToolRegistry())
        try:
            await node.connect()
        except errors.ToolError as error:
            raise _client_error(error, connected=False) from error
        await self.close()
        self._node = node

    @property
    def problems(self) -> list[str]:
        """The tools of the server that were skipped, with the reason."""
        return self._connected().problems

    async def list_tools(self) -> list[ToolSpec]:
        """Return the server's tools, named `server.tool`, without the helpers for its resources and prompts."""
        return [tool.spec for tool in self._connected().get_tools()]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool by its name at the server or in `list_tools`, and return its content."""
        node = self._connected()
        try:
            return await node.call(tool_name, arguments or {})
        except errors.ToolError as error:
            raise _client_error(error) from error

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        node, self._node = self._node, None
        if node is not None:
            await node.close()

    def _connected(self) -> ToolNode:
        if self._node is None:
            raise errors.MCPClientError("the client is not connected; call connect(server_uri) first")
        return self._node

    def __enter__(self) -> BlockingMCPClient:
        self._blocking = BlockingMCPClient(self)
        return self._blocking.open()

    def __exit__(self, *_: object) -> None:
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            blocking.close()

    async def __aenter__(self) -> Self:
        if self._server_uri is not None:
            await self.connect(self._server_uri)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class BlockingMCPClient:
    """An `MCPClient` for code without an event loop; `with MCPClient(server_uri) as client` creates one."""

    def __init__(self, client: MCPClient) -> None:
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
        """Disconnect, and stop the thread."""
        atexit.unregister(self._disconnect_at_exit)
        try:
            self._thread.run(self._client.__aexit__(None, None, None))
        finally:
            self._thread.__exit__()

    def _disconnect_at_exit(self) -> None:
        """Disconnect if the program exits without closing; the thread stops afterwards."""
        with contextlib.suppress(Exception):  # errors cannot be reported at exit
            self._thread.run(self._client.__aexit__(None, None, None), timeout_s=EXIT_PATIENCE_S)


def _client_error(error: errors.ToolError, *, connected: bool = True) -> errors.MCPClientError:
    """Convert a ToolError into an MCPClientError with the same category, status and code."""
    facts: dict[str, Any] = {
        "tool_name": error.tool_name,
        "category": error.category,
        "status_code": error.status_code,
        "code": error.error_code,
        "retry_after_s": error.retry_after_s,
        "cause": error,
    }
    raised: errors.MCPClientError
    if isinstance(error, errors.ToolConnectionError):
        raised = errors.MCPConnectionError(error.message, sent=error.sent, **facts)
    elif not connected:  # refused, for example
        raised = errors.MCPConnectionError(error.message, **facts)
    else:
        raised = errors.MCPToolExecutionError(error.message, **facts)
    raised.is_repeatable = error.is_repeatable
    return raised
