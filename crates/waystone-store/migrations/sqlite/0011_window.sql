-- Windows: what models were told, call by call. With the messages of its branch up to the head a row gives the same window again.

CREATE TABLE window (
    key        INTEGER PRIMARY KEY AUTOINCREMENT,
    session    INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
    id         TEXT NOT NULL,               -- of the event that told of it
    branch     INTEGER NOT NULL,            -- key of the branch that was read
    head       INTEGER NOT NULL,            -- position of the newest message in it
    tokens     INTEGER NOT NULL,
    made_at_ms INTEGER NOT NULL,
    manifest   ANY,                         -- JSON object: model, room, system prompt, cut, marks; NULL when that of an earlier row
    same_as    INTEGER                      -- key of that row
) STRICT;

CREATE INDEX window_by_branch ON window (session, branch, key);

-- Messages that someone pinned or put aside are found without a walk over the rest.
CREATE INDEX segment_marked ON segment (conversation) WHERE conversation IS NOT NULL AND (pinned = 1 OR tier <> 'working');
