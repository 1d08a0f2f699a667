-- Refused connections get a number, so that lists of them have pages. command_id is '' in the row of
-- the session as a whole.
ALTER TABLE blocked RENAME TO blocked_old;
CREATE TABLE blocked (
    id         INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    host       TEXT NOT NULL,
    port       INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    count      INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    UNIQUE (session_id, command_id, host, port, reason)
) STRICT;
INSERT INTO blocked (session_id, command_id, host, port, reason, count, first_at, last_at)
    SELECT session_id, command_id, host, port, reason, count, first_at, last_at
    FROM blocked_old ORDER BY last_at;
DROP TABLE blocked_old;
CREATE INDEX blocked_by_age ON blocked (session_id, command_id, last_at, id);
CREATE INDEX blocked_latest ON blocked (last_at, id) WHERE command_id = '';
CREATE INDEX blocked_by_host ON blocked (host, last_at) WHERE command_id = '';

-- Connections let through and refused, by hour (its first millisecond), host and port. What is past
-- the hosts that one hour keeps is counted under the host ''.
CREATE TABLE traffic (
    hour    INTEGER NOT NULL,
    host    TEXT NOT NULL,
    port    INTEGER NOT NULL,
    allowed INTEGER NOT NULL,
    blocked INTEGER NOT NULL,
    PRIMARY KEY (hour, host, port)
) STRICT, WITHOUT ROWID;
