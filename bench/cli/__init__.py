"""Command lines as a source of tools: what a call of a short command costs, beside a bare subprocess."""
