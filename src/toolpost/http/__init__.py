"""HTTP of tools, models and webhooks: encode values, parse bodies and event streams, report errors."""
