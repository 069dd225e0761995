-- Version 1 to 2: standard names. Tables and columns are renamed in place, no row is rewritten. SQLite adjusts indexes,
-- CHECK constraints, foreign keys and triggers that use a renamed table or column. Only a new name of an index itself
-- takes a rebuild.

DROP TRIGGER cues_counted_on_delete;
DROP TRIGGER executions_counted_on_delete;

DROP INDEX executions_over;
DROP INDEX executions_under_way;
DROP INDEX removed_cues_by_user;
DROP INDEX missed_by_cue;
DROP INDEX idempotent_answers_by_age;
DROP INDEX logins_by_client;
DROP INDEX logins_by_age;
DROP INDEX logins_by_user;

UPDATE meta SET name = 'retained_runs' WHERE name = 'runs_kept';

ALTER TABLE users RENAME COLUMN previous_secret TO previous_webhook_secret;
ALTER TABLE users RENAME COLUMN previous_secret_expires TO previous_webhook_secret_expires_at;

ALTER TABLE api_keys RENAME COLUMN hash TO key_hash;

ALTER TABLE months RENAME TO monthly_usage;
ALTER TABLE monthly_usage RENAME COLUMN over_since TO over_quota_since;
ALTER TABLE monthly_usage RENAME COLUMN succeeded TO outcomes_succeeded;
ALTER TABLE monthly_usage RENAME COLUMN failed TO outcomes_failed;

ALTER TABLE cues RENAME COLUMN lane TO destination_hash;

ALTER TABLE removed_cues RENAME TO deleted_cues;
ALTER TABLE deleted_cues RENAME COLUMN key TO cue_key;

ALTER TABLE overgrown_cues RENAME TO retention_queue;
ALTER TABLE retention_queue RENAME COLUMN key TO cue_key;

ALTER TABLE payloads RENAME COLUMN own TO is_single_use;

ALTER TABLE missed RENAME TO missed_runs;

ALTER TABLE executions RENAME COLUMN queue TO queue_name;
ALTER TABLE executions RENAME COLUMN due TO due_at;
ALTER TABLE executions RENAME COLUMN lane TO destination_hash;
ALTER TABLE executions RENAME COLUMN claimed_by TO claimed_by_worker;

ALTER TABLE idempotent_answers RENAME TO idempotency_keys;
ALTER TABLE idempotency_keys RENAME COLUMN status TO response_status;
ALTER TABLE idempotency_keys RENAME COLUMN body TO response_body;

ALTER TABLE logins RENAME TO device_logins;
ALTER TABLE device_logins RENAME COLUMN client TO client_network;
ALTER TABLE device_logins RENAME COLUMN mails TO mail_count;

ALTER TABLE login_mails RENAME COLUMN asked_at TO requested_at;

ALTER TABLE billing_portal_links RENAME COLUMN hash TO link_hash;
ALTER TABLE billing_subscriptions RENAME COLUMN standing TO state;
ALTER TABLE billing_subscriptions RENAME COLUMN as_of TO last_event_secs;
ALTER TABLE billing_events RENAME COLUMN taken_at TO received_at;

ALTER TABLE failure_streaks RENAME TO consecutive_failures;

ALTER TABLE failure_mails RENAME COLUMN written_at TO created_at;
ALTER TABLE failure_mails RENAME COLUMN held TO suppressed;

ALTER TABLE outbox RENAME COLUMN lane TO destination_hash;
ALTER TABLE outbox RENAME COLUMN due TO due_at;

ALTER TABLE outbox_backlogs RENAME TO outbox_overflow;

CREATE INDEX executions_finished ON executions (user_key, status, key) WHERE status = 'success' OR status = 'failed';
CREATE INDEX executions_in_flight ON executions (last_attempt_at) WHERE status = 'delivering';
CREATE INDEX deleted_cues_by_user ON deleted_cues (user_key, cue_key);
CREATE INDEX missed_runs_by_cue ON missed_runs (cue_key, key);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
CREATE INDEX device_logins_by_client ON device_logins (client_network, created_at);
CREATE INDEX device_logins_by_age ON device_logins (created_at);
CREATE INDEX device_logins_by_user ON device_logins (user_key) WHERE user_key IS NOT NULL;

CREATE TRIGGER decrement_active_cues AFTER DELETE ON cues WHEN old.status = 'active'
BEGIN
    UPDATE users SET active_cues = active_cues - 1 WHERE key = old.user_key;
END;

CREATE TRIGGER decrement_backlog AFTER DELETE ON executions WHEN old.queue_name IS NOT NULL
BEGIN
    UPDATE backlog SET count = count - 1
     WHERE name = iif(old.queue_name = 'waiting', iif(old.status = 'retrying', 'retry', NULL), old.queue_name);
END;
