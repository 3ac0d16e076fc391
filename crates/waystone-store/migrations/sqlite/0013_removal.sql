-- Whoever removes a checkpoint must know that nothing is a delta against it: without an index every row is read for each that goes.
CREATE INDEX checkpoint_by_base ON checkpoint (base) WHERE base IS NOT NULL;

-- What says of a branch how it was called is erased with its conversation.
CREATE INDEX operation_naming ON operation (space, project, seq)
    WHERE kind IN ('branch.created', 'branch.switched', 'branch.deleted', 'branch.restored');

-- Saves are most of all operations and cannot be undone: they are neither written here nor walked over.
DROP INDEX operation_standing;
CREATE INDEX operation_standing ON operation (space, project, seq)
    WHERE undone = 0 AND undoes IS NULL AND kind <> 'checkpoint.saved';

-- What undid an operation, and what undid that: who undoes one of them must know of the others.
CREATE INDEX operation_undoing ON operation (space, undoes) WHERE undoes IS NOT NULL;
