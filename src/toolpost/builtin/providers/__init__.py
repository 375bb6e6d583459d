"""Providers of web search, pages and documents, exchangeable by configuration."""
