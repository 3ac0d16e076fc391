-- Spaces, sessions, checkpoints, and the two logs (operations and events) that every later table joins.
--
-- Conventions, here and in every later migration:
--   key      internal integer, never leaves the store; AUTOINCREMENT so that a purged key is never reused
--   id       public text id, unique within its space
--   seq      order; the next number of a counter in the space's row, taken inside the transaction
--   *_ms     UTC milliseconds since 1970; shown to people and used for ages, never for order
--   *_bytes  a length in bytes
--   ANY      text; in an encrypted store the sealed bytes of that text
-- A row with archived_at_ms is deleted or pruned but can still be restored.

CREATE TABLE space (
    space            INTEGER PRIMARY KEY,   -- tenant number; always 1 on one machine
    created_at_ms    INTEGER NOT NULL,      -- when the space was made
    row_seq          INTEGER NOT NULL,      -- newest seq given to a session or checkpoint; 0 before the first
    operation_seq    INTEGER NOT NULL,      -- seq of the newest operation; 0 before the first
    operation_hash   BLOB NOT NULL,         -- hash of the newest operation: the head of the chain; its genesis before the first
    event_seq        INTEGER NOT NULL,      -- seq of the newest event ever; does not fall when events expire
    session_count    INTEGER NOT NULL,      -- sessions that are not archived
    checkpoint_count INTEGER NOT NULL,      -- sum of session.checkpoint_count over sessions that are not archived
    size_bytes       INTEGER NOT NULL       -- sum of session.size_bytes over all sessions, archived ones included
) STRICT;

