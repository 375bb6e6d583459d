"""HTTP APIs as a source of tools: what a call of an operation costs, beside peers."""
