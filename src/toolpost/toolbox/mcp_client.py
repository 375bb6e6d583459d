"""MCPClient: one MCP server, for those who want nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.config import ExternalToolConfig, TransportType
from toolpost.contracts.errors import (
    MCPClientError,
    MCPConnectionError,
    MCPToolExecutionError,
    ToolConnectionError,
    ToolError,
)
from toolpost.toolbox.node import ToolNode

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from toolpost.contracts.spec import ToolSpec


class MCPClient:
    """Connects to one server by its address or command, lists its tools and calls them.

    What goes wrong is raised: MCPConnectionError when there is no connection,
    MCPToolExecutionError when a call fails, and MCPClientError as the parent of both.
    Nobody is asked and nothing is kept; that is for a Toolbox.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._node: ToolNode | None = None

    async def connect(self, server_uri: str) -> None:
        """Connect; the options of the client are those of an ExternalToolConfig."""
        given = {"name": "server", "transport": TransportType.MCP, **self._options, "connection": server_uri}
        node = ToolNode(config=ExternalToolConfig.model_validate(given), registry=ToolRegistry())
        try:
            await node.connect()
        except ToolError as error:
            raise _client_error(error) from error
        await self.close()
        self._node = node

    async def list_tools(self) -> list[ToolSpec]:
        """The server's tools, named `server.tool`; helpers for its resources and prompts can be called unlisted."""
        return [tool.spec for tool in self._connected().get_tools()]

    async def call_tool(self, tool_name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Call a tool by the server's own name for it, or by that of `list_tools`, and return its content."""
        node = self._connected()
        try:
            return await node.call(tool_name, arguments or {})
        except ToolError as error:
            raise _client_error(error) from error

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        node, self._node = self._node, None
        if node is not None:
            await node.close()

    def _connected(self) -> ToolNode:
        if self._node is None:
            raise MCPClientError("the client is not connected; call connect(server_uri) first")
        return self._node

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _client_error(error: ToolError) -> MCPClientError:
    """Convert an error of the library into the client's own, with the same category, status and code."""
    facts: dict[str, Any] = {
        "tool_name": error.tool_name,
        "category": error.category,
        "status_code": error.status_code,
        "code": error.error_code,
        "retry_after_s": error.retry_after_s,
        "cause": error,
    }
    if isinstance(error, ToolConnectionError):
        return MCPConnectionError(error.message, sent=error.sent, **facts)
    return MCPToolExecutionError(error.message, **facts)
