-- Whether a person uses the MCP client that has the key: such a client may answer what tools and servers ask.
ALTER TABLE caller_keys ADD COLUMN interactive INTEGER NOT NULL DEFAULT 0;
