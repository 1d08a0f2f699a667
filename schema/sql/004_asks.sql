-- Questions to a person: the document, and beside it what lists filter by. Those of a session go
-- with it.

CREATE TABLE asks (
    id         TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state      TEXT NOT NULL,
    text       TEXT NOT NULL,
    doc        TEXT NOT NULL
) STRICT;
CREATE INDEX asks_of_session ON asks (session_id, id);
CREATE INDEX asks_open ON asks (id) WHERE state = 'open';
