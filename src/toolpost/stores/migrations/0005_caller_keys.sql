-- Keys of the gateway's callers. The secret part is not kept, only its digest.
CREATE TABLE caller_keys (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    scopes     TEXT NOT NULL,       -- separated by blanks
    digest     BLOB NOT NULL,       -- SHA-256 of the secret part
    created_at REAL NOT NULL,
    created_by TEXT NOT NULL,
    expires_at REAL                 -- NULL for a key that does not end by itself
);
