-- A row of the audit costs mostly its indexes. Targets are long and come in no order: the index is
-- of target_key instead, a hash of 16 bits within a block of 4,096 rows (a function of the daemon).
-- Most rows are ok (1): a page of them needs no index. Neither is covered by hash; the check of the
-- chain looks at the key too.

ALTER TABLE audit ADD COLUMN target_key INTEGER NOT NULL DEFAULT 0;
DROP INDEX audit_by_target;
DROP INDEX audit_by_outcome;
UPDATE audit SET target_key = audit_target_key(seq, target);
CREATE INDEX audit_by_target ON audit (target_key);
CREATE INDEX audit_by_outcome ON audit (outcome) WHERE outcome <> 1;

-- A run now ends where the clock steps back by more than 10 ms (it was a second).
INSERT OR IGNORE INTO audit_runs
WITH RECURSIVE walk (seq, latest, is_first) AS (
    SELECT seq, at, FALSE FROM audit WHERE seq = (SELECT min(seq) FROM audit)
    UNION ALL
    SELECT a.seq, iif(a.at BETWEEN w.latest - 10 AND w.latest, w.latest, a.at),
        a.at < w.latest - 10
        FROM walk w JOIN audit a ON a.seq = w.seq + 1
)
SELECT seq FROM walk WHERE is_first;
