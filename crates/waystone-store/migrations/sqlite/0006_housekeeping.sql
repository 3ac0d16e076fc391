-- Keeping house.

-- Which session is meant when someone wants to go on: where the repository of who saved stood, and sessions by project, workflow and name.
ALTER TABLE checkpoint ADD COLUMN git_branch ANY;  -- branch that was checked out; NULL outside of a repository or without one
ALTER TABLE checkpoint ADD COLUMN git_head TEXT;   -- commit of it, in hex

CREATE INDEX session_by_project ON session (space, project, accessed_seq);
CREATE INDEX session_by_workflow ON session (space, workflow, accessed_seq) WHERE workflow IS NOT NULL;
CREATE INDEX session_named ON session (space, accessed_seq) WHERE name IS NOT NULL OR tags <> '[]';
