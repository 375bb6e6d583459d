-- The time of the database, by which leases end. A simulation replaces this function in its own database.
CREATE FUNCTION toolpost.now() RETURNS double precision LANGUAGE sql VOLATILE
    AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;

-- One row. Positions of events are (transaction id - event_base) * 4096 + number: a restored database needs another base.
CREATE TABLE meta (
    id         bigint PRIMARY KEY CHECK (id = 1),
    event_base bigint NOT NULL
);
INSERT INTO meta SELECT 1, pg_current_xact_id()::text::bigint - 1;

-- The processes that have the store open. Each has a lease on the time of the database, and its part of the ledger.
CREATE TABLE owners (
    id         text COLLATE "C" PRIMARY KEY,
    epoch      bigint NOT NULL,           -- how often the process has registered
    until      double precision NOT NULL, -- the end of its lease
    started_at double precision NOT NULL,
    dead_at    double precision,          -- when another process found that its lease had ended; it never writes again
    host       text COLLATE "C" NOT NULL,
    pid        bigint NOT NULL,
    version    text COLLATE "C" NOT NULL,
    batch      bigint NOT NULL,           -- the number of its last transaction: tells whether one was committed
    last_event bigint NOT NULL,           -- the last position that it assigned to an event
    last_run   bigint NOT NULL,           -- the last number that it assigned to a run
    runs       bigint NOT NULL,           -- the number of runs that it added, less those that it removed
    total      bytea NOT NULL,            -- the sum of their MACs
    mac        bytea NOT NULL             -- a MAC over the four columns before it
) WITH (fillfactor = 50);

-- The event log: events of one call that are written together are one row, encoded and hashed once.
CREATE TABLE segments (
    last_id        bigint PRIMARY KEY,        -- of its last event: a position in the order of transactions
    run            bigint NOT NULL,           -- the number of its run
    seq            bigint NOT NULL,           -- of its first event
    call_id        text COLLATE "C" NOT NULL,
    "user"         text COLLATE "C" NOT NULL,
    tool_name      text COLLATE "C" NOT NULL,
    correlation_id text COLLATE "C" NOT NULL,
    events         text COLLATE "C" NOT NULL, -- a JSON array of code, time and redacted facts of each
    hash           bytea NOT NULL,            -- a MAC over the hash before it and this row
    forgotten      bytea,                     -- if the facts were erased: a MAC over the remaining columns
    codes          text COLLATE "C" NOT NULL, -- the different codes in `events`, in order; `verify` compares these three columns
    first_at       double precision NOT NULL, -- the time of the first event
    last_at        double precision NOT NULL, -- the time of the last event
    UNIQUE (run, seq)
);

-- The head of each run: its status, and the end of its sequence and chain.
CREATE TABLE runs (
    nr         bigint PRIMARY KEY,        -- a position, as those of events
    run_id     text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    "user"     text COLLATE "C" NOT NULL,
    tool_name  text COLLATE "C" NOT NULL,
    status     text COLLATE "C" NOT NULL,
    started_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    last_seq   bigint NOT NULL,
    mac        bytea NOT NULL,            -- a MAC over the hash of its last segment
    root_call  text COLLATE "C" NOT NULL, -- the call whose end is the end of the run
    open_calls bigint NOT NULL,           -- requested and not ended
    owner      text COLLATE "C" NOT NULL, -- the process that wrote its last event
    UNIQUE (run_id, tenant)
) WITH (fillfactor = 80);
CREATE INDEX runs_open ON runs (owner) WHERE open_calls > 0;
CREATE INDEX runs_user ON runs (tenant, "user", nr);
-- For filters of runs, without notices of sources and of the catalog.
CREATE INDEX runs_filters ON runs (tenant, nr, tool_name, started_at) WHERE root_call <> '';
CREATE INDEX runs_not_completed ON runs (tenant, status) WHERE root_call <> '' AND status <> 'completed';

-- The runs of owners that have ended, and the key of the log: one row. Without a key, the log is new.
CREATE TABLE ledger (
    id         bigint PRIMARY KEY CHECK (id = 1),
    key        bytea NOT NULL,            -- the key of the log, encrypted with the key of the deployment
    last_event bigint NOT NULL,
    last_run   bigint NOT NULL,           -- the number of rows of `owners`, whose runs are added to these
    runs       bigint NOT NULL,           -- the number of runs
    total      bytea NOT NULL,            -- the sum of their MACs
    mac        bytea NOT NULL             -- a MAC over the four columns before it
);
INSERT INTO ledger VALUES (1, '', 0, 0, 0, '', '');

-- Journal: an intent before each call with effects, its result after. `call` and `result` are encrypted.
CREATE TABLE journal (
    call_id   text COLLATE "C" NOT NULL,
    step      text COLLATE "C" NOT NULL,
    run_id    text COLLATE "C" NOT NULL,
    tool_name text COLLATE "C" NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    "user"    text COLLATE "C" NOT NULL,
    at        double precision NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    call      bytea NOT NULL,
    result    bytea,
    nr        bigint GENERATED ALWAYS AS IDENTITY, -- the order in which intents were written first
    PRIMARY KEY (call_id, step)
);
CREATE INDEX journal_run ON journal (run_id);
CREATE INDEX journal_unfinished ON journal (owner) WHERE result IS NULL;

