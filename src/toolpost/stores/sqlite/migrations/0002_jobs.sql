-- Background work. `body` and `outcome` are encrypted; the body is deleted when the job ends.
CREATE TABLE jobs (
    nr         INTEGER PRIMARY KEY, -- in the order in which they were stored
    id         TEXT NOT NULL UNIQUE,
    queue      TEXT NOT NULL,
    run_id     TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    user       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    priority   INTEGER NOT NULL,    -- the lowest is first
    status     TEXT NOT NULL,
    attempts   INTEGER NOT NULL,    -- how often a process has begun it
    created_at REAL NOT NULL,
    ended_at   REAL,
    sent       INTEGER NOT NULL,    -- how often it was handed over to an engine outside the store
    sent_at    REAL,                -- the last time
    owner      TEXT NOT NULL,       -- the process that runs it, or hands it over; '' for none
    body       BLOB,
    outcome    BLOB                 -- if the run does not contain it
);
CREATE INDEX jobs_waiting ON jobs (tenant, priority, nr) WHERE status = 'waiting';
CREATE INDEX jobs_unsent ON jobs (nr) WHERE status = 'waiting' AND sent_at IS NULL;
CREATE INDEX jobs_running ON jobs (owner) WHERE status = 'running';
CREATE INDEX jobs_run ON jobs (run_id, nr);
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;

-- Calls that are requested at the times of a cron expression. `arguments` is encrypted.
CREATE TABLE schedules (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    user       TEXT NOT NULL,
    cron       TEXT NOT NULL,
    timezone   TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    arguments  BLOB NOT NULL,
    created_at REAL NOT NULL,
    created_by TEXT NOT NULL,
    last_at    REAL,                -- the time of the last call that was requested
    PRIMARY KEY (tenant, name)
);
