-- How a conversation begins, so that a list of conversations reads no message.
ALTER TABLE conversation ADD COLUMN beginning ANY;  -- of what the user said first; NULL before that, and where it was said before this column

-- What messages call tools with is searched too: where there are such messages the index is made anew.
UPDATE search_index SET version = 2 WHERE NOT EXISTS (SELECT 1 FROM message WHERE type = 'tool_call');
