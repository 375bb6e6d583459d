-- A MAC over the other columns of a caller's key: nobody gives a key rights by writing to the database. Rows of before get
-- theirs from the program, which has the key; it also binds journal and idempotency rows to all that identifies them.
ALTER TABLE caller_keys ADD COLUMN mac BLOB;
