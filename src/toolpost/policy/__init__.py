"""What may be called, by whom, and what may be told of it."""
