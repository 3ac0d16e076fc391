-- Keeping house.

-- What was archived longest ago, and what has not been used for longest, is found without a walk over the rest.
CREATE INDEX session_archived ON session (archived_at_ms) WHERE archived_at_ms IS NOT NULL;
CREATE INDEX session_idle ON session (last_accessed_at_ms) WHERE archived_at_ms IS NULL;
CREATE INDEX checkpoint_archived ON checkpoint (archived_why, archived_at_ms) WHERE archived_at_ms IS NOT NULL;

-- Operations whose payloads hold what people wrote: erased when what they are about is removed.
CREATE INDEX operation_worded ON operation (space, project, seq)
    WHERE kind IN ('session.updated', 'session.marked', 'session.unmarked', 'session.ruled');

-- Which session is meant when someone wants to go on: where the repository of who saved stood, and sessions by project, workflow and name.
ALTER TABLE checkpoint ADD COLUMN git_branch ANY;  -- branch that was checked out; NULL outside of a repository or without one
ALTER TABLE checkpoint ADD COLUMN git_head TEXT;   -- commit of it, in hex

CREATE INDEX session_by_project ON session (space, project, accessed_seq);
CREATE INDEX session_by_workflow ON session (space, workflow, accessed_seq) WHERE workflow IS NOT NULL;
CREATE INDEX session_named ON session (space, accessed_seq) WHERE name IS NOT NULL OR tags <> '[]';

-- Checkpoints by what their metadata say, for lists. It only narrows down: rows are looked at again. Written by housekeeping.
CREATE VIRTUAL TABLE checkpoint_term USING fts5(terms, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
ALTER TABLE search_index ADD COLUMN found_key INTEGER NOT NULL DEFAULT 0; -- checkpoints up to this key are in checkpoint_term

CREATE TRIGGER checkpoint_term_removed AFTER DELETE ON checkpoint BEGIN
    DELETE FROM checkpoint_term WHERE rowid = old.key;
END;
CREATE TRIGGER checkpoint_term_changed AFTER UPDATE OF metadata, tags ON checkpoint BEGIN
    UPDATE search_index SET found_key = min(found_key, old.key - 1);
END;

-- What was measured, by all processes: how many fell into a bucket. Not data: it is written late, and lost with the database.
CREATE TABLE histogram (
    space  INTEGER NOT NULL REFERENCES space,
    kind   TEXT NOT NULL,                   -- `call`: microseconds; `view`: percent saved
    name   TEXT NOT NULL,                   -- tool or route, or how a view was asked for
    bucket INTEGER NOT NULL,                -- see histogram.rs of the core
    count  INTEGER NOT NULL,
    total  INTEGER NOT NULL,                -- what those in the bucket add up to
    PRIMARY KEY (space, kind, name, bucket)
) STRICT, WITHOUT ROWID;
