"""The gateway as an MCP server: views over stdio and Streamable HTTP."""
