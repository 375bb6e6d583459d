"""Limits that processes share: their cost, a rate of eight processes, and the retries of an outage."""
