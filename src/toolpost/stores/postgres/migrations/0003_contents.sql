-- Contents of artifacts in object storage. A row exists before its object and after it; names are never used again.
CREATE TABLE contents (
    object     text COLLATE "C" PRIMARY KEY,
    place      text COLLATE "C" NOT NULL,  -- the bucket and the prefix, such as s3://bucket/prefix
    sha256     text COLLATE "C" NOT NULL,
    size       bigint NOT NULL,            -- before encryption
    chunk      bigint NOT NULL,            -- length of a full encrypted chunk, 0 before the upload
    key_prefix bytea NOT NULL,             -- of everything encrypted with the key of the object
    state      text COLLATE "C" NOT NULL,  -- uploading, ready or deleted
    at         double precision NOT NULL   -- time of the last change of the state
);
CREATE INDEX contents_sha256 ON contents (sha256);
CREATE INDEX contents_unsettled ON contents (at) WHERE state <> 'ready';
