-- Background work. `body` and `outcome` are encrypted; the body is deleted when the job ends.
CREATE TABLE jobs (
    nr         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which they were stored
    id         text COLLATE "C" NOT NULL UNIQUE,
    queue      text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    "user"     text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    priority   bigint NOT NULL,           -- the lowest is first
    status     text COLLATE "C" NOT NULL,
    attempts   bigint NOT NULL,           -- how often a process has begun it
    created_at double precision NOT NULL,
    ended_at   double precision,
    sent       bigint NOT NULL,           -- how often it was handed over to an engine outside the store
    sent_at    double precision,          -- the last time
    owner      text COLLATE "C" NOT NULL, -- the process that runs it, or hands it over; '' for none
    body       bytea,
    outcome    bytea                      -- if the run does not contain it
);
CREATE INDEX jobs_waiting ON jobs (tenant, priority, nr) WHERE status = 'waiting';
CREATE INDEX jobs_unsent ON jobs (nr) WHERE status = 'waiting' AND sent_at IS NULL;
CREATE INDEX jobs_running ON jobs (owner) WHERE status = 'running';
CREATE INDEX jobs_run ON jobs (run_id, nr);
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;

-- Calls that are requested at the times of a cron expression. `arguments` is encrypted.
CREATE TABLE schedules (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    "user"     text COLLATE "C" NOT NULL,
    cron       text COLLATE "C" NOT NULL,
    timezone   text COLLATE "C" NOT NULL,
    tool_name  text COLLATE "C" NOT NULL,
    arguments  bytea NOT NULL,
    created_at double precision NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    last_at    double precision,          -- the time of the last call that was requested
    PRIMARY KEY (tenant, name)
);
