-- Conversations: trees of messages with named branches, and turns in which models answer. A conversation is a session too, with the same id; what
-- is sealed of it is sealed under that session's key, the text of its messages included.

CREATE TABLE conversation (
    session       INTEGER PRIMARY KEY REFERENCES session ON DELETE CASCADE,
    space         INTEGER NOT NULL REFERENCES space,
    parent        TEXT,                     -- id of the conversation whose branch it began with
    project       INTEGER NOT NULL REFERENCES project, -- where its messages are segments
    task          INTEGER NOT NULL REFERENCES task,    -- of its own, named like it
    config        ANY NOT NULL,             -- JSON object: model, mode, parameters and so on
    active_branch INTEGER,                  -- key of the branch that is meant where none is named
    state         TEXT NOT NULL,            -- where its turn is; see fsm.rs of the core
    error         ANY,                      -- JSON object: why the turn failed
    turn_branch   INTEGER,                  -- key of the branch that its newest turn is on
    run           TEXT,                     -- who runs the turn: another one whenever someone else goes on with it
    owner         TEXT,                     -- the process of that run, by its file in run/; NULL when no turn is under way
    draft         TEXT,                     -- id of the message that is being written
    attempt       INTEGER NOT NULL,         -- how often it was begun
    draft_seq     INTEGER NOT NULL,         -- seq of the newest event before this attempt
    failures      INTEGER NOT NULL,         -- how often the model was asked in vain
    event_seq     INTEGER NOT NULL,         -- seq of its newest event; 0 before the first
    updated_at_ms INTEGER NOT NULL,         -- newest change of it, of a branch or of a turn's state
    updated_seq   INTEGER NOT NULL          -- the order of these changes
) STRICT;

CREATE INDEX conversation_by_use ON conversation (space, updated_seq);
CREATE INDEX conversation_by_task ON conversation (task);
CREATE INDEX conversation_owned ON conversation (space) WHERE owner IS NOT NULL;

CREATE TABLE branch (
    key            INTEGER PRIMARY KEY AUTOINCREMENT,
    session        INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,
    name           ANY NOT NULL,            -- sealed alike, so that it is found
    fork           INTEGER,                 -- key of the message that it continues; NULL when it begins the conversation
    head           INTEGER,                 -- key of its newest own message; NULL before the first
    message_count  INTEGER NOT NULL,        -- its own
    created_at_ms  INTEGER NOT NULL,
    archived_at_ms INTEGER                  -- when it was deleted; its messages stay, others may continue them
) STRICT;

CREATE INDEX branch_by_session ON branch (session);
CREATE UNIQUE INDEX branch_by_name ON branch (session, name) WHERE archived_at_ms IS NULL;

-- A message is a segment too, with the same id; its text is there.
CREATE TABLE message (
    segment  INTEGER PRIMARY KEY REFERENCES segment ON DELETE CASCADE,
    session  INTEGER NOT NULL REFERENCES session,
    branch   INTEGER NOT NULL REFERENCES branch, -- the branch it was said on
    parent   INTEGER,                       -- key of the message before it; NULL for a first one
    position INTEGER NOT NULL,              -- how many there are from the beginning up to it
    role     TEXT NOT NULL,                 -- user, assistant or system
    type     TEXT NOT NULL,                 -- text, plan, question, tool_call or tool_result
    parts    ANY,                           -- JSON array of its parts; NULL when it is its text alone
    facts    ANY NOT NULL                   -- JSON object: tokens as the model counted them, model, attempt and so on
) STRICT;

CREATE INDEX message_by_branch ON message (branch, position);
CREATE INDEX message_by_session ON message (session);

ALTER TABLE segment ADD COLUMN conversation INTEGER;  -- key of the session whose message it is; NULL for all others
CREATE INDEX segment_by_conversation ON segment (conversation) WHERE conversation IS NOT NULL;

-- What a project has is gone through without the messages of conversations, unless one is named.
DROP INDEX segment_candidate;
CREATE INDEX segment_candidate ON segment
    (project, tier, pinned, conversation, task, type, touched_at_ms, mentions, survived, entered_seq, tokens, topic)
    WHERE tier = 'working' AND pinned = 0;

-- Events of conversations. Their ids are of a run and a number in it; a row may hold several that follow each other.
ALTER TABLE event ADD COLUMN session INTEGER;         -- key of the session whose conversation it is about; NULL for all others
ALTER TABLE event ADD COLUMN run TEXT;
ALTER TABLE event ADD COLUMN first_n INTEGER;
ALTER TABLE event ADD COLUMN last_n INTEGER;
CREATE INDEX event_by_session ON event (session, seq) WHERE session IS NOT NULL;
CREATE INDEX event_by_run ON event (session, run, last_n) WHERE session IS NOT NULL;
