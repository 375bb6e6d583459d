"""One MCP session that hands out answers as they came: no model per tool, no second validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp import ClientSession
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions, ProgressFnT


class RawSession(ClientSession):
    """Sends requests and returns their results raw; schemas and outputs are the catalog's to check."""

    async def ask(
        self, method: str, params: dict[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The result of one request; MCPError when the server, or the way to it, said no."""
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        self._stamp(data, options)
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._dispatcher.send_raw_request(method, data["params"], options)

    @property
    def modern(self) -> bool:
        """Whether the stateless protocol was agreed on."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    def mirrors(self, tool_name: str) -> bool:
        """Whether arguments of a tool are known to travel as headers, too."""
        return bool(self._x_mcp_header_maps.get(tool_name))

    def learn_headers(self, tool_name: str, schema: dict[str, Any]) -> str | None:
        """Remember which arguments travel as headers, too; the reason when the tool must not be offered."""
        if not self.modern:
            return None
        reason = find_invalid_x_mcp_header(schema)
        if reason is None:
            self._x_mcp_header_maps[tool_name] = x_mcp_header_map(schema)
        else:
            self._x_mcp_header_maps.pop(tool_name, None)
        return reason
