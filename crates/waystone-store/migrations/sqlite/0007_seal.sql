-- Sealed stores. In one of these every column ANY holds sealed bytes, as do the hashes of what a client said and the bytes of contexts;
-- nothing is written to what is searched by. In a plain store these columns are NULL. See seal.rs.

ALTER TABLE space ADD COLUMN wrapped_key BLOB;    -- seals operations, events, and what belongs to no session and no project
ALTER TABLE session ADD COLUMN wrapped_key BLOB;  -- seals its fields and checkpoints; goes with it
ALTER TABLE project ADD COLUMN wrapped_key BLOB;  -- seals its segments and snapshots
