"""A real n8n: installed, started with workflows of every kind, tested against, and its answers recorded."""
