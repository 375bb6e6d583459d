"""Configurations of well-known MCP servers."""

from toolpost.connecting.presets import POPULAR_MCP_SERVERS, get_preset

__all__ = ["POPULAR_MCP_SERVERS", "get_preset"]
