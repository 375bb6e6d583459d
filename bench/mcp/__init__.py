"""MCP servers as a source of tools: what calls, discovery and broken connections cost, beside peers."""
