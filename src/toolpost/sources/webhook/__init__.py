"""Webhooks as tools: those declared in the configuration, and those of the active workflows of an n8n."""
