-- The keys that web searches send, one a provider. Nothing but the search itself reads them: no
-- answer, record or log has one.
CREATE TABLE web_keys (
    provider TEXT PRIMARY KEY,
    key      TEXT NOT NULL,
    set_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
