-- A MAC over the other columns of a caller's key: writing to the database does not give a key rights. Older rows get
-- theirs from the program, which has the key; it also binds journal and idempotency rows to all that identifies them.
ALTER TABLE caller_keys ADD COLUMN mac BLOB;
