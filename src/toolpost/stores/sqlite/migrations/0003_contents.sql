-- Contents of artifacts in object storage. A row exists before its object and after it; names are never used again.
CREATE TABLE contents (
    object     TEXT PRIMARY KEY,
    place      TEXT NOT NULL,       -- the bucket and the prefix, such as s3://bucket/prefix
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,    -- before encryption
    chunk      INTEGER NOT NULL,    -- length of a full encrypted chunk, 0 before the upload
    key_prefix BLOB NOT NULL,       -- of everything encrypted with the key of the object
    state      TEXT NOT NULL,       -- uploading, ready or deleted
    at         REAL NOT NULL        -- time of the last change of the state
);
CREATE INDEX contents_sha256 ON contents (sha256);
CREATE INDEX contents_unsettled ON contents (at) WHERE state <> 'ready';
