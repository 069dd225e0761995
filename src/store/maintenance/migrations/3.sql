-- Version 2 to 3: bounds on what an account stores, fair shares of delivery threads by account, confirmed addresses.

-- Lists of unfinished executions read those of their user only.
DROP INDEX executions_in_flight;
CREATE INDEX executions_in_flight ON executions (user_key, last_attempt_at) WHERE status = 'delivering';
CREATE INDEX executions_waiting_by_user ON executions (user_key, key) WHERE queue_name = 'waiting';

-- A stored response no longer contains the payload of the created cue: the repeated request has the same one.
UPDATE idempotency_keys SET response_body = json_remove(response_body, '$.payload')
 WHERE response_status = 201 AND json_valid(response_body);
-- Words that workers filter by have at most 255 characters. Longer ones match nothing.
UPDATE payloads SET task = NULL WHERE length(task) > 255;
UPDATE payloads SET agent = NULL WHERE length(agent) > 255;
UPDATE executions SET task = NULL WHERE length(task) > 255;
UPDATE executions SET agent = NULL WHERE length(agent) > 255;

-- What an account stores, and confirmed addresses. The counts are taken before the triggers exist.
DROP TRIGGER decrement_active_cues;

ALTER TABLE users ADD COLUMN confirmed_at INTEGER;
ALTER TABLE users ADD COLUMN confirmation_token TEXT;
ALTER TABLE users ADD COLUMN confirmation_requested_at INTEGER;
ALTER TABLE users ADD COLUMN cue_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;

ALTER TABLE device_logins ADD COLUMN user_code TEXT;
CREATE UNIQUE INDEX device_logins_by_user_code ON device_logins (user_code);

-- Nothing tells which addresses of earlier versions are confirmed: they keep their failure mails.
UPDATE users
   SET confirmed_at = created_at,
       cue_count = (SELECT count(*) FROM cues WHERE user_key = users.key),
       stored_bytes =
           (SELECT coalesce(sum(octet_length(callback_headers) - 2), 0) FROM cues WHERE user_key = users.key)
         + (SELECT coalesce(sum(octet_length(body)), 0) FROM payloads
             WHERE cue_key IN (SELECT key FROM cues WHERE user_key = users.key
                               UNION ALL SELECT cue_key FROM deleted_cues WHERE user_key = users.key))
         + (SELECT coalesce(sum(coalesce(octet_length(o.result), 0) + coalesce(octet_length(o.error), 0)
                               + coalesce(octet_length(o.metadata), 0) + coalesce(octet_length(o.evidence), 0) + coalesce(octet_length(o.reason), 0)), 0)
              FROM outcomes o JOIN executions e ON e.key = o.execution_key WHERE e.user_key = users.key)
         + (SELECT coalesce(sum(octet_length(idempotency_key) + octet_length(response_body)), 0)
              FROM idempotency_keys WHERE user_key = users.key);

CREATE TRIGGER uncount_cue AFTER DELETE ON cues
BEGIN
    UPDATE users
       SET active_cues = active_cues - (old.status = 'active'), cue_count = cue_count - 1,
           stored_bytes = stored_bytes - (octet_length(old.callback_headers) - 2)
     WHERE key = old.user_key;
END;

CREATE TRIGGER add_header_bytes AFTER INSERT ON cues WHEN new.callback_headers <> '[]'
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.callback_headers) - 2 WHERE key = new.user_key;
END;

CREATE TRIGGER change_header_bytes AFTER UPDATE OF callback_headers ON cues
WHEN new.callback_headers <> old.callback_headers
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.callback_headers) - octet_length(old.callback_headers)
     WHERE key = new.user_key;
END;

CREATE TRIGGER add_payload_bytes AFTER INSERT ON payloads
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.body)
     WHERE key = (SELECT user_key FROM cues WHERE key = new.cue_key);
END;

CREATE TRIGGER subtract_payload_bytes AFTER DELETE ON payloads
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.body)
     WHERE key = coalesce((SELECT user_key FROM cues WHERE key = old.cue_key),
                          (SELECT user_key FROM deleted_cues WHERE cue_key = old.cue_key));
END;

CREATE TRIGGER add_outcome_bytes AFTER INSERT ON outcomes
WHEN new.result IS NOT NULL OR new.error IS NOT NULL OR new.metadata IS NOT NULL OR new.evidence IS NOT NULL
BEGIN
    UPDATE users
       SET stored_bytes = stored_bytes + coalesce(octet_length(new.result), 0) + coalesce(octet_length(new.error), 0)
                          + coalesce(octet_length(new.metadata), 0) + coalesce(octet_length(new.evidence), 0) + coalesce(octet_length(new.reason), 0)
     WHERE key = (SELECT user_key FROM executions WHERE key = new.execution_key);
END;

CREATE TRIGGER change_outcome_bytes AFTER UPDATE OF evidence, reason ON outcomes
WHEN new.evidence IS NOT old.evidence OR new.reason IS NOT old.reason
BEGIN
    UPDATE users
       SET stored_bytes = stored_bytes + coalesce(octet_length(new.evidence), 0) + coalesce(octet_length(new.reason), 0)
                          - coalesce(octet_length(old.evidence), 0) - coalesce(octet_length(old.reason), 0)
     WHERE key = (SELECT user_key FROM executions WHERE key = new.execution_key);
