-- Calls of tools by models. A message calls, a message of its own has what came of it; here is what happens in between.

CREATE TABLE tool_call (
    key             INTEGER PRIMARY KEY AUTOINCREMENT,
    session         INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
    id              TEXT NOT NULL,          -- the model's, or made from it
    message         INTEGER NOT NULL,       -- key of the message that calls it
    call            ANY NOT NULL,           -- JSON object: tool, arguments as they are to be run, hash of both, whether someone changed them
    read_only       INTEGER NOT NULL,       -- 1 when its tool changes nothing
    idempotent      INTEGER NOT NULL,       -- 1 when to run it twice is to run it once
    by_client       INTEGER NOT NULL,       -- 1 when a client is to answer it
    status          TEXT NOT NULL,          -- Pending, Approved, Denied or Expired
    requested_at_ms INTEGER NOT NULL,
    decided_at_ms   INTEGER,
    started_at_ms   INTEGER,                -- when it was about to be run; of a pending one: once before, and what came of it is not known
    ended_at_ms     INTEGER,
    outcome         TEXT,                   -- what came of it; NULL while nothing has
    answer          ANY,                    -- JSON object: what a client answered, until it is a message
    result          INTEGER                 -- key of the message that has what came of it
) STRICT;

CREATE UNIQUE INDEX tool_call_by_id ON tool_call (session, id);
CREATE INDEX tool_call_open ON tool_call (session) WHERE outcome IS NULL;
