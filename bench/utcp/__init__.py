"""UTCP manuals as a source of tools: what a call of an HTTP tool costs, beside an OpenAPI one and beside utcp-http."""
