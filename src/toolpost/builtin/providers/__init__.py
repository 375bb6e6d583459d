"""Providers that search the web, read pages and retrieve documents, exchangeable by configuration."""
