-- Tokens of connected accounts. `body` is sealed to the key and the version.
CREATE TABLE tokens (
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    resource   TEXT NOT NULL,
    client     TEXT NOT NULL,
    version    INTEGER NOT NULL,               -- another for each body, never used again
    status     TEXT NOT NULL,
    changed_at REAL NOT NULL,
    body       BLOB NOT NULL,
    holder     TEXT NOT NULL DEFAULT '',       -- who renews it
    owner      TEXT NOT NULL DEFAULT '',       -- the process of the holder
    until      REAL NOT NULL DEFAULT 0,        -- when the lease ends by itself
    PRIMARY KEY (tenant, user, issuer, resource, client)
);
