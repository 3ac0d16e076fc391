-- What a session's agents say of its keys. In the mirror file with the session's other fields.
ALTER TABLE session ADD COLUMN critical_keys ANY NOT NULL DEFAULT '[]'; -- JSON array of keys that are never shortened in views
ALTER TABLE session ADD COLUMN context_rules ANY NOT NULL DEFAULT '[]'; -- JSON array of {pattern, class, reason}, first match wins

-- Contexts that came with a request for a view, so that its handles lead somewhere. Their size counts in space.size_bytes. They have no
-- second copy: whoever gave one has it.
CREATE TABLE given_context (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    space      INTEGER NOT NULL REFERENCES space,
    hash       BLOB NOT NULL,               -- SHA-256 of its JSON text
    raw_bytes  INTEGER NOT NULL,            -- length of that text
    size_bytes INTEGER NOT NULL,            -- length of its bytes as stored
    used_at_ms INTEGER NOT NULL,            -- when it was last given; goes seven days later
    bytes      BLOB NOT NULL,               -- zstd frame of the text
    UNIQUE (space, hash)
) STRICT;

CREATE INDEX given_context_by_use ON given_context (used_at_ms);
