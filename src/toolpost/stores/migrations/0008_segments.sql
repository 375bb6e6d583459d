-- Events of a call that are written together are one row, encoded and hashed once. Events and runs of before are moved
-- over by the program, which has the key: checked by the rule they were written by, and chained anew.
DROP INDEX runs_open;
ALTER TABLE events RENAME TO events_single;
ALTER TABLE runs RENAME TO runs_sealed;

CREATE TABLE segments (
    last_id        INTEGER PRIMARY KEY, -- of its last event; given by the ledger and never reused, so that a follower can go on
    run            INTEGER NOT NULL,    -- the number of its run
    seq            INTEGER NOT NULL,    -- of its first event
    call_id        TEXT NOT NULL,
    user           TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    events         TEXT NOT NULL,       -- a JSON array of code, time and redacted facts of each
    hash           BLOB NOT NULL,       -- a MAC over the hash before it and this row
    forgotten      BLOB,                -- of a row whose facts were removed: its seal
    UNIQUE (run, seq)
);

-- The head of each run: where its sequence and its chain go on.
CREATE TABLE runs (
    nr         INTEGER PRIMARY KEY, -- in the order in which they began, without gaps but for those that were removed
    run_id     TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    status     TEXT NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    last_seq   INTEGER NOT NULL,
    seal       BLOB NOT NULL,       -- a MAC over the hash of its last segment
    root_call  TEXT NOT NULL,       -- the call whose end is the end of the run
    open_calls INTEGER NOT NULL,    -- requested and not ended
    owner      TEXT NOT NULL,       -- the process that last told of it
    UNIQUE (run_id, tenant)
);
CREATE INDEX runs_open ON runs (owner) WHERE open_calls > 0;
