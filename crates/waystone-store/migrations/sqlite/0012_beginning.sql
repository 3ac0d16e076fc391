-- How a conversation begins, so that a list of conversations reads no message.
ALTER TABLE conversation ADD COLUMN beginning ANY;  -- of what the user said first; NULL before that, and where it was said before this column
