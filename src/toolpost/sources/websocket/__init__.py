"""WebSocket APIs as a source of tools: messages that the operator declares, over guarded connections."""

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.sources import SourceTraits
from toolpost.sources.base import Transport
from toolpost.sources.websocket.options import WebSocketOptions


class WebSocketTransport(Transport):
    """WebSockets with declared messages."""

    name = "websocket"
    options = WebSocketOptions
    source_class = "toolpost.sources.websocket.source:WebSocketSource"
    requires = ("websockets", "websocket")

    def traits(self, config: ExternalToolConfig) -> SourceTraits:
        del config
        return SourceTraits(declares_schemas=True)
