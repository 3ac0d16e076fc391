-- Segments: pieces of text that agents have met, in projects and tasks; and what was done to them, so that it can be undone.

CREATE TABLE project (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    space         INTEGER NOT NULL REFERENCES space,
    id            TEXT NOT NULL,            -- public id, from the client or inferred
    current_task  INTEGER REFERENCES task,  -- the one task that is worked on; NULL when there is none
    changed_at_ms INTEGER NOT NULL,         -- newest change of its segments
    UNIQUE (space, id)
) STRICT;

CREATE TABLE task (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    space         INTEGER NOT NULL REFERENCES space,
    project       INTEGER NOT NULL REFERENCES project,
    id            TEXT NOT NULL,            -- public id, unique within its project
    changed_at_ms INTEGER NOT NULL,         -- newest change of its segments
    UNIQUE (project, id)
) STRICT;

CREATE TABLE segment (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    space          INTEGER NOT NULL REFERENCES space,
    project        INTEGER NOT NULL REFERENCES project,
    task           INTEGER REFERENCES task, -- NULL when it belongs to none
    id             TEXT NOT NULL,           -- public id, UUIDv7
    seq            INTEGER NOT NULL,        -- the order of segments, in their task and in the space
    type           TEXT NOT NULL,           -- message, code, log, note, decision or summary
    tier           TEXT NOT NULL,           -- working, stashed, or archive: deleted, and kept for a while
    pinned         INTEGER NOT NULL,        -- 1 when it is never pruned
    tokens         INTEGER NOT NULL,        -- of its text
    counted_at_ms  INTEGER,                 -- when they were counted; NULL while they are an estimate
    size_bytes     INTEGER NOT NULL,        -- length of its text
    text_hash      BLOB NOT NULL,           -- SHA-256 of its text
    created_at_ms  INTEGER NOT NULL,        -- when it was first met
    touched_at_ms  INTEGER NOT NULL,        -- when it was last met
    mentions       INTEGER NOT NULL,        -- how often it was met again
    entered_seq    INTEGER,                 -- seq of the operation that brought it into the working tier; NULL outside of it
    survived       INTEGER NOT NULL,        -- collections that it had survived before that
    topic          TEXT,                    -- what it is about, as the client names it
    file_path      ANY,                     -- the file it is from
    first_line     INTEGER,                 -- where in that file it begins
    last_line      INTEGER,                 -- and ends
    tags           ANY NOT NULL,            -- JSON array of strings
    archived_at_ms INTEGER,                 -- when it was deleted; NULL outside of the archive
    UNIQUE (space, id)
) STRICT;

-- The same text with the same type, put again, is found.
CREATE INDEX segment_by_text ON segment (project, type, text_hash);
CREATE INDEX segment_by_seq ON segment (project, tier, seq);
CREATE INDEX segment_by_age ON segment (project, tier, created_at_ms);
CREATE INDEX segment_live ON segment (project, seq) WHERE tier <> 'archive';
CREATE INDEX segment_live_by_task ON segment (task, seq) WHERE tier <> 'archive' AND task IS NOT NULL;
CREATE INDEX segment_by_task ON segment (task, tier, seq) WHERE task IS NOT NULL;
CREATE INDEX segment_by_task_age ON segment (task, tier, created_at_ms) WHERE task IS NOT NULL;
CREATE INDEX segment_archived ON segment (archived_at_ms) WHERE archived_at_ms IS NOT NULL;
-- From here on what garbage collection starts at is found: what must stay.
-- All that the order of pruning depends on, so that the rows need not be read.
CREATE INDEX segment_candidate ON segment
    (project, tier, pinned, task, type, touched_at_ms, mentions, survived, entered_seq, tokens, topic)
    WHERE tier = 'working' AND pinned = 0;
CREATE INDEX segment_pinned ON segment (project) WHERE pinned = 1;
CREATE INDEX segment_message ON segment (project, touched_at_ms, seq) WHERE type = 'message' AND tier = 'working';
CREATE INDEX segment_message_by_task ON segment (task, touched_at_ms, seq) WHERE type = 'message' AND tier = 'working';
CREATE INDEX segment_decision ON segment (project, created_at_ms) WHERE type = 'decision';
CREATE INDEX segment_by_file ON segment (project, file_path) WHERE file_path IS NOT NULL;
CREATE INDEX segment_by_topic ON segment (project, topic) WHERE topic IS NOT NULL;

-- What is searched is read in the order of keys, which every index ends with.
CREATE INDEX segment_by_project ON segment (project);

-- Apart from `segment`, so that changes and sums never touch the text.
CREATE TABLE segment_text (
    segment INTEGER PRIMARY KEY REFERENCES segment ON DELETE CASCADE,
    text    ANY NOT NULL
) STRICT;

-- Both follow from the text: the words of it, and the wordpieces by which its meaning is worked out.
CREATE VIRTUAL TABLE segment_word USING fts5(text, content = '', contentless_delete = 1, tokenize = 'porter unicode61');

