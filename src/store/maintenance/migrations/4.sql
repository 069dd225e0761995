-- Version 3 to 4: every attempt, figures per hour, alerts about executions that no worker claims, cues per status.

ALTER TABLE users ADD COLUMN paused_cues INTEGER NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN completed_cues INTEGER NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN failed_cues INTEGER NOT NULL DEFAULT 0;
UPDATE users
   SET paused_cues = (SELECT count(*) FROM cues WHERE user_key = users.key AND status = 'paused'),
       completed_cues = (SELECT count(*) FROM cues WHERE user_key = users.key AND status = 'completed'),
       failed_cues = (SELECT count(*) FROM cues WHERE user_key = users.key AND status = 'failed');
DROP TRIGGER uncount_cue;
CREATE TRIGGER uncount_cue AFTER DELETE ON cues
BEGIN
    UPDATE users
       SET active_cues = active_cues - (old.status = 'active'), paused_cues = paused_cues - (old.status = 'paused'),
           completed_cues = completed_cues - (old.status = 'completed'),
           failed_cues = failed_cues - (old.status = 'failed'), cue_count = cue_count - 1,
           stored_bytes = stored_bytes - (octet_length(old.callback_headers) - 2)
     WHERE key = old.user_key;
END;

ALTER TABLE cues ADD COLUMN claim_within_minutes INTEGER;
ALTER TABLE cues ADD COLUMN outcome_from_response INTEGER NOT NULL DEFAULT 0;

ALTER TABLE executions ADD COLUMN duration_ms INTEGER;
ALTER TABLE executions ADD COLUMN cause TEXT;
ALTER TABLE executions ADD COLUMN response_headers TEXT;
ALTER TABLE executions ADD COLUMN replayed_from BLOB CHECK (length(replayed_from) = 16);
CREATE INDEX executions_by_cause ON executions (user_key, cause, key) WHERE cause IS NOT NULL;
CREATE INDEX executions_by_original ON executions (user_key, replayed_from, key) WHERE replayed_from IS NOT NULL;

CREATE TABLE attempts (
    execution_key    INTEGER NOT NULL REFERENCES executions (key) ON DELETE CASCADE,
    attempt          INTEGER NOT NULL,
    is_counted       INTEGER NOT NULL,
    started_at       INTEGER NOT NULL,
    duration_ms      INTEGER,
    http_status      INTEGER,
    cause            TEXT,
    error_message    TEXT,
    response_headers TEXT,
    response_body    TEXT,
    next_retry       INTEGER,
    worker_id        TEXT,
    PRIMARY KEY (execution_key, attempt, is_counted)
) STRICT, WITHOUT ROWID;

CREATE TABLE hours (
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    hour        INTEGER NOT NULL,
    succeeded   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    retried     INTEGER NOT NULL,
    missed      INTEGER NOT NULL,
    measured    INTEGER NOT NULL,
    late_sum_ms INTEGER NOT NULL,
    late_max_ms INTEGER NOT NULL,
    took_sum_ms INTEGER NOT NULL,
    PRIMARY KEY (user_key, hour)
) STRICT, WITHOUT ROWID;

-- Filled from the kept executions. The end of a failed delivery is that of its last attempt, which is not known if a
-- verification has updated the row since: then it is the start of that attempt.
INSERT INTO hours (user_key, hour, succeeded, failed, retried, missed, measured, late_sum_ms, late_max_ms, took_sum_ms)
SELECT user_key, ended_at / 3600000, sum(status = 'success'), sum(status = 'failed'), sum(max(attempts - 1, 0)), 0,
       count(started_at), coalesce(sum(max(started_at - scheduled_for, 0)), 0),
       coalesce(max(max(started_at - scheduled_for, 0)), 0), coalesce(sum(max(ended_at - last_attempt_at, 0)), 0)
  FROM (SELECT user_key, status, attempts, scheduled_for, started_at, last_attempt_at,
               coalesce(delivered_at, iif(transport = 'webhook' AND outcome_state IS NOT NULL, last_attempt_at, NULL),
                        updated_at) AS ended_at
          FROM executions WHERE status = 'success' OR status = 'failed')
 GROUP BY user_key, ended_at / 3600000;
INSERT INTO hours (user_key, hour, succeeded, failed, retried, missed, measured, late_sum_ms, late_max_ms, took_sum_ms)
SELECT user_key, last / 3600000, 0, 0, 0, sum(count), 0, 0, 0, 0
  FROM missed_runs JOIN cues ON cues.key = cue_key
 WHERE true
 GROUP BY user_key, last / 3600000
    ON CONFLICT (user_key, hour) DO UPDATE SET missed = excluded.missed;

-- One more type of alert.
CREATE TABLE alerts_4 (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    user_key     INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    cue_key      INTEGER REFERENCES cues (key) ON DELETE CASCADE,
    execution_id BLOB    CHECK (length(execution_id) = 16),
    alert_type   TEXT    NOT NULL CHECK (alert_type IN ('consecutive_failures', 'verification_failed', 'claim_lost',
                                                        'catch_up', 'unclaimed')),
    message      TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    CHECK ((alert_type = 'catch_up') = (cue_key IS NULL)),
    CHECK ((cue_key IS NULL) = (execution_id IS NULL))
) STRICT;
INSERT INTO alerts_4 SELECT * FROM alerts;
DROP TABLE alerts;
ALTER TABLE alerts_4 RENAME TO alerts;
CREATE INDEX alerts_by_user ON alerts (user_key, created_at);
CREATE INDEX alerts_by_cue ON alerts (cue_key, alert_type, created_at);

CREATE TABLE outbox_4 (
    key              INTEGER PRIMARY KEY,
    id               TEXT    NOT NULL,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind             TEXT    NOT NULL CHECK (kind IN ('mail', 'failure', 'consecutive_failures', 'verification_failed',
                                                      'claim_lost', 'catch_up', 'unclaimed')),
    url              TEXT,
    destination_hash INTEGER,
    body             TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    CHECK ((kind = 'mail') = (url IS NULL)),
    CHECK ((url IS NULL) = (destination_hash IS NULL))
) STRICT;
INSERT INTO outbox_4 SELECT * FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_4 RENAME TO outbox;
CREATE INDEX outbox_waiting ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_posts ON outbox (user_key, destination_hash, key)
    WHERE due_at IS NULL AND destination_hash IS NOT NULL;
CREATE INDEX outbox_mails ON outbox (key) WHERE due_at IS NULL AND destination_hash IS NULL;
CREATE INDEX outbox_by_user ON outbox (user_key, kind);

-- The longest wait for a claim, and the next look at an execution that nobody claims: at once for those that wait already.
CREATE INDEX executions_claimable_since ON executions (updated_at) WHERE queue_name = 'claim';
CREATE INDEX executions_unclaimed ON executions (due_at) WHERE queue_name = 'claim';