-- Where a chain of operation hashes begins. A store rebuilt or restored begins another one after the highest number found,
-- so that a cut in the log can be told from a new beginning.
CREATE TABLE chain (
    space     INTEGER NOT NULL REFERENCES space,
    first_seq INTEGER NOT NULL,             -- seq of the chain's first operation
    genesis   BLOB NOT NULL,                -- 32 random bytes that stand for the hash before it
    PRIMARY KEY (space, first_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    key                 INTEGER PRIMARY KEY AUTOINCREMENT,
    space               INTEGER NOT NULL REFERENCES space,
    id                  TEXT NOT NULL,      -- public id, from the client or made by us
    seq                 INTEGER NOT NULL,   -- order of making
    accessed_seq        INTEGER NOT NULL,   -- order of last use: the space's row_seq at the newest save or load
    project             TEXT NOT NULL,      -- public id of the project the session was made in; never changes
    name                ANY,                -- given by a person
    tags                ANY NOT NULL,       -- JSON array of strings, given by a person
    workflow            TEXT,               -- workflow id of its first save
    correlation         BLOB NOT NULL,      -- SHA-256 of workflow id and first context: a hint for discovery, never an identity
    created_at_ms       INTEGER NOT NULL,   -- first save
    last_accessed_at_ms INTEGER NOT NULL,   -- newest save or load
    head                INTEGER,            -- key of the newest checkpoint that is not archived; NULL when there is none
    checkpoint_count    INTEGER NOT NULL,   -- its checkpoints that are not archived themselves
    size_bytes          INTEGER NOT NULL,   -- sum of its checkpoints' size_bytes, archived ones included
    archived_at_ms      INTEGER,            -- when it was deleted; NULL while it is live
    archived_seq        INTEGER,            -- seq of the operation that deleted it
    UNIQUE (space, id)
) STRICT;

CREATE INDEX session_by_access ON session (space, accessed_seq);

-- Checkpoints of a session that follow each other share a group: deltas stay inside it, and it is mirrored into one file.
CREATE TABLE checkpoint_group (
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    space            INTEGER NOT NULL REFERENCES space,
    session          INTEGER NOT NULL REFERENCES session,
    id               TEXT NOT NULL,         -- id of the checkpoint that opened it; names the mirror file, also when that one is gone
    checkpoint_count INTEGER NOT NULL,      -- checkpoints ever added; closed at 32
    raw_bytes        INTEGER NOT NULL,      -- their JSON text; closed at 8 MiB
    changed_seq      INTEGER NOT NULL,      -- seq of the newest operation that changed a row of it
    mirrored_seq     INTEGER NOT NULL       -- changed_seq that the mirror file holds; smaller means dirty
) STRICT;

CREATE INDEX checkpoint_group_by_session ON checkpoint_group (session);

CREATE TABLE checkpoint (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    space          INTEGER NOT NULL REFERENCES space,
    session        INTEGER NOT NULL REFERENCES session,
    id             TEXT NOT NULL,           -- public id, UUIDv7
    seq            INTEGER NOT NULL,        -- the order of checkpoints, in their session and in the space
    parent         INTEGER REFERENCES checkpoint ON DELETE SET NULL, -- what it continues; NULL for a first one, or when that is gone
    group_key      INTEGER REFERENCES checkpoint_group, -- NULL when it is not mirrored
    base           INTEGER REFERENCES checkpoint, -- what its bytes are a delta against, in the same group; NULL when they stand alone
    context_hash   BLOB NOT NULL,           -- SHA-256 of the context's canonical form: equal means unchanged
    raw_hash       BLOB NOT NULL,           -- SHA-256 of the JSON text that its bytes decode to: differs means damaged
    raw_bytes      INTEGER NOT NULL,        -- length of that JSON text
    size_bytes     INTEGER NOT NULL,        -- length of its bytes as stored
    created_at_ms  INTEGER NOT NULL,        -- when it was saved
    agent          TEXT,                    -- agentId of the save
    workflow       TEXT,                    -- workflowId of the save
    spared         INTEGER NOT NULL,        -- 1 when it has a name or tags: never pruned
    name           ANY,                     -- metadata.name
    tags           ANY NOT NULL,            -- metadata.tags as a JSON array
    metadata       ANY NOT NULL,            -- the client's metadata object, whole, as JSON
    archived_at_ms INTEGER,                 -- when it was pruned or deleted; NULL while it is live
    archived_seq   INTEGER,                 -- seq of the operation that did it
    archived_why   TEXT,                    -- `pruned` (goes with its whole group) or `deleted` (goes on its own)
    UNIQUE (space, id)
) STRICT;

-- archived_at_ms before seq: what is live is found in order without walking over what is archived.
CREATE INDEX checkpoint_by_seq ON checkpoint (space, archived_at_ms, seq);
CREATE INDEX checkpoint_by_session ON checkpoint (session, archived_at_ms, seq);
CREATE INDEX checkpoint_by_parent ON checkpoint (parent) WHERE parent IS NOT NULL;
CREATE INDEX checkpoint_by_base ON checkpoint (base) WHERE base IS NOT NULL;

-- Apart from `checkpoint`, so that lists and changes of a row never touch the bytes.
CREATE TABLE checkpoint_bytes (
    checkpoint INTEGER PRIMARY KEY REFERENCES checkpoint ON DELETE CASCADE,
    bytes      BLOB NOT NULL                -- zstd frame of the context's JSON text
) STRICT;

CREATE TABLE operation (
    space        INTEGER NOT NULL REFERENCES space,
    seq          INTEGER NOT NULL,          -- gapless within a chain, in commit order, never reused
    at_ms        INTEGER NOT NULL,          -- when it happened
    actor        TEXT NOT NULL,             -- agent, MCP client, user, or `maintenance`
    kind         TEXT NOT NULL,             -- what became true, such as `checkpoint.saved`
    project      TEXT,                      -- project it happened in; the subject names it too, and is hashed
    subject      TEXT NOT NULL,             -- JSON array of handles of what it is about, such as `ws:session:a`
    payload      ANY,                       -- JSON object of ids and small fields, never context text; NULL once erased
    payload_hash BLOB NOT NULL,             -- SHA-256 of the payload as it was written
    hash         BLOB NOT NULL,             -- SHA-256 over previous hash, seq, at_ms, actor, kind, subject and payload_hash,
                                            -- each with its length before it, after a version byte
    PRIMARY KEY (space, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    space   INTEGER NOT NULL REFERENCES space,
    seq     INTEGER NOT NULL,               -- the id on the event stream; gaps only at the old end, where events expired
    at_ms   INTEGER NOT NULL,               -- when it happened; expires seven days later
    kind    TEXT NOT NULL,                  -- same names as operation.kind
    payload ANY NOT NULL,                   -- JSON object that subscribers receive
    PRIMARY KEY (space, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_key (
    space        INTEGER NOT NULL REFERENCES space,
    kind         TEXT NOT NULL,             -- what was asked for, such as `checkpoint.saved`
    actor        TEXT NOT NULL,             -- who asked: two agents may both number their steps
    id           TEXT NOT NULL,             -- the client's key, after the project and session it was used in
    request_hash BLOB NOT NULL,             -- SHA-256 of the request; the same key with another request is a conflict
    reply        TEXT NOT NULL,             -- JSON object of ids from which the first answer is given again
    at_ms        INTEGER NOT NULL,          -- when it was first used; forgotten a day later
    PRIMARY KEY (space, kind, actor, id)
) STRICT, WITHOUT ROWID;
