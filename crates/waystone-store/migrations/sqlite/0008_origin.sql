-- Where stored text came from. A number, so that of several the lowest trust is their max(): 0 user, 1 agent, 2 tool, 3 import.
-- `origin` is what was said when the text was first kept, wherever that was, and goes into exports; what was imported counts as 3 whatever
-- was said. Of what was there before it is not known; an agent is assumed, and for logs a tool.

ALTER TABLE checkpoint ADD COLUMN origin INTEGER NOT NULL DEFAULT 1;    -- as was said when it was saved
ALTER TABLE checkpoint ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;  -- 1 when it came with a document
ALTER TABLE segment ADD COLUMN origin INTEGER NOT NULL DEFAULT 1;       -- the highest that was ever said of its text
ALTER TABLE segment ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;     -- 1 when it came with a document
ALTER TABLE session ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;     -- 1 when its name, tags, marks and rules came with a document
ALTER TABLE snapshot ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;    -- 1 when its name came with a document

UPDATE segment SET origin = 2 WHERE type = 'log';

-- What was imported before is known by the operation that brought it.
UPDATE checkpoint SET imported = 1
    WHERE EXISTS (SELECT 1 FROM operation AS o
                  WHERE o.space = checkpoint.space AND o.seq = checkpoint.saved_seq AND o.kind = 'session.imported');
UPDATE session SET imported = 1
    WHERE 1 = (SELECT c.imported FROM checkpoint AS c WHERE c.session = session.key ORDER BY c.key LIMIT 1);
UPDATE segment SET imported = 1
    WHERE key IN (SELECT c.segment FROM segment_change AS c JOIN operation AS o ON o.space = c.space AND o.seq = c.operation
                  WHERE c.tier IS NULL AND o.kind = 'project.imported');

-- Their files are to say so too.
UPDATE checkpoint_group SET mirrored_seq = 0 WHERE key IN (SELECT group_key FROM checkpoint WHERE imported = 1);
