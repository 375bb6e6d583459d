-- The event log: events of one call that are written together are one row, encoded and hashed once.
CREATE TABLE segments (
    last_id        INTEGER PRIMARY KEY, -- of its last event; assigned by the ledger and never reused, so readers can continue after any id
    run            INTEGER NOT NULL,    -- the number of its run
    seq            INTEGER NOT NULL,    -- of its first event
    call_id        TEXT NOT NULL,
    user           TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    events         TEXT NOT NULL,       -- a JSON array of code, time and redacted facts of each
    hash           BLOB NOT NULL,       -- a MAC over the hash before it and this row
    forgotten      BLOB,                -- if the facts were erased: a MAC over the remaining columns
    codes          TEXT NOT NULL,       -- the different codes in `events`, in order; `verify` compares these three columns
    first_at       REAL NOT NULL,       -- the time of the first event
    last_at        REAL NOT NULL,       -- the time of the last event
    UNIQUE (run, seq)
);
-- For filters of events: a tenth of the size of the table. It grows at its end, so writing takes about as long.
CREATE INDEX segments_filters ON segments (last_id, tool_name, user, codes, first_at, last_at, run);

-- The head of each run: its status, and the end of its sequence and chain.
CREATE TABLE runs (
    nr         INTEGER PRIMARY KEY, -- in the order of their first events, without gaps except for removed runs
    run_id     TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    status     TEXT NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    last_seq   INTEGER NOT NULL,
    mac        BLOB NOT NULL,       -- a MAC over the hash of its last segment
    root_call  TEXT NOT NULL,       -- the call whose end is the end of the run
    open_calls INTEGER NOT NULL,    -- requested and not ended
    owner      TEXT NOT NULL,       -- the process that wrote its last event
    UNIQUE (run_id, tenant)
);
CREATE INDEX runs_open ON runs (owner) WHERE open_calls > 0;
CREATE INDEX runs_user ON runs (tenant, user, nr);
-- For filters of runs, without notices of sources and of the catalog. One narrow index is read from its end. Each other
-- index of all runs takes 0.4 us of a durable call (measured 2026-11), one of those that did not complete takes none.
CREATE INDEX runs_filters ON runs (tenant, nr, tool_name, status, started_at) WHERE root_call <> '';
CREATE INDEX runs_not_completed ON runs (tenant, status) WHERE root_call <> '' AND status <> 'completed';

-- The number of runs and events that the log should contain: one row. Without a key, the log is new.
CREATE TABLE ledger (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    key        BLOB NOT NULL,       -- the key of the log, encrypted with the folder's
    last_event INTEGER NOT NULL,    -- the last id assigned to an event
    last_run   INTEGER NOT NULL,    -- the last number assigned to a run
    runs       INTEGER NOT NULL,    -- the number of runs
    total      BLOB NOT NULL,       -- the sum of their MACs
    mac        BLOB NOT NULL        -- a MAC over the columns before it
);
INSERT INTO ledger VALUES (1, x'', 0, 0, 0, x'', x'');

-- Journal: an intent before each call with effects, its result after. `call` and `result` are encrypted.
CREATE TABLE journal (
    call_id   TEXT NOT NULL,
    step      TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    tool_name TEXT NOT NULL,
    tenant    TEXT NOT NULL,
    user      TEXT NOT NULL,
    at        REAL NOT NULL,
    owner     TEXT NOT NULL,
    call      BLOB NOT NULL,
    result    BLOB,
    PRIMARY KEY (call_id, step)
);
CREATE INDEX journal_run ON journal (run_id);
CREATE INDEX journal_unfinished ON journal (owner) WHERE result IS NULL;

-- Pending actions. `action`, `answer` and `outcome` are encrypted.
CREATE TABLE pending (
    id          TEXT PRIMARY KEY,
    call_id     TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    user        TEXT NOT NULL,
    status      TEXT NOT NULL,
    created_at  REAL NOT NULL,
    expires_at  REAL NOT NULL,
    action      BLOB NOT NULL,
    answer      BLOB,
    answered_by TEXT,
    answered_at REAL,
    outcome     BLOB,
    owner       TEXT,               -- the process that took it, to answer, expire or cancel it, until it is settled
    mac         BLOB,               -- a MAC over its status and who answered
    same_call   BLOB                -- a MAC over who requested which call in which session: a repeated call finds this one
);
CREATE INDEX pending_run ON pending (run_id);
CREATE INDEX pending_call ON pending (call_id);
CREATE INDEX pending_open ON pending (expires_at) WHERE status = 'open';
CREATE INDEX pending_owned ON pending (owner) WHERE owner IS NOT NULL;
CREATE INDEX pending_same_call ON pending (same_call) WHERE status = 'open' AND same_call IS NOT NULL;

