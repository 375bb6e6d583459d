"""UTCP manuals as a source of tools, and our own catalog as a manual for others."""
