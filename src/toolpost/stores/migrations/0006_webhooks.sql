-- How far each webhook has come in the log. One living process sends for a webhook: its owner.
CREATE TABLE webhooks (
    name          TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,   -- the last event that was delivered, or is not for this webhook
    delivered     INTEGER NOT NULL,
    failures      INTEGER NOT NULL,   -- in a row
    error         TEXT NOT NULL,      -- why the last try failed
    failing_since REAL,
    next_try_at   REAL,               -- NULL while nothing failed, and when there will be no other try
    owner         TEXT NOT NULL       -- '' for nobody
);