-- Idempotency keys of each user. `outcome` is encrypted.
CREATE TABLE keys (
    tenant         TEXT NOT NULL,
    user           TEXT NOT NULL,
    key            TEXT NOT NULL,
    call_id        TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    arguments_hash TEXT NOT NULL,
    at             REAL NOT NULL,
    owner          TEXT NOT NULL,
    outcome        BLOB,
    PRIMARY KEY (tenant, user, key)
);
CREATE INDEX keys_call ON keys (call_id);
CREATE INDEX keys_unsettled ON keys (owner) WHERE outcome IS NULL;

-- Requests to cancel a run or a call.
CREATE TABLE cancels (
    nr           INTEGER PRIMARY KEY AUTOINCREMENT, -- of the request, never reused
    target_id    TEXT NOT NULL,
    tenant       TEXT NOT NULL,     -- '' for all tenants
    requested_by TEXT NOT NULL,
    at           REAL NOT NULL,
    UNIQUE (target_id, tenant)
);

-- Metadata of artifacts; the content is the file named by the hash.
CREATE TABLE artifacts (
    id         TEXT PRIMARY KEY,
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    call_id    TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    created_at REAL NOT NULL,
    user       TEXT NOT NULL        -- '' for an upload without a user
);
CREATE INDEX artifacts_run ON artifacts (run_id);
CREATE INDEX artifacts_content ON artifacts (sha256);

-- Planner state, console sessions and tickets. `body` is encrypted.
CREATE TABLE state (
    kind  TEXT NOT NULL,
    key   TEXT NOT NULL,
    item  TEXT NOT NULL,
    body  BLOB NOT NULL,
    owner TEXT NOT NULL,             -- tenant:user, '' for none; deleted when that user is erased
    until REAL,                      -- NULL for records that do not expire
    PRIMARY KEY (kind, key, item)
);
CREATE INDEX state_owner ON state (owner) WHERE owner <> '';
CREATE INDEX state_until ON state (until) WHERE until IS NOT NULL;

-- Tokens of connected accounts. `body` is encrypted to the key and the version.
CREATE TABLE tokens (
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    resource   TEXT NOT NULL,
    client     TEXT NOT NULL,
    version    INTEGER NOT NULL,               -- a new one for each body, never reused
    status     TEXT NOT NULL,
    changed_at REAL NOT NULL,
    body       BLOB NOT NULL,
    holder     TEXT NOT NULL DEFAULT '',       -- who refreshes it
    owner      TEXT NOT NULL DEFAULT '',       -- the process of the holder
    until      REAL NOT NULL DEFAULT 0,        -- when the lease ends automatically
    PRIMARY KEY (tenant, user, issuer, resource, client)
);

-- Keys of the gateway's callers. The secret part is not stored, only its digest.
CREATE TABLE caller_keys (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    user        TEXT NOT NULL,
    scopes      TEXT NOT NULL,      -- separated by blanks
    digest      BLOB NOT NULL,      -- SHA-256 of the secret part
    created_at  REAL NOT NULL,
    created_by  TEXT NOT NULL,
    expires_at  REAL,               -- NULL for a key that does not expire
    interactive INTEGER NOT NULL,   -- whether a person uses the MCP client that has the key, and may answer in it
    person      INTEGER NOT NULL,   -- whether the key only opens console sessions
    mac         BLOB                -- a MAC over the other columns: writing to the database does not grant rights
);

-- The position of each webhook in the log. One running process sends for a webhook: its owner.
CREATE TABLE webhooks (
    name          TEXT PRIMARY KEY,
    position      INTEGER NOT NULL,   -- the last event that was delivered, or is not for this webhook
    delivered     INTEGER NOT NULL,
    failures      INTEGER NOT NULL,   -- in a row, without a success between them
    error         TEXT NOT NULL,      -- why the last attempt failed
    failing_since REAL,
    next_try_at   REAL,               -- NULL without failures, and if there is no further attempt
    owner         TEXT NOT NULL       -- '' for none
);

-- Counts of events by minute and by hour, for each value of a dimension (all, tool, source, user, code, tool and code).
CREATE TABLE metrics (
    tenant       TEXT NOT NULL,
    dimension    TEXT NOT NULL,
    key          TEXT NOT NULL,
    width        INTEGER NOT NULL,   -- seconds
    begin        INTEGER NOT NULL,   -- seconds since 1970
    calls        INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    asked        INTEGER NOT NULL,
    answered     INTEGER NOT NULL,
    denied       INTEGER NOT NULL,
    expired      INTEGER NOT NULL,
    durations    TEXT NOT NULL,      -- a histogram: the number of calls by bucket, as JSON
    answer_times TEXT NOT NULL,
    last_at      REAL NOT NULL,
    PRIMARY KEY (tenant, dimension, width, begin, key)
) WITHOUT ROWID;
CREATE INDEX metrics_begin ON metrics (width, begin);

-- The last event in the metrics: one row.
CREATE TABLE metrics_position (position INTEGER NOT NULL);
INSERT INTO metrics_position VALUES (0);
