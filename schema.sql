-- The whole state of cued. One file, opened in WAL mode by one server at a time.
--
-- Instants are milliseconds since 1970-01-01T00:00:00Z and always come from the program's clock: no column has a
-- default that asks the time. `key` columns are the inner names of rows (small, in order of creation, so that
-- indexes stay narrow and herds touch neighbouring pages); `id` columns are what callers see. The tables that every
-- delivery writes check their words by `=`: for an `IN` of three and more SQLite fills a table at every write.

-- Single figures about the file itself. `last_seen`: the newest instant at which the scheduler fired. `held_since`:
-- when this copy of another file was made; while it is there, nothing fires (see `cued promote`). `runs_kept`: how many
-- executions of a cue were kept when the histories were last looked at as a whole.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    key                     INTEGER PRIMARY KEY,
    id                      TEXT    NOT NULL UNIQUE,
    email                   TEXT    NOT NULL UNIQUE,
    plan                    TEXT    NOT NULL,
    -- 'monthly' or 'annual' where a subscription pays for the plan.
    plan_interval           TEXT,
    webhook_secret          TEXT    NOT NULL,
    -- After a rotation the old secret signs beside the new one until it expires (contract §3).
    previous_secret         TEXT,
    previous_secret_expires INTEGER,
    -- Where alerts are sent, and what signs them.
    alert_webhook_url       TEXT,
    alert_webhook_secret    TEXT    NOT NULL,
    -- Cues with status 'active', kept by every write that changes one: counting a thousand rows costs a millisecond.
    active_cues             INTEGER NOT NULL,
    disabled_at             INTEGER,
    created_at              INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
    key        INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    name       TEXT    NOT NULL,
    -- The first characters, shown so that a person can tell keys apart; the key itself is never stored.
    prefix     TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX api_keys_by_user ON api_keys (user_key, key);

-- What a user did in a UTC calendar month (`month` is year * 12 + month - 1): executions made, outcomes reported by
-- their success. Deleting a cue leaves them as they are.
CREATE TABLE months (
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    month      INTEGER NOT NULL,
    executions INTEGER NOT NULL,
    -- When the first execution above the plan's quota was made: 24 hours later no more run (contract §8).
    over_since INTEGER,
    succeeded  INTEGER NOT NULL,
    failed     INTEGER NOT NULL,
    PRIMARY KEY (user_key, month)
) STRICT, WITHOUT ROWID;

CREATE TABLE cues (
    -- Never used again: what a deleted cue leaves behind goes bit by bit, and must not fall to another one.
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT    NOT NULL UNIQUE,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    status           TEXT    NOT NULL CHECK (status = 'active' OR status = 'paused' OR status = 'completed'
                                          OR status = 'failed'),
    -- The next instant at which the schedule is due; null while paused, over, or under way for the only time.
    next_run         INTEGER,
    last_run         INTEGER,
    run_count        INTEGER NOT NULL,
    missed_count     INTEGER NOT NULL,
    transport        TEXT    NOT NULL CHECK (transport IN ('webhook', 'worker')),
    -- Fairness key of the callback's host and port; null for worker cues.
    lane             INTEGER,
    payload_key      INTEGER,
    cron             TEXT,
    at               INTEGER,
    timezone         TEXT    NOT NULL,
    catch_up         TEXT    NOT NULL CHECK (catch_up = 'latest' OR catch_up = 'all' OR catch_up = 'none'),
    max_attempts     INTEGER NOT NULL,
    backoff_minutes  TEXT    NOT NULL,
    on_failure       TEXT    NOT NULL,
    verification     TEXT    NOT NULL CHECK (verification = 'none' OR verification = 'require_external_id'
                                          OR verification = 'require_result_url'
                                          OR verification = 'require_artifacts' OR verification = 'manual'),
    callback_url     TEXT,
    callback_method  TEXT    NOT NULL,
    callback_headers TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    description      TEXT,
    warning          TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CHECK ((cron IS NULL) <> (at IS NULL)),
    CHECK (next_run IS NULL OR status = 'active')
) STRICT;

CREATE INDEX cues_due ON cues (next_run) WHERE status = 'active' AND next_run IS NOT NULL;
CREATE INDEX cues_by_user ON cues (user_key, key);
CREATE INDEX cues_by_user_and_status ON cues (user_key, status, key);

CREATE TRIGGER cues_counted_on_delete AFTER DELETE ON cues WHEN old.status = 'active'
BEGIN
    UPDATE users SET active_cues = active_cues - 1 WHERE key = old.user_key;