CREATE TABLE segment_index (
    segment INTEGER PRIMARY KEY REFERENCES segment ON DELETE CASCADE,
    pieces  BLOB NOT NULL                   -- numbers of wordpieces, two bytes each
) STRICT;

-- One segment refers to another by a tag `ref:<id>`.
CREATE TABLE segment_ref (
    source INTEGER NOT NULL REFERENCES segment ON DELETE CASCADE,
    target INTEGER NOT NULL REFERENCES segment ON DELETE CASCADE,
    PRIMARY KEY (source, target)
) STRICT, WITHOUT ROWID;

CREATE INDEX segment_ref_by_target ON segment_ref (target);

-- Running sums over segments: whoever changes a segment counts it here in the same transaction.
CREATE TABLE usage (
    project       INTEGER NOT NULL REFERENCES project,
    task          INTEGER NOT NULL,         -- key of the task; 0 for what belongs to none
    tier          TEXT NOT NULL,
    type          TEXT NOT NULL,
    segment_count INTEGER NOT NULL,
    tokens        INTEGER NOT NULL,
    pinned_count  INTEGER NOT NULL,
    pinned_tokens INTEGER NOT NULL,
    PRIMARY KEY (project, task, tier, type)
) STRICT, WITHOUT ROWID;

-- Garbage collections of a project. What was in the working tier before one and still is has survived it.
CREATE TABLE collection (
    project INTEGER NOT NULL REFERENCES project,
    seq     INTEGER NOT NULL,               -- seq of the operation; the row goes when that is undone
    PRIMARY KEY (project, seq)
) STRICT, WITHOUT ROWID;

-- What a collection would do, until it is done or forgotten.
CREATE TABLE plan (
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    space    INTEGER NOT NULL REFERENCES space,
    project  INTEGER NOT NULL REFERENCES project,
    id       TEXT NOT NULL,                 -- public id, UUIDv7
    action   TEXT NOT NULL,                 -- stash or delete
    segments TEXT NOT NULL,                 -- JSON array of segments' public ids
    at_ms    INTEGER NOT NULL,              -- when it was made; forgotten a day later
    UNIQUE (space, id)
) STRICT;

-- A named capture of a task's segments: which they were, not what was in them, for that never changes.
CREATE TABLE snapshot (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    space          INTEGER NOT NULL REFERENCES space,
    project        INTEGER NOT NULL REFERENCES project,
    task           INTEGER NOT NULL REFERENCES task,
    id             TEXT NOT NULL,           -- public id, UUIDv7
    seq            INTEGER NOT NULL,        -- order of making
    name           ANY,                     -- given by the client
    created_at_ms  INTEGER NOT NULL,
    segment_count  INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,
    archived_at_ms INTEGER,                 -- when its making was undone; NULL while it is live
    UNIQUE (space, id)
) STRICT;

CREATE INDEX snapshot_by_project ON snapshot (project, seq);

CREATE TABLE snapshot_segment (
    snapshot INTEGER NOT NULL REFERENCES snapshot ON DELETE CASCADE,
    segment  INTEGER NOT NULL REFERENCES segment,
    tier     TEXT NOT NULL,                 -- where it was
    pinned   INTEGER NOT NULL,              -- whether it was pinned
    PRIMARY KEY (snapshot, segment)
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshot_segment_by_segment ON snapshot_segment (segment);

-- What a segment was before an operation changed it. Undoing puts it back.
CREATE TABLE segment_change (
    space       INTEGER NOT NULL REFERENCES space,
    operation   INTEGER NOT NULL,           -- seq of the operation
    segment     INTEGER NOT NULL REFERENCES segment ON DELETE CASCADE,
    tier        TEXT,                       -- NULL when the operation added it
    pinned      INTEGER NOT NULL,
    entered_seq INTEGER,
    survived    INTEGER NOT NULL,
    mentions    INTEGER NOT NULL,           -- how often it had been met again right after: if it was since, it is not taken away
    PRIMARY KEY (space, operation, segment)
) STRICT, WITHOUT ROWID;

CREATE INDEX segment_change_by_segment ON segment_change (segment, operation);

-- Neither is covered by the operation's hash: `undoes` stands in its payload, `undone` follows from the others.
ALTER TABLE operation ADD COLUMN undoes INTEGER;                   -- seq of the operation that this one undid
ALTER TABLE operation ADD COLUMN undone INTEGER NOT NULL DEFAULT 0; -- 1 while it is undone
CREATE INDEX operation_by_project ON operation (space, project, seq);
CREATE INDEX operation_standing ON operation (space, project, seq) WHERE undone = 0 AND undoes IS NULL;

-- The newest time that housekeeping believes. What is removed for good waits until a jump of the clock is confirmed by another start.
CREATE TABLE clock (
    seen_at_ms INTEGER NOT NULL,            -- the newest time that was believed
    doubted_by TEXT                         -- the start that saw a time far beyond it; NULL when there is no doubt
) STRICT;
