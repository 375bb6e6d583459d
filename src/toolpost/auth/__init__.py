"""Credentials, and the sealing of what must be kept exactly."""
