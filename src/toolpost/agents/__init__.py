"""Agents: plan and reason with a language model. Every tool call goes through the runtime."""
