-- By which a repeated call finds the one that waits: a MAC over who asked for which call in which session.
ALTER TABLE pending ADD COLUMN same_call BLOB;
CREATE INDEX pending_same_call ON pending (same_call) WHERE status = 'open' AND same_call IS NOT NULL;
