"""The WebSocket figure."""