END;

-- Deleted cues whose executions, payloads and missed runs have not all been taken away yet. Whoever reads those
-- tables reads them with `cues`, so that they are out of sight at once.
CREATE TABLE removed_cues (
    key      INTEGER PRIMARY KEY,
    user_key INTEGER NOT NULL
) STRICT;

CREATE INDEX removed_cues_by_user ON removed_cues (user_key, key);

-- Cues whose history may have grown over what is kept of it.
CREATE TABLE overgrown_cues (
    key INTEGER PRIMARY KEY
) STRICT;

-- Payloads as the canonical JSON that is sent. Rows never change: a new payload is a new row, so that an execution
-- keeps the one it was made with, and the row of a cue, rewritten at every run, stays short.
CREATE TABLE payloads (
    key     INTEGER PRIMARY KEY,
    cue_key INTEGER NOT NULL,
    -- 1: made for one execution, and goes with it. 0: the cue's, of which each replaces the one before; executions
    -- share it.
    own     INTEGER NOT NULL,
    -- The strings `task` and `agent` of the body, which claims filter by.
    task    TEXT,
    agent   TEXT,
    body    TEXT    NOT NULL
) STRICT;

CREATE INDEX payloads_by_cue ON payloads (cue_key, own, key);

-- Runs that made no execution, one row per gap: with the executions they account for every due instant.
CREATE TABLE missed (
    key     INTEGER PRIMARY KEY,
    cue_key INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    reason  TEXT    NOT NULL CHECK (reason IN ('downtime', 'clock'))
) STRICT;

CREATE INDEX missed_by_cue ON missed (cue_key, key);

-- The queue and the history in one. `status` is what callers see; `queue` is where the execution waits:
-- 'waiting' (for `due`), 'send' (for a delivery thread), 'claim' (for a worker), null (under way or over). Rows are
-- made in the order of their keys, so that the oldest are found without an index.
CREATE TABLE executions (
    key              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    cue_key          INTEGER NOT NULL,
    user_key         INTEGER NOT NULL,
    transport        TEXT    NOT NULL CHECK (transport IN ('webhook', 'worker')),
    status           TEXT    NOT NULL CHECK (status = 'pending' OR status = 'delivering' OR status = 'retrying'
                                          OR status = 'success' OR status = 'failed'),
    queue            TEXT    CHECK (queue = 'waiting' OR queue = 'send' OR queue = 'claim'),
    -- When a waiting execution becomes ready: the instant of a later `fire`, or of the next attempt.
    due              INTEGER,
    lane             INTEGER,
    task             TEXT,
    agent            TEXT,
    scheduled_for    INTEGER NOT NULL,
    triggered_by     TEXT    NOT NULL CHECK (triggered_by = 'schedule' OR triggered_by = 'manual_fire'
                                          OR triggered_by = 'replay'),
    payload_key      INTEGER,
    attempts         INTEGER NOT NULL,
    -- Start of the first attempt and of the newest one.
    started_at       INTEGER,
    last_attempt_at  INTEGER,
    delivered_at     INTEGER,
    http_status      INTEGER,
    error_message    TEXT,
    response_body    TEXT,
    claimed_by       TEXT,
    claimed_at       INTEGER,
    lease_expires_at INTEGER,
    outcome_state    TEXT    CHECK (outcome_state = 'reported_success' OR outcome_state = 'reported_failure'
                                 OR outcome_state = 'verified_success' OR outcome_state = 'verification_pending'
                                 OR outcome_state = 'verification_failed'),
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CHECK ((queue = 'waiting') <= (due IS NOT NULL))
) STRICT;

CREATE INDEX executions_by_cue ON executions (cue_key, key);
-- What made them stands in it, for lists of those that the schedule made, which are nearly all.
CREATE INDEX executions_by_user ON executions (user_key, key, triggered_by);
-- For lists that show some executions only: none of these has an entry that a delivery writes twice.
CREATE INDEX executions_over ON executions (user_key, status, key) WHERE status = 'success' OR status = 'failed';
CREATE INDEX executions_by_worker ON executions (user_key, claimed_by, key) WHERE claimed_by IS NOT NULL;
CREATE INDEX executions_by_outcome ON executions (user_key, outcome_state, key) WHERE outcome_state IS NOT NULL;
CREATE INDEX executions_by_trigger ON executions (user_key, triggered_by, key)
    WHERE triggered_by = 'manual_fire' OR triggered_by = 'replay';
