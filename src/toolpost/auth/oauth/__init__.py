"""OAuth 2.1 as a client: flows without sockets, and one driver that runs them through the guarded wire."""
