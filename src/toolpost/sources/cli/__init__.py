"""Command lines as a source of tools."""
