-- Keeping house: what was archived longest ago, and what has not been used for longest, is found without a walk over the rest.
CREATE INDEX session_archived ON session (archived_at_ms) WHERE archived_at_ms IS NOT NULL;
CREATE INDEX session_idle ON session (last_accessed_at_ms) WHERE archived_at_ms IS NULL;
CREATE INDEX checkpoint_archived ON checkpoint (archived_why, archived_at_ms) WHERE archived_at_ms IS NOT NULL;

-- Operations whose payloads hold what people wrote: erased when what they are about is removed.
CREATE INDEX operation_worded ON operation (space, project, seq)
    WHERE kind IN ('session.updated', 'session.marked', 'session.unmarked', 'session.ruled');
