"""The life of a call, from request to outcome."""
