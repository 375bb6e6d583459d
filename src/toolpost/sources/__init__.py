"""Where tools come from."""
