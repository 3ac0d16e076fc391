-- Search in what checkpoints contain, and transcripts of other programs.

-- Each session's newest checkpoint by what is in it. All of it follows from the checkpoints, and is written by housekeeping.
CREATE TABLE checkpoint_index (
    key           INTEGER PRIMARY KEY AUTOINCREMENT, -- its row in checkpoint_word; another one whenever it is made anew
    session       INTEGER NOT NULL UNIQUE REFERENCES session ON DELETE CASCADE,
    checkpoint    INTEGER,                  -- what is indexed; NULL before the first time, and when the session has none
    indexed_at_ms INTEGER NOT NULL,         -- when that was done; 0 before the first time
    stale         INTEGER NOT NULL,         -- 1 when the session has changed since
    pieces        BLOB NOT NULL             -- numbers of wordpieces, two bytes each
) STRICT;

CREATE INDEX checkpoint_index_stale ON checkpoint_index (session) WHERE stale = 1;
CREATE VIRTUAL TABLE checkpoint_word USING fts5(text, content = '', contentless_delete = 1, tokenize = 'porter unicode61');

INSERT INTO checkpoint_index (session, indexed_at_ms, stale, pieces) SELECT key, 0, 1, x'' FROM session;

-- How far what is kept for search follows what it is made from.
CREATE TABLE search_index (
    space        INTEGER PRIMARY KEY REFERENCES space,
    version      INTEGER NOT NULL,          -- how it is made; where the program has another one, all is made anew
    round        INTEGER NOT NULL,          -- how often it was; who has an earlier one in memory reads it again
    next_segment INTEGER,                   -- from this key on segments are still to be made anew; NULL when none are
    followed_seq INTEGER NOT NULL           -- newest operation that was looked at for sessions that changed
) STRICT;

INSERT INTO search_index (space, version, round, next_segment, followed_seq) SELECT space, 1, 0, NULL, operation_seq FROM space;

-- Segments whose tokens are an estimate.
CREATE INDEX segment_estimated ON segment (project) WHERE counted_at_ms IS NULL;

-- Files in which other programs write what was said, as far as they were captured.
CREATE TABLE transcript (
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    space    INTEGER NOT NULL REFERENCES space,
    path     ANY NOT NULL,                  -- where the file is
    end_at   INTEGER NOT NULL,              -- all before this byte was captured
    end_hash BLOB NOT NULL,                 -- SHA-256 of what stands right before it: another one when the file was cut or replaced
    UNIQUE (space, path)
) STRICT;

-- What was captured, so that nothing is twice, whichever file it stands in and however often.
CREATE TABLE transcript_turn (
    space INTEGER NOT NULL REFERENCES space,
    hash  BLOB NOT NULL,                    -- first half of the SHA-256 of what names it
    PRIMARY KEY (space, hash)
) STRICT, WITHOUT ROWID;
