"""The official MCP conformance suite, run against Toolpost's own client."""
