"""MCP servers as a source of tools: every transport, both protocol eras, sessions that stay connected."""