END;

CREATE TRIGGER subtract_outcome_bytes AFTER DELETE ON outcomes
WHEN old.result IS NOT NULL OR old.error IS NOT NULL OR old.metadata IS NOT NULL OR old.evidence IS NOT NULL
  OR old.reason IS NOT NULL
BEGIN
    UPDATE users
       SET stored_bytes = stored_bytes - (coalesce(octet_length(old.result), 0) + coalesce(octet_length(old.error), 0)
                          + coalesce(octet_length(old.metadata), 0) + coalesce(octet_length(old.evidence), 0) + coalesce(octet_length(old.reason), 0))
     WHERE key = (SELECT user_key FROM executions WHERE key = old.execution_key);
END;

CREATE TRIGGER add_response_bytes AFTER INSERT ON idempotency_keys
BEGIN
    UPDATE users
       SET stored_bytes = stored_bytes + octet_length(new.idempotency_key) + octet_length(new.response_body)
     WHERE key = new.user_key;
END;

CREATE TRIGGER change_response_bytes AFTER UPDATE OF response_body ON idempotency_keys
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.response_body) - octet_length(old.response_body)
     WHERE key = new.user_key;
END;

CREATE TRIGGER subtract_response_bytes AFTER DELETE ON idempotency_keys
BEGIN
    UPDATE users
       SET stored_bytes = stored_bytes - octet_length(old.idempotency_key) - octet_length(old.response_body)
     WHERE key = old.user_key;
END;

-- Fair shares by account: the queues of deliveries and POSTs begin with the user. Runs of an outage come after those
-- that fall due now.
DROP INDEX executions_to_send;
ALTER TABLE executions ADD COLUMN is_catch_up INTEGER NOT NULL DEFAULT 0;
CREATE INDEX executions_to_send ON executions (user_key, is_catch_up, destination_hash, key) WHERE queue_name = 'send';

-- Alerts of type 'catch_up', which are about an account. A CHECK constraint changes only by rebuilding its table.
CREATE TABLE alerts_3 (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    user_key     INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    cue_key      INTEGER REFERENCES cues (key) ON DELETE CASCADE,
    execution_id BLOB    CHECK (length(execution_id) = 16),
    alert_type   TEXT    NOT NULL CHECK (alert_type IN ('consecutive_failures', 'verification_failed', 'claim_lost',
                                                        'catch_up')),
    message      TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    CHECK ((alert_type = 'catch_up') = (cue_key IS NULL)),
    CHECK ((cue_key IS NULL) = (execution_id IS NULL))
) STRICT;
INSERT INTO alerts_3 SELECT * FROM alerts;
DROP TABLE alerts;
ALTER TABLE alerts_3 RENAME TO alerts;
CREATE INDEX alerts_by_user ON alerts (user_key, created_at);
CREATE INDEX alerts_by_cue ON alerts (cue_key, alert_type, created_at);

CREATE TABLE outbox_3 (
    key              INTEGER PRIMARY KEY,
    id               TEXT    NOT NULL,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind             TEXT    NOT NULL CHECK (kind IN ('mail', 'failure', 'consecutive_failures', 'verification_failed',
                                                      'claim_lost', 'catch_up')),
    url              TEXT,
    destination_hash INTEGER,
    body             TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    CHECK ((kind = 'mail') = (url IS NULL)),
    CHECK ((url IS NULL) = (destination_hash IS NULL))
) STRICT;
INSERT INTO outbox_3 SELECT * FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_3 RENAME TO outbox;
CREATE INDEX outbox_waiting ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_posts ON outbox (user_key, destination_hash, key)
    WHERE due_at IS NULL AND destination_hash IS NOT NULL;
CREATE INDEX outbox_mails ON outbox (key) WHERE due_at IS NULL AND destination_hash IS NULL;
CREATE INDEX outbox_by_user ON outbox (user_key, kind);

DROP INDEX cues_due;
CREATE INDEX cues_due ON cues (next_run, user_key) WHERE status = 'active' AND next_run IS NOT NULL;

DROP INDEX executions_to_claim;
CREATE INDEX executions_to_claim ON executions (user_key, is_catch_up, key) WHERE queue_name = 'claim';
DROP INDEX executions_to_claim_by_task;
CREATE INDEX executions_to_claim_by_task ON executions (user_key, task, is_catch_up, key)
    WHERE queue_name = 'claim' AND task IS NOT NULL;

-- Executions made while the clock was behind.
CREATE TABLE trusted_instants (
    execution_key INTEGER PRIMARY KEY,
    first         INTEGER NOT NULL,
    last          INTEGER NOT NULL
) STRICT;
INSERT INTO trusted_instants (execution_key, first, last)
SELECT coalesce((SELECT max(key) FROM executions), 0), value, value FROM meta WHERE name = 'trusted_at';
