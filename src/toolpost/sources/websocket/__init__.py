"""WebSocket APIs as a source of tools: messages that an operator wrote down, over guarded connections."""

from toolpost.transports.base import Transport


class WebSocketTransport(Transport):
    """WebSockets with declared messages."""

    name = "websocket"
    source_class = "toolpost.sources.websocket.source:WebSocketSource"
    requires = ("aiohttp", "websocket")
