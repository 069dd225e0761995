-- Version 2 to 3: bounds on what an account stores, fair shares of delivery threads by account, confirmed addresses.

-- Lists of unfinished executions read those of their user only.
DROP INDEX executions_in_flight;
CREATE INDEX executions_in_flight ON executions (user_key, last_attempt_at) WHERE status = 'delivering';
CREATE INDEX executions_waiting_by_user ON executions (user_key, key) WHERE queue_name = 'waiting';
