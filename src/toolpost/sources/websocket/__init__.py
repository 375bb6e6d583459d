"""WebSocket APIs as a source of tools: messages that an operator wrote down, over guarded connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.transports.base import Transport

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import ToolSource
    from toolpost.transports.base import Services


class WebSocketTransport(Transport):
    """WebSockets with declared messages."""

    name = "websocket"
    module = "toolpost.sources.websocket.source"
    requires = ("aiohttp", "websocket")

    def make(self, config: ExternalToolConfig, services: Services) -> ToolSource:
        """Build the source of one server."""
        from toolpost.sources.websocket.source import WebSocketSource  # noqa: PLC0415 - few need it

        return WebSocketSource(config, services)
