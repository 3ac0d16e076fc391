-- What is dirty is found without a walk over what is not.
CREATE INDEX checkpoint_group_dirty ON checkpoint_group (key) WHERE mirrored_seq < changed_seq;

-- A group is read whole. What is a delta against a checkpoint is in the same group, so it needs no index of its own.
DROP INDEX checkpoint_by_base;
CREATE INDEX checkpoint_by_group ON checkpoint (group_key);

-- Seq of the operation that saved the checkpoint: its group's file holds it once mirrored_seq is as high. 0 for those saved before.
ALTER TABLE checkpoint ADD COLUMN saved_seq INTEGER NOT NULL DEFAULT 0;
