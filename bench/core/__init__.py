"""What a call, an import, an event and a tool cost on this machine, and the harness that measures it."""
