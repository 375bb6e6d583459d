"""Agents: what plans and reasons. Everything they do to the world goes through the runtime."""