CREATE INDEX executions_waiting ON executions (due) WHERE queue = 'waiting';
CREATE INDEX executions_to_send ON executions (lane, key) WHERE queue = 'send';
CREATE INDEX executions_to_claim ON executions (user_key, key) WHERE queue = 'claim';
CREATE INDEX executions_to_claim_by_task ON executions (user_key, task, key) WHERE queue = 'claim' AND task IS NOT NULL;
CREATE INDEX executions_under_way ON executions (last_attempt_at) WHERE status = 'delivering';
CREATE INDEX executions_leased ON executions (lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- How many executions wait: to be sent, for a worker, for another attempt. Health shows them, and counting a backlog
-- of a million would take long. Every write that moves an execution keeps them; what is deleted, with its cue or alone,
-- the trigger counts. An execution that waits for the instant of a later `fire` is in none of them.
CREATE TABLE backlog (
    name  TEXT PRIMARY KEY CHECK (name IN ('send', 'claim', 'retry')),
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO backlog (name, count) VALUES ('send', 0), ('claim', 0), ('retry', 0);

CREATE TRIGGER executions_counted_on_delete AFTER DELETE ON executions WHEN old.queue IS NOT NULL
BEGIN
    UPDATE backlog SET count = count - 1
     WHERE name = iif(old.queue = 'waiting', iif(old.status = 'retrying', 'retry', NULL), old.queue);
END;

-- At most one row per execution: the primary key is what makes a report write-once.
CREATE TABLE outcomes (
    execution_key INTEGER PRIMARY KEY REFERENCES executions (key) ON DELETE CASCADE,
    success       INTEGER NOT NULL,
    result        TEXT,
    error         TEXT,
    metadata      TEXT,
    evidence      TEXT,
    recorded_at   INTEGER NOT NULL,
    -- A person's verdict; null while there is none, or when the outcome was opened again.
    valid         INTEGER,
    reason        TEXT,
    verified_at   INTEGER,
    CHECK ((valid IS NULL) = (verified_at IS NULL))
) STRICT;

CREATE TABLE workers (
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    worker_id        TEXT    NOT NULL,
    handlers         TEXT    NOT NULL,
    last_heartbeat   INTEGER NOT NULL,
    registered_since INTEGER NOT NULL,
    PRIMARY KEY (user_key, worker_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workers_by_heartbeat ON workers (last_heartbeat);

-- Answers kept for 24 hours under the caller's Idempotency-Key.
CREATE TABLE idempotent_answers (
    user_key        INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    idempotency_key TEXT    NOT NULL,
    fingerprint     BLOB    NOT NULL,
    status          INTEGER NOT NULL,
    body            TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (user_key, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotent_answers_by_age ON idempotent_answers (created_at);

-- Device logins, known for an hour after their code was made. Whoever has the code of an approved login gets a key,
-- whoever has its token approves it: both are stored as SHA-256.
CREATE TABLE logins (
    code_hash  BLOB    PRIMARY KEY,
    -- The address, or for IPv6 the /64, that asked for the code.
    client     TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'email_sent', 'approved', 'claimed')),
    email      TEXT,
    token_hash BLOB,
    mails      INTEGER NOT NULL,
    user_key   INTEGER REFERENCES users (key) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    CHECK ((state IN ('approved', 'claimed')) = (user_key IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX logins_by_client ON logins (client, created_at);
CREATE INDEX logins_by_age ON logins (created_at);
CREATE INDEX logins_by_user ON logins (user_key) WHERE user_key IS NOT NULL;

-- Login mails that were asked for in the last hour, whether or not the address is known.
CREATE TABLE login_mails (
    key      INTEGER PRIMARY KEY,
    email    TEXT    NOT NULL,
    asked_at INTEGER NOT NULL
) STRICT;

CREATE INDEX login_mails_by_email ON login_mails (email, asked_at);
CREATE INDEX login_mails_by_age ON login_mails (asked_at);
-- Manual billing: what a link was made for, what its user then confirmed, what the operator decided. The link's
-- token is stored hashed. A row that was never confirmed is dropped when its link has expired.
CREATE TABLE billing_requests (
    key             INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    user_key        INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    plan            TEXT    NOT NULL,
    plan_interval   TEXT    NOT NULL,
    status          TEXT    NOT NULL CHECK (status IN ('offered', 'requested', 'approved', 'declined')),
    link_hash       BLOB    NOT NULL UNIQUE,
    link_expires_at INTEGER NOT NULL,
    requested_at    INTEGER,
    decided_at      INTEGER
) STRICT;

CREATE INDEX billing_requests_by_user ON billing_requests (user_key, status);
CREATE INDEX billing_requests_waiting ON billing_requests (key) WHERE status = 'requested';
CREATE INDEX billing_requests_offered ON billing_requests (link_expires_at) WHERE status = 'offered';

-- Links to the page of manual billing that shows the plan; cancelling it uses one up.
CREATE TABLE billing_portal_links (
    key        INTEGER PRIMARY KEY,
    hash       BLOB    NOT NULL UNIQUE,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX billing_portal_links_by_user ON billing_portal_links (user_key, key);
CREATE INDEX billing_portal_links_by_age ON billing_portal_links (expires_at);

-- Who pays the payment provider, by the provider's ids.
CREATE TABLE billing_customers (
    id        TEXT    PRIMARY KEY,
    user_key  INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    linked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_customers_by_user ON billing_customers (user_key, linked_at);

-- The provider's subscriptions to our prices. One may be known before its customer is: events come in any order.
CREATE TABLE billing_subscriptions (
    id            TEXT    PRIMARY KEY,
    customer_id   TEXT    NOT NULL,
    plan          TEXT    NOT NULL,
    plan_interval TEXT    NOT NULL,
    standing      TEXT    NOT NULL CHECK (standing IN ('live', 'lapsed', 'over')),
    -- Epoch seconds at which the provider made the newest news; null where only the purchase is known.
    as_of         INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_subscriptions_by_customer ON billing_subscriptions (customer_id);

-- Events that were taken: each counts once, however often it is sent.
CREATE TABLE billing_events (
    id       TEXT    PRIMARY KEY,
    taken_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_events_by_age ON billing_events (taken_at);

-- How many executions of a cue have ended as failed since one last ended as a success; no row is none. In the order in
-- which they end: a retry is no end, a replay and a fire are executions like others, and what was never attempted (for
-- the quota, or a disabled account) is not counted.
CREATE TABLE failure_streaks (
    cue_key  INTEGER PRIMARY KEY REFERENCES cues (key) ON DELETE CASCADE,
    failures INTEGER NOT NULL
) STRICT;

-- Mails about failures of the last hour, by user: at most ten (contract §6), whatever restarts in between.
CREATE TABLE failure_mails (
    key        INTEGER PRIMARY KEY,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    written_at INTEGER NOT NULL,
    -- Failures since this mail that were not mailed.
    held       INTEGER NOT NULL
) STRICT;

CREATE INDEX failure_mails_by_user ON failure_mails (user_key, written_at);

-- The newest alerts of each user. `metadata` is a JSON object.
CREATE TABLE alerts (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    user_key     INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    cue_key      INTEGER NOT NULL REFERENCES cues (key) ON DELETE CASCADE,
    execution_id BLOB    NOT NULL CHECK (length(execution_id) = 16),
    alert_type   TEXT    NOT NULL CHECK (alert_type IN ('consecutive_failures', 'verification_failed', 'claim_lost')),
    message      TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX alerts_by_user ON alerts (user_key, created_at);
CREATE INDEX alerts_by_cue ON alerts (cue_key, alert_type, created_at);

-- What is still to be told of failures: stored with the failure, gone once a receiver or the mail server has taken it, or
-- it is given up. It stays when its cue is deleted. `kind` is 'mail', 'failure' (a POST to `on_failure.webhook`) or the
-- type of an alert.
CREATE TABLE outbox (
    key        INTEGER PRIMARY KEY,
    -- The `webhook-id`, one for all attempts.
    id         TEXT    NOT NULL,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind       TEXT    NOT NULL CHECK (kind IN ('mail', 'failure', 'consecutive_failures', 'verification_failed',
                                                'claim_lost')),
    -- Both null for a mail.
    url        TEXT,
    lane       INTEGER,
    body       TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    -- When it is tried again; null where it is ready.
    due        INTEGER,
    created_at INTEGER NOT NULL,
    CHECK ((kind = 'mail') = (url IS NULL)),
    CHECK ((url IS NULL) = (lane IS NULL))
) STRICT;

-- What is ready stands first in it, by lane; mails have none.
CREATE INDEX outbox_by_due ON outbox (due, lane);
CREATE INDEX outbox_by_user ON outbox (user_key, kind);

-- Who has had more POSTs of a kind than may wait: how many were dropped since. Gone when few of them wait again.
CREATE TABLE outbox_backlogs (
    user_key INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind     TEXT    NOT NULL,
    dropped  INTEGER NOT NULL,
    PRIMARY KEY (user_key, kind)
) STRICT, WITHOUT ROWID;
