-- The state of one daemon. Times are milliseconds since 1970, UTC. Documents are the JSON of the API.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('clean', 1), ('probe', 0), ('settings_rev', 1);

-- Sessions and commands: the document, and beside it what lists filter by.
CREATE TABLE sessions (
    id    TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    tier  TEXT,
    text  TEXT NOT NULL,
    doc   TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_alive ON sessions (id)
    WHERE state NOT IN ('ended', 'refused');

CREATE TABLE commands (
    id         TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state      TEXT NOT NULL,
    text       TEXT NOT NULL,
    doc        TEXT NOT NULL
) STRICT;
CREATE INDEX commands_of_session ON commands (session_id, id);
CREATE INDEX commands_alive ON commands (id)
    WHERE state IN ('queued', 'starting', 'running');

-- Refused connections, counted. command_id is '' in the row of the session as a whole.
CREATE TABLE blocked (
    session_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    host       TEXT NOT NULL,
    port       INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    count      INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    PRIMARY KEY (session_id, command_id, host, port, reason)
) STRICT, WITHOUT ROWID;
CREATE INDEX blocked_by_age ON blocked (session_id, command_id, last_at);

CREATE TABLE sites (
    id            TEXT PRIMARY KEY,
    list          INTEGER NOT NULL CHECK (list BETWEEN 0 AND 2),
    session_id    TEXT NOT NULL,
    host          TEXT NOT NULL,
    port          INTEGER NOT NULL CHECK (port BETWEEN 0 AND 65535),
    enabled       INTEGER NOT NULL,
    allow_private INTEGER NOT NULL,
    note          TEXT NOT NULL,
    source        TEXT NOT NULL,
    site_group    TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    last_used_at  INTEGER NOT NULL,
    hits          INTEGER NOT NULL,
    blocked_hits  INTEGER NOT NULL,
    rev           INTEGER NOT NULL,
    UNIQUE (list, session_id, host, port)
) STRICT;
CREATE INDEX sites_in_order ON sites (list, session_id, id);

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    kind         INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 1),
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    name         TEXT NOT NULL,
    scopes       INTEGER NOT NULL,
    session_id   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT;

-- First answers of requests with an Idempotency-Key.
CREATE TABLE idempotency (
    token_id   TEXT NOT NULL,
    route      TEXT NOT NULL,
    key        TEXT NOT NULL,
    body_hash  TEXT NOT NULL,
    status     INTEGER NOT NULL,
    body       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (token_id, route, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- The audit: appended to, cut at its old end, never changed. Every column but hash is covered by
-- hash (see store/audit.h); before, after and enforcement are canonical JSON.
CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    at          INTEGER NOT NULL,
    actor_kind  INTEGER NOT NULL,
    actor_id    TEXT,
    peer_uid    INTEGER,
    action      TEXT NOT NULL,
    session_id  TEXT,
    command_id  TEXT,
    target      TEXT NOT NULL,
    before      TEXT,
    after       TEXT,
    outcome     INTEGER NOT NULL,
    enforcement TEXT,
    prev_hash   BLOB NOT NULL,
    hash        BLOB NOT NULL
) STRICT;
-- Each filter of a list finds its page without a scan; rows come in order of seq within a value.
CREATE INDEX audit_by_session ON audit (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX audit_by_actor_id ON audit (actor_id) WHERE actor_id IS NOT NULL;
CREATE INDEX audit_by_actor_kind ON audit (actor_kind);
CREATE INDEX audit_by_action ON audit (action);
CREATE INDEX audit_by_target ON audit (target);
CREATE INDEX audit_by_outcome ON audit (outcome);

-- Both ends of the chain. latest_at is the latest time of the present run.
CREATE TABLE audit_ends (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    last_seq  INTEGER NOT NULL,
    last_hash BLOB NOT NULL,
    cut_seq   INTEGER NOT NULL,
    cut_hash  BLOB NOT NULL,
    latest_at INTEGER NOT NULL
) STRICT;
INSERT INTO audit_ends VALUES (1, 0, zeroblob(32), 0, zeroblob(32), 0);

-- Where a run of rows with growing times begins: one row more each time the clock was set back. A
-- list bounded by time finds its ends in each run by halving.
CREATE TABLE audit_runs (
    first_seq INTEGER PRIMARY KEY
) STRICT;
INSERT INTO audit_runs VALUES (1);
