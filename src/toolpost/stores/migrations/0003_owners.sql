-- Whose a planner's pause is, and until when it counts: so that it is forgotten with its person, and goes with its time.
ALTER TABLE state ADD COLUMN owner TEXT NOT NULL DEFAULT ''; -- tenant:user
ALTER TABLE state ADD COLUMN until REAL;                     -- NULL for what does not end by itself
CREATE INDEX state_owner ON state (owner) WHERE owner <> '';
CREATE INDEX state_until ON state (until) WHERE until IS NOT NULL;

-- Whoever takes a question, to answer, expire or cancel it, owns it until it is settled.
DROP INDEX pending_claimed;
CREATE INDEX pending_owned ON pending (owner) WHERE owner IS NOT NULL;

-- Whose calls a wish is for; NULL for everybody's.
ALTER TABLE cancels ADD COLUMN tenant TEXT;