-- Pending actions. `action`, `answer` and `outcome` are encrypted.
CREATE TABLE pending (
    id          text COLLATE "C" PRIMARY KEY,
    call_id     text COLLATE "C" NOT NULL,
    run_id      text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    "user"      text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL,
    created_at  double precision NOT NULL,
    expires_at  double precision NOT NULL,
    action      bytea NOT NULL,
    answer      bytea,
    answered_by text COLLATE "C",
    answered_at double precision,
    outcome     bytea,
    owner       text COLLATE "C",          -- the process that took it, to answer, expire or cancel it, until it is settled
    mac         bytea,                     -- a MAC over its status and who answered
    same_call   bytea,                     -- a MAC over who requested which call in which session: a repeated call finds this one
    nr          bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX pending_run ON pending (run_id);
CREATE INDEX pending_call ON pending (call_id);
CREATE INDEX pending_open ON pending (expires_at) WHERE status = 'open';
CREATE INDEX pending_owned ON pending (owner) WHERE owner IS NOT NULL;
CREATE INDEX pending_same_call ON pending (same_call) WHERE status = 'open' AND same_call IS NOT NULL;

-- Idempotency keys of each user. `outcome` is encrypted.
CREATE TABLE keys (
    tenant         text COLLATE "C" NOT NULL,
    "user"         text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    call_id        text COLLATE "C" NOT NULL,
    tool_name      text COLLATE "C" NOT NULL,
    arguments_hash text COLLATE "C" NOT NULL,
    at             double precision NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    outcome        bytea,
    PRIMARY KEY (tenant, "user", key)
);
CREATE INDEX keys_call ON keys (call_id);
CREATE INDEX keys_unsettled ON keys (owner) WHERE outcome IS NULL;

-- Requests to cancel a run or a call.
CREATE TABLE cancels (
    nr           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- of the request, never reused
    target_id    text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,                       -- '' for all tenants
    requested_by text COLLATE "C" NOT NULL,
    at           double precision NOT NULL,
    UNIQUE (target_id, tenant)
);

-- Metadata of artifacts; the content is the file named by the hash.
CREATE TABLE artifacts (
    id         text COLLATE "C" PRIMARY KEY,
    sha256     text COLLATE "C" NOT NULL,
    size       bigint NOT NULL,
    media_type text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    call_id    text COLLATE "C" NOT NULL,
    tool_name  text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    "user"     text COLLATE "C" NOT NULL,  -- '' for an upload without a user
    nr         bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX artifacts_run ON artifacts (run_id);
CREATE INDEX artifacts_content ON artifacts (sha256);

-- Planner state, console sessions and tickets. `body` is encrypted.
CREATE TABLE state (
    kind  text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    item  text COLLATE "C" NOT NULL,
    body  bytea NOT NULL,
    owner text COLLATE "C" NOT NULL,       -- tenant:user, '' for none; deleted when that user is erased
    until double precision,                -- NULL for records that do not expire
    PRIMARY KEY (kind, key, item)
);
CREATE INDEX state_owner ON state (owner) WHERE owner <> '';
CREATE INDEX state_until ON state (until) WHERE until IS NOT NULL;

-- Tokens of connected accounts. `body` is encrypted to the key and the version.
CREATE TABLE tokens (
    tenant     text COLLATE "C" NOT NULL,
    "user"     text COLLATE "C" NOT NULL,
    issuer     text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    client     text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,                          -- a new one for each body, never reused
    status     text COLLATE "C" NOT NULL,
    changed_at double precision NOT NULL,
    body       bytea NOT NULL,
    holder     text COLLATE "C" NOT NULL DEFAULT '',     -- who refreshes it
    owner      text COLLATE "C" NOT NULL DEFAULT '',     -- the process of the holder
    until      double precision NOT NULL DEFAULT 0,      -- when the lease ends automatically
    PRIMARY KEY (tenant, "user", issuer, resource, client)
);

-- Keys of the gateway's callers. The secret part is not stored, only its digest.
CREATE TABLE caller_keys (
    id          text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    "user"      text COLLATE "C" NOT NULL,
    scopes      text COLLATE "C" NOT NULL,     -- separated by blanks
    digest      bytea NOT NULL,                -- SHA-256 of the secret part
    created_at  double precision NOT NULL,
    created_by  text COLLATE "C" NOT NULL,
    expires_at  double precision,              -- NULL for a key that does not expire
    interactive bigint NOT NULL,               -- whether a person uses the MCP client that has the key, and may answer in it
    person      bigint NOT NULL,               -- whether the key only opens console sessions
    mac         bytea                          -- a MAC over the other columns: writing to the database does not grant rights
);

-- The position of each webhook in the log. One running process sends for a webhook: its owner.
CREATE TABLE webhooks (
    name          text COLLATE "C" PRIMARY KEY,
    position      bigint NOT NULL,             -- the last event that was delivered, or is not for this webhook
    delivered     bigint NOT NULL,
    failures      bigint NOT NULL,             -- in a row, without a success between them
    error         text COLLATE "C" NOT NULL,   -- why the last attempt failed
    failing_since double precision,
    next_try_at   double precision,            -- NULL without failures, and if there is no further attempt
    owner         text COLLATE "C" NOT NULL    -- '' for none
);

-- Counts of events by minute and by hour, for each value of a dimension (all, tool, source, user, code, tool and code).
CREATE TABLE metrics (
    tenant       text COLLATE "C" NOT NULL,
    dimension    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    width        bigint NOT NULL,              -- seconds
    begin        bigint NOT NULL,              -- seconds since 1970
    calls        bigint NOT NULL,
    failed       bigint NOT NULL,
    asked        bigint NOT NULL,
    answered     bigint NOT NULL,
    denied       bigint NOT NULL,
    expired      bigint NOT NULL,
    durations    text COLLATE "C" NOT NULL,    -- a histogram: the number of calls by bucket, as JSON
    answer_times text COLLATE "C" NOT NULL,
    last_at      double precision NOT NULL,
    PRIMARY KEY (tenant, dimension, width, begin, key)
);
CREATE INDEX metrics_begin ON metrics (width, begin);

-- The last event in the metrics: one row.
CREATE TABLE metrics_position (position bigint NOT NULL);
INSERT INTO metrics_position VALUES (0);

-- Limits that all processes share. They are not durable: unlogged tables are empty after a crash of the server.

-- Token buckets: the time at which a bucket will be full.
CREATE UNLOGGED TABLE buckets (
    name    text COLLATE "C" PRIMARY KEY,
    full_at double precision NOT NULL
) WITH (fillfactor = 50);

-- The slots that each process holds. The row without names shows that the table was not emptied by a crash.
CREATE UNLOGGED TABLE slots (
    name  text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    held  bigint NOT NULL,
    since double precision,          -- since when the process has waited for a slot, or for another one
    seen  double precision NOT NULL, -- when the process last looked for one
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 50);
INSERT INTO slots VALUES ('', '', 0, NULL, 0);

CREATE UNLOGGED TABLE breakers (
    name          text COLLATE "C" PRIMARY KEY,
    failures      bigint NOT NULL,           -- of all processes, without a success between them
    opened_at     double precision,
    prober        text COLLATE "C",          -- the process whose call is the probe
    probe_until   double precision NOT NULL,
    failing_since double precision NOT NULL,
    changed_at    double precision NOT NULL
) WITH (fillfactor = 50);

CREATE UNLOGGED TABLE gates (
    name       text COLLATE "C" PRIMARY KEY,
    until      double precision NOT NULL,
    changed_at double precision NOT NULL
) WITH (fillfactor = 50);

-- Takes one of `most` slots for a process: 'entered', 'full', or 'unknown' for some seconds after a crash, in which
-- processes write the slots that they hold. Another process is first if it waits and has fewer slots, or has the same
-- number and waits for longer.
CREATE FUNCTION toolpost.enter_slot(slot text, process text, most bigint, waiting bigint) RETURNS text
LANGUAGE plpgsql SET search_path = toolpost AS $$
DECLARE
    at        double precision;
    checked   double precision;
    all_held  bigint;
    own_held  bigint;
    own_since double precision;
BEGIN
    -- A function sees what was committed while it waited; a single statement would not.
    PERFORM pg_advisory_xact_lock(1953459820, hashtext(slot));
    at := toolpost.now();
    SELECT seen INTO checked FROM slots WHERE name = '' AND owner = '';
    IF checked IS NULL THEN
        INSERT INTO slots VALUES ('', '', 0, NULL, at) ON CONFLICT DO NOTHING;
        RETURN 'unknown';
    ELSIF at < checked + 3 THEN
        RETURN 'unknown';
    END IF;
    SELECT coalesce(sum(held), 0) INTO all_held FROM slots WHERE name = slot;
    SELECT coalesce(sum(held), 0), coalesce(min(since), at) INTO own_held, own_since
    FROM slots WHERE name = slot AND owner = process;
    IF all_held < most AND NOT EXISTS (
        SELECT FROM slots AS other
        WHERE name = slot AND owner <> process AND other.since IS NOT NULL AND other.seen > at - 1 AND (
            other.held < own_held
            OR other.held = own_held AND other.since < own_since AND other.since < at - 0.1
        )
    ) THEN
        INSERT INTO slots VALUES (slot, process, 1, CASE WHEN waiting > 1 THEN at END, at)
        ON CONFLICT (name, owner) DO UPDATE
        SET held = slots.held + 1, since = excluded.since, seen = excluded.seen;
        RETURN 'entered';
    END IF;
    IF waiting > 0 THEN
        INSERT INTO slots VALUES (slot, process, 0, at, at)
        ON CONFLICT (name, owner) DO UPDATE SET since = coalesce(slots.since, excluded.since), seen = excluded.seen;
    END IF;
    RETURN 'full';
END $$;
