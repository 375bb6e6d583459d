"""Example programs; each runs alone, without a network: `python -m examples.basic_mcp`."""
