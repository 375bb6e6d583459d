"""Figures of the gateway: calls through it, lists from it, and many clients at once."""
