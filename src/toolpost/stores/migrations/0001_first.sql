-- The append-only record: every event of every run, numbered and chained.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused, so that a follower can go on after any id
    run_id  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    code    INTEGER NOT NULL,
    at      REAL NOT NULL,
    call_id TEXT NOT NULL,
    tenant  TEXT NOT NULL,
    payload TEXT NOT NULL,                     -- redacted JSON
    hash    BLOB NOT NULL,                     -- SHA-256 over the hash before it and this row
    UNIQUE (run_id, seq)
);

-- The head of each run: where its sequence and its chain go on.
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    status     TEXT NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    last_seq   INTEGER NOT NULL,
    last_hash  BLOB NOT NULL,
    root_call  TEXT NOT NULL,                  -- the call whose end is the end of the run
    owner      TEXT NOT NULL                   -- the process that last told of it
);
CREATE INDEX runs_running ON runs (owner) WHERE status = 'running';

-- Intents before effects, results after. `call` and `result` are sealed.
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

-- Questions to people. `action`, `answer` and `outcome` are sealed.
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
    owner       TEXT                            -- who claimed it
);
CREATE INDEX pending_run ON pending (run_id);
CREATE INDEX pending_call ON pending (call_id);
CREATE INDEX pending_open ON pending (expires_at) WHERE status = 'open';
CREATE INDEX pending_claimed ON pending (owner) WHERE status = 'claimed';

-- Idempotency keys of each user. `outcome` is sealed.
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

-- Wishes to cancel a run or a call.
CREATE TABLE cancels (
    target_id    TEXT PRIMARY KEY,
    requested_by TEXT NOT NULL,
    at           REAL NOT NULL
);

-- What is known of each artifact; its bytes are the file named by the hash.
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
    created_at REAL NOT NULL
);
CREATE INDEX artifacts_run ON artifacts (run_id);
CREATE INDEX artifacts_content ON artifacts (sha256);

-- A planner's memory. `body` is sealed.
CREATE TABLE state (
    kind TEXT NOT NULL,
    key  TEXT NOT NULL,
    item TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, key, item)
);
