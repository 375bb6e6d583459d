-- Runs are told apart by tenant, and what is told of them is chained with a key. Events and runs of before are moved
-- over by the program, which has the key: checked by the rule they were written by, and sealed as they are.
DROP INDEX runs_running;
ALTER TABLE events RENAME TO events_before;
ALTER TABLE runs RENAME TO runs_before;

CREATE TABLE events (
    id        INTEGER PRIMARY KEY, -- given by the ledger and never reused, so that a follower can go on after any id
    run_id    TEXT NOT NULL,
    seq       INTEGER NOT NULL,
    code      INTEGER NOT NULL,
    at        REAL NOT NULL,
    call_id   TEXT NOT NULL,
    tenant    TEXT NOT NULL,
    user      TEXT NOT NULL,
    payload   TEXT NOT NULL,       -- redacted JSON
    hash      BLOB NOT NULL,       -- SHA-256 over the hash before it and the keyed digest of this row
    forgotten BLOB,                -- of a row whose payload was removed: its seal, and the digest that it had
    UNIQUE (run_id, tenant, seq)
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
    last_hash  BLOB NOT NULL,
    root_call  TEXT NOT NULL,       -- the call whose end is the end of the run
    open_calls INTEGER NOT NULL,    -- requested and not ended
    seal       BLOB NOT NULL,       -- a MAC over the columns before it
    owner      TEXT NOT NULL,       -- the process that last told of it
    UNIQUE (run_id, tenant)
);
CREATE INDEX runs_open ON runs (owner) WHERE open_calls > 0;

-- What the log should hold: one row.
CREATE TABLE ledger (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    key        BLOB NOT NULL,       -- the key of the log, sealed with the folder's
    last_event INTEGER NOT NULL,    -- the last id that an event was given
    last_run   INTEGER NOT NULL,    -- the last number that a run was given
    runs       INTEGER NOT NULL,    -- how many runs there are
    total      BLOB NOT NULL,       -- the sum of their seals
    seal       BLOB NOT NULL        -- a MAC over the columns before it
);

-- How a question stands, sealed: nobody answers in another's name, and what was answered is not open again.
ALTER TABLE pending ADD COLUMN seal BLOB;

-- Two tenants may use the same id.
ALTER TABLE cancels RENAME TO cancels_before;
CREATE TABLE cancels (
    target_id    TEXT NOT NULL,
    tenant       TEXT NOT NULL,     -- '' for everybody's
    requested_by TEXT NOT NULL,
    at           REAL NOT NULL,
    PRIMARY KEY (target_id, tenant)
);
INSERT INTO cancels SELECT target_id, ifnull(tenant, ''), requested_by, at FROM cancels_before;
DROP TABLE cancels_before;
