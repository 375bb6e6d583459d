"""Run calls: routing, pending actions, events, retries, idempotency and recovery."""
