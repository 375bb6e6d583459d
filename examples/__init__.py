"""Programs that show Toolpost at work; each runs by itself, without a network: `python -m examples.basic_mcp`."""
