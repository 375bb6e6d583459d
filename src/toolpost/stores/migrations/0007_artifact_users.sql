-- For whom each artifact was made; '' for files that were uploaded before this was kept.
ALTER TABLE artifacts ADD COLUMN user TEXT NOT NULL DEFAULT '';
UPDATE artifacts SET user = coalesce((
    SELECT user FROM events
    WHERE events.run_id = artifacts.run_id AND events.tenant = artifacts.tenant AND events.call_id = artifacts.call_id
    LIMIT 1
), '');
