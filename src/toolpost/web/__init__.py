"""HTTP for tools: build requests, present credentials, parse responses, report errors."""
