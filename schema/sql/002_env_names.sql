-- Records and stored answers had the values of `env`; now they have the names, in order. What was
-- written before is wiped: the row in meta makes the daemon write the whole file anew once.

UPDATE sessions SET doc = json_set(doc, '$.env', json((
    SELECT json_group_array(key) FROM (SELECT key FROM json_each(doc, '$.env') ORDER BY key))))
    WHERE json_valid(doc) AND json_type(doc, '$.env') = 'object';
UPDATE commands SET doc = json_set(doc, '$.env', json((
    SELECT json_group_array(key) FROM (SELECT key FROM json_each(doc, '$.env') ORDER BY key))))
    WHERE json_valid(doc) AND json_type(doc, '$.env') = 'object';
DELETE FROM idempotency;
INSERT INTO meta (key, value) VALUES ('rewrite', 1);
