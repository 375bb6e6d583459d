"""WebSocket APIs as a source of tools: messages that an operator wrote down, over guarded connections."""
