"""Webhooks as tools: those that an operator wrote down, and those of the active workflows of an n8n."""
