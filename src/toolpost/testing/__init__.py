"""Test kit: a scripted chat model for tests of agents, and `toolpost.testing.stores` for tests of a store."""

from toolpost.testing.scripted_model import ScriptedModel, tool_calls

__all__ = ["ScriptedModel", "tool_calls"]
