"""The official MCP conformance suite, run against Toolpost's client and gateway."""
