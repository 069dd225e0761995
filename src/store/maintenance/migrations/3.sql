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
