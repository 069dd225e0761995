-- The schema of the cued database: one SQLite file in WAL mode, opened by one server at a time.
--
-- Conventions:
-- * Timestamps are integers, in milliseconds since 1970-01-01T00:00:00Z. They come from the server's clock; no column
--   has a default that reads the time.
-- * `key` is the surrogate primary key of a row and appears only in this file. Keys are small and grow with creation
--   time, which keeps indexes narrow and puts rows that are created together on adjacent pages. `X_key` refers to the
--   `key` of a row of table X. `id` is the public identifier that the API shows.
-- * Tables written by every delivery use `=` in CHECK constraints: for an IN list of three or more values SQLite
--   builds a temporary table on every write.
-- * An index whose name ends in `_by_age` finds expired rows.

-- Values that describe the file itself. Earlier versions of the schema have this table with the same columns, because
-- backups and migrations read it in files of any version.
-- * `last_seen`: the latest time at which the scheduler ran. Nothing fires by schedule before it.
-- * `held_since`: when this copy was made by `cued backup`, `cued restore` or a migration. While the row exists the
--   file is on hold: nothing is fired, delivered or handed to a worker. `cued promote` deletes it.
-- * `trusted_at`: the time of the clock that ages rows, and `doubted_for`: the running time in milliseconds for which
--   the wall clock has disagreed with it (contract §1.7).
-- * `instance`: a random number of 32 bits, a part of the name of the session cookie. `cued restore` draws another one:
--   a browser sends the cookies of one host to all of its ports.
-- * `clock_accepted_at`: the latest `cued clock accept`. When it changes, a running server begins again at its time.
-- * `registration`: who may register, as an operator has set it: 1 the first user, 2 everybody, 3 nobody.
-- * `retained_runs`: the number of executions kept per cue when all histories were last checked against `--retain`.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('instance', abs(random() % 4294967296));

CREATE TABLE users (
    -- The key of an account is never given again: a request of a deleted one does not write to another.
    key                                INTEGER PRIMARY KEY AUTOINCREMENT,
    id                                 TEXT    NOT NULL UNIQUE,
    email                              TEXT    NOT NULL UNIQUE,
    plan                               TEXT    NOT NULL,
    -- 'monthly' or 'annual' if a subscription pays for the plan, otherwise null.
    plan_interval                      TEXT,
    webhook_secret                     TEXT    NOT NULL,
    -- After a rotation, deliveries are signed with both secrets until the previous one expires (contract §3).
    previous_webhook_secret            TEXT,
    previous_webhook_secret_expires_at INTEGER,
    -- The URL that alerts are POSTed to, and the secret that signs them.
    alert_webhook_url                  TEXT,
    alert_webhook_secret               TEXT    NOT NULL,
    -- The number of cues with status 'active'. Every write that changes a cue's status updates it, because counting a
    -- thousand rows takes a millisecond.
    active_cues                        INTEGER NOT NULL,
    disabled_at                        INTEGER,
    created_at                         INTEGER NOT NULL,
    -- When the address was proved to receive mail, or added by the operator. An unconfirmed address gets no failure
    -- mails, but once a mail with a link that has `confirmation_token` (contract §3.10).
    confirmed_at                       INTEGER,
    confirmation_token                 TEXT,
    confirmation_requested_at          INTEGER,
    -- The bytes of the user's payloads, callback headers, results and stored responses (contract §11.6). Triggers
    -- maintain them, because rows of four tables count.
    stored_bytes                       INTEGER NOT NULL DEFAULT 0,
    -- The numbers of cues with the other statuses. They are kept as `active_cues` is: lists show them as their total.
    paused_cues                        INTEGER NOT NULL DEFAULT 0,
    completed_cues                     INTEGER NOT NULL DEFAULT 0,
    failed_cues                        INTEGER NOT NULL DEFAULT 0,
    -- 1 if the user manages the server over HTTP: the first user does, and whom `cued user set-operator` makes one.
    is_operator                        INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What accounts with unconfirmed addresses store together (contract §3.10).
CREATE INDEX users_unconfirmed ON users (confirmed_at, stored_bytes) WHERE confirmed_at IS NULL;

CREATE TABLE api_keys (
    key        INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    name       TEXT    NOT NULL,
    -- The first characters of the API key, for display. The API key itself is stored only as its SHA-256.
    prefix     TEXT    NOT NULL,
    key_hash   BLOB    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX api_keys_by_user ON api_keys (user_key, key);

-- Sessions of browsers (contract §3.11). The token in the cookie is stored as SHA-256 only.
CREATE TABLE sessions (
    key         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    -- The API key that began the session, or made the link that did: the session ends with it. Null without one.
    api_key_key INTEGER REFERENCES api_keys (key) ON DELETE CASCADE,
    token_hash  BLOB    NOT NULL UNIQUE,
    method      TEXT    NOT NULL CHECK (method IN ('key', 'mail', 'link', 'dev')),
    -- The beginning of the `User-Agent`, and the address of the client, at the sign-in.
    device      TEXT    NOT NULL,
    address     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- Updated at most once a day, together with `expires_at`: a page that is open all day writes nothing.
    seen_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_user ON sessions (user_key, key);
CREATE INDEX sessions_by_api_key ON sessions (api_key_key) WHERE api_key_key IS NOT NULL;
CREATE INDEX sessions_by_age ON sessions (expires_at);

-- Links. 'session': begins one session, within five minutes; the row is deleted when the link is used, and with the API
-- key and the session that made it. 'plan': shows the user's plan with manual billing; cancelling the plan deletes it.
CREATE TABLE links (
    key         INTEGER PRIMARY KEY,
    kind        TEXT    NOT NULL CHECK (kind IN ('session', 'plan')),
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    api_key_key INTEGER REFERENCES api_keys (key) ON DELETE CASCADE,
    session_key INTEGER REFERENCES sessions (key) ON DELETE CASCADE,
    token_hash  BLOB    NOT NULL UNIQUE,
    expires_at  INTEGER NOT NULL
) STRICT;

CREATE INDEX links_by_user ON links (user_key, kind, key);
CREATE INDEX links_by_api_key ON links (api_key_key) WHERE api_key_key IS NOT NULL;
CREATE INDEX links_by_session ON links (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX links_by_age ON links (expires_at);

-- Usage per user and calendar month in UTC. `month` is year * 12 + month - 1. Deleting a cue does not change its
-- counts.
CREATE TABLE monthly_usage (
    user_key           INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    month              INTEGER NOT NULL,
    -- Executions created.
    executions         INTEGER NOT NULL,
    -- When the first execution above the plan's quota was created. From 24 hours later on executions are recorded as
    -- failed and not sent (contract §8).
    over_quota_since   INTEGER,
    -- Outcomes reported with `success` true and false.
    outcomes_succeeded INTEGER NOT NULL,
    outcomes_failed    INTEGER NOT NULL,
    PRIMARY KEY (user_key, month)
) STRICT, WITHOUT ROWID;

CREATE TABLE cues (
    -- AUTOINCREMENT: keys are never reused, because rows that refer to a deleted cue are deleted later, in batches.
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT    NOT NULL UNIQUE,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    status           TEXT    NOT NULL CHECK (status = 'active' OR status = 'paused' OR status = 'completed'
                                          OR status = 'failed'),
    -- The next scheduled time. Null if the cue is paused or finished, or if the only run of a `once` cue has started.
    next_run         INTEGER,
    last_run         INTEGER,
    run_count        INTEGER NOT NULL,
    missed_count     INTEGER NOT NULL,
    transport        TEXT    NOT NULL CHECK (transport IN ('webhook', 'worker')),
    -- The name by which files find the cue, with a namespace before a slash.
    slug             TEXT,
    -- The namespace of the file that made or adopted the cue, empty for a file without one. Null: no file did.
    source           TEXT,
    -- Hash of the callback's host and port, or of the key of its flow, which is below 0. Delivery slots are shared
    -- fairly among destinations. Null for worker cues.
    destination_hash INTEGER,
    payload_key      INTEGER,
    -- A recurring cue has `cron`, or `every` with the instant from which its intervals are counted. A `once` cue has `at`.
    cron             TEXT,
    every            TEXT,
    counts_from      INTEGER,
    at               INTEGER,
    timezone         TEXT    NOT NULL,
    catch_up         TEXT    NOT NULL CHECK (catch_up = 'latest' OR catch_up = 'all' OR catch_up = 'none'),
    max_attempts     INTEGER NOT NULL,
    -- A JSON array of numbers.
    backoff_minutes  TEXT    NOT NULL,
    -- A JSON object.
    on_failure       TEXT    NOT NULL,
    verification     TEXT    NOT NULL CHECK (verification = 'none' OR verification = 'require_external_id'
                                          OR verification = 'require_result_url'
                                          OR verification = 'require_artifacts' OR verification = 'manual'),
    callback_url     TEXT,
    callback_method  TEXT    NOT NULL,
    -- A JSON object.
    callback_headers TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    description      TEXT,
    -- Set at creation if the request had unknown fields.
    warning          TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    -- Worker cues: how long an execution may wait for a claim before it fails. Null: for ever.
    claim_within_minutes  INTEGER,
    -- 1: the JSON body of a 2xx response is the outcome of the execution.
    outcome_from_response INTEGER NOT NULL DEFAULT 0,
    -- The limit of a whole exchange with the callback.
    timeout_seconds       INTEGER NOT NULL DEFAULT 30,
    -- A JSON array of whole numbers in place of `backoff_minutes`, which then has these rounded up.
    backoff_seconds  TEXT,
    -- No run is before `start_at`, and none at or after `end_at`. All come later by `delay_seconds`, which follow from the
    -- id of the cue and are at most `jitter_seconds`.
    start_at         INTEGER,
    end_at           INTEGER,
    jitter_seconds   INTEGER NOT NULL DEFAULT 0,
    delay_seconds    INTEGER NOT NULL DEFAULT 0,
    overlap          TEXT    NOT NULL DEFAULT 'allow' CHECK (overlap = 'allow' OR overlap = 'skip'
                                                          OR overlap = 'buffer_one'),
    max_age_seconds  INTEGER,
    outcome_deadline_seconds INTEGER,
    -- The flow of the callback. `flow_last_at`: when an attempt of this cue was the latest of its flow, its planned start.
    flow_key         TEXT,
    flow_parallelism INTEGER,
    flow_per_minute  INTEGER,
    flow_last_at     INTEGER,
    -- A JSON array of words; null for none. Triggers repeat them in `cue_tags`.
    tags             TEXT,
    CHECK ((cron IS NOT NULL) + (every IS NOT NULL) + (at IS NOT NULL) = 1),
    CHECK ((every IS NULL) = (counts_from IS NULL)),
    CHECK (next_run IS NULL OR status = 'active'),
    CHECK ((flow_key IS NULL) = (coalesce(flow_parallelism, flow_per_minute) IS NULL))
) STRICT;

CREATE INDEX cues_due ON cues (next_run, user_key) WHERE status = 'active' AND next_run IS NOT NULL;
CREATE INDEX cues_by_user ON cues (user_key, key);
CREATE INDEX cues_by_user_and_status ON cues (user_key, status, key);
CREATE UNIQUE INDEX cues_by_slug ON cues (user_key, slug) WHERE slug IS NOT NULL;
CREATE INDEX cues_by_flow ON cues (user_key, destination_hash, flow_parallelism, flow_per_minute, flow_last_at)
    WHERE destination_hash < 0;

-- The brackets of the array do not count as stored bytes: a cue without headers has none.
CREATE TRIGGER uncount_cue AFTER DELETE ON cues
BEGIN
    UPDATE users
       SET active_cues = active_cues - (old.status = 'active'), paused_cues = paused_cues - (old.status = 'paused'),
           completed_cues = completed_cues - (old.status = 'completed'),
           failed_cues = failed_cues - (old.status = 'failed'),
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

-- The time zones of cron expressions, except UTC. `rules`: a TZif file (RFC 9636), the rules by which the next runs of
-- their cues are stored. Null until the server reads them, within a minute; it then computes their next runs again.
CREATE TABLE time_zones (
    name        TEXT PRIMARY KEY,
    rules       BLOB,
    -- While the cues move to other rules: these, and the key of the last cue that has moved.
    moving      BLOB,
    moved_until INTEGER,
    CHECK ((moving IS NULL) = (moved_until IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER add_time_zone AFTER INSERT ON cues WHEN new.cron IS NOT NULL AND new.timezone <> 'UTC'
BEGIN
    INSERT INTO time_zones (name) VALUES (new.timezone) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER change_time_zone AFTER UPDATE OF cron, timezone ON cues WHEN new.cron IS NOT NULL AND new.timezone <> 'UTC'
BEGIN
    INSERT INTO time_zones (name) VALUES (new.timezone) ON CONFLICT DO NOTHING;
END;

-- The tags of the cues, a row each: the cues with a tag are found here, in the order of their creation.
CREATE TABLE cue_tags (
    user_key INTEGER NOT NULL,
    tag      TEXT    NOT NULL,
    cue_key  INTEGER NOT NULL,
    PRIMARY KEY (user_key, tag, cue_key)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER add_tags AFTER INSERT ON cues WHEN new.tags IS NOT NULL
BEGIN
    INSERT INTO cue_tags (user_key, tag, cue_key) SELECT new.user_key, value, new.key FROM json_each(new.tags);
END;

CREATE TRIGGER change_tags AFTER UPDATE OF tags ON cues WHEN new.tags IS NOT old.tags
BEGIN
    DELETE FROM cue_tags
     WHERE user_key = old.user_key AND tag IN (SELECT value FROM json_each(old.tags)) AND cue_key = old.key;
    INSERT INTO cue_tags (user_key, tag, cue_key) SELECT new.user_key, value, new.key FROM json_each(new.tags);
END;

CREATE TRIGGER remove_tags AFTER DELETE ON cues WHEN old.tags IS NOT NULL
BEGIN
    DELETE FROM cue_tags
     WHERE user_key = old.user_key AND tag IN (SELECT value FROM json_each(old.tags)) AND cue_key = old.key;
END;

-- Deleted cues that still have executions, payloads or missed runs. A background task deletes those rows in batches.
-- Queries on those tables join `cues` or exclude `deleted_cues`, so a deleted cue disappears from the API
-- immediately.
CREATE TABLE deleted_cues (
    cue_key  INTEGER PRIMARY KEY,
    user_key INTEGER NOT NULL
) STRICT;

CREATE INDEX deleted_cues_by_user ON deleted_cues (user_key, cue_key);

-- Cues that may have more executions than `--retain` keeps, for the background task that deletes the oldest ones.
CREATE TABLE retention_queue (
    cue_key INTEGER PRIMARY KEY
) STRICT;

-- Cues with a change of a field that holds for executions that wait, and the key before which their executions do not
-- follow it yet: the newest come first. The row is deleted when all do.
CREATE TABLE changed_policies (
    cue_key INTEGER PRIMARY KEY,
    before  INTEGER NOT NULL
) STRICT;

-- Payloads, as the canonical JSON that is sent. Rows are immutable: changing a cue's payload inserts a new row, so
-- that existing executions keep theirs. The table is separate from `cues` because every run rewrites the row of its
-- cue.
CREATE TABLE payloads (
    key           INTEGER PRIMARY KEY,
    cue_key       INTEGER NOT NULL,
    -- 1: used by a single execution (`payload_override`, or a replay) and deleted with it. 0: the payload of the cue,
    -- shared by its executions; a newer one replaces it.
    is_single_use INTEGER NOT NULL,
    -- The strings `task` and `agent` of the body, up to 255 characters. Workers filter by them when they claim.
    task          TEXT,
    agent         TEXT,
    body          TEXT    NOT NULL
) STRICT;

CREATE INDEX payloads_by_cue ON payloads (cue_key, is_single_use, key);

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

-- Scheduled runs for which no execution was created, one row per interval. `executions` and `missed_runs` together
-- account for every scheduled time.
CREATE TABLE missed_runs (
    key     INTEGER PRIMARY KEY,
    cue_key INTEGER NOT NULL,
    -- The first and the last scheduled time of the interval, and the number of scheduled times in it.
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    -- 'downtime': the server was not running. 'clock': the system clock jumped forward. 'overlap': an earlier execution
    -- was not finished.
    reason  TEXT    NOT NULL CHECK (reason IN ('downtime', 'clock', 'overlap'))
) STRICT;

CREATE INDEX missed_runs_by_cue ON missed_runs (cue_key, key);

-- Intervals whose runs a clock that was ahead has fired before their time. `cued clock accept` inserts them, because
-- the executions may be deleted before; when such a run is due, no other execution is created. A row goes when it has
-- passed.
CREATE TABLE fired_ahead (
    cue_key INTEGER NOT NULL REFERENCES cues (key) ON DELETE CASCADE,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    PRIMARY KEY (cue_key, first)
) STRICT, WITHOUT ROWID;

-- The work queues and the execution history. `status` is the public status. `queue_name` is the queue that holds the
-- execution: 'waiting' until `due_at`, 'send' until a delivery thread takes it, 'claim' until a worker claims it. It
-- is null while an attempt is in flight and after the execution has finished. Keys grow with creation time, so the
-- oldest executions are found without an index.
CREATE TABLE executions (
    key               INTEGER PRIMARY KEY,
    id                BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
    cue_key           INTEGER NOT NULL,
    user_key          INTEGER NOT NULL,
    transport         TEXT    NOT NULL CHECK (transport IN ('webhook', 'worker')),
    status            TEXT    NOT NULL CHECK (status = 'pending' OR status = 'delivering' OR status = 'retrying'
                                           OR status = 'success' OR status = 'failed'),
    queue_name        TEXT    CHECK (queue_name = 'waiting' OR queue_name = 'send' OR queue_name = 'claim'),
    -- When an execution in queue 'waiting' moves on: the `send_at` of a manual fire, or the time of the next attempt. The
    -- year 9999 if it waits for the end of the earlier executions of its cue.
    -- When an execution in queue 'claim' is checked next, because no worker claims it.
    due_at            INTEGER,
    destination_hash  INTEGER,
    task              TEXT,
    agent             TEXT,
    scheduled_for     INTEGER NOT NULL,
    triggered_by      TEXT    NOT NULL CHECK (triggered_by = 'schedule' OR triggered_by = 'manual_fire'
                                           OR triggered_by = 'replay'),
    payload_key       INTEGER,
    attempts          INTEGER NOT NULL,
    -- Start of the first attempt and of the latest attempt.
    started_at        INTEGER,
    last_attempt_at   INTEGER,
    delivered_at      INTEGER,
    http_status       INTEGER,
    error_message     TEXT,
    response_body     TEXT,
    claimed_by_worker TEXT,
    claimed_at        INTEGER,
    -- When the claim of a worker ends. Moved forward when it is reached and the worker has sent heartbeats.
    lease_expires_at  INTEGER,
    outcome_state     TEXT    CHECK (outcome_state = 'reported_success' OR outcome_state = 'reported_failure'
                                  OR outcome_state = 'verified_success' OR outcome_state = 'verification_pending'
                                  OR outcome_state = 'verification_failed' OR outcome_state = 'missing'),
    created_at        INTEGER NOT NULL,
    -- The last change of state. In queue 'claim', the time since which the execution is claimable.
    updated_at        INTEGER NOT NULL,
    -- 1: a run of an outage. Runs that fall due now are sent and claimed before it.
    is_catch_up       INTEGER NOT NULL DEFAULT 0,
    -- The latest attempt: its duration, the word for its failure (contract §1.9), and the headers of a response that
    -- was no success, as a JSON array of pairs. Null in executions of earlier versions.
    duration_ms       INTEGER,
    cause             TEXT,
    response_headers  TEXT,
    -- The id of the execution that this one repeats. That one may have been deleted.
    replayed_from     BLOB    CHECK (length(replayed_from) = 16),
    -- The cue, if `overlap` holds up its scheduled runs until the end of this execution. Null after a lost claim as well.
    blocks_cue        INTEGER,
    -- When it fails unless it has succeeded (`max_age_seconds`). Null after the end, and while an attempt outlasts it.
    expires_at        INTEGER,
    -- Until when somebody has to report the outcome of a delivered execution. Null after that.
    outcome_due_at    INTEGER,
    CHECK ((queue_name = 'waiting') <= (due_at IS NOT NULL))
) STRICT;

CREATE INDEX executions_by_cue ON executions (cue_key, key);
-- Includes `triggered_by` so that it also serves lists filtered by 'schedule', which matches nearly all executions.
CREATE INDEX executions_by_user ON executions (user_key, key, triggered_by);
-- For filtered lists. A delivery updates the entry of an execution in each of these indexes at most once.
CREATE INDEX executions_finished ON executions (user_key, status, key) WHERE status = 'success' OR status = 'failed';
CREATE INDEX executions_by_worker ON executions (user_key, claimed_by_worker, key) WHERE claimed_by_worker IS NOT NULL;
CREATE INDEX executions_by_outcome ON executions (user_key, outcome_state, key) WHERE outcome_state IS NOT NULL;
CREATE INDEX executions_by_trigger ON executions (user_key, triggered_by, key)
    WHERE triggered_by = 'manual_fire' OR triggered_by = 'replay';
CREATE INDEX executions_by_cause ON executions (user_key, cause, key) WHERE cause IS NOT NULL;
CREATE INDEX executions_by_original ON executions (user_key, replayed_from, key) WHERE replayed_from IS NOT NULL;
-- The queues.
CREATE INDEX executions_waiting ON executions (due_at) WHERE queue_name = 'waiting';
-- For lists of unfinished executions, as is the user in the other indexes of this group. Most executions never wait.
CREATE INDEX executions_waiting_by_user ON executions (user_key, key) WHERE queue_name = 'waiting';
-- Delivery threads are shared fairly among users, and among the destinations of a user.
CREATE INDEX executions_to_send ON executions (user_key, is_catch_up, destination_hash, key) WHERE queue_name = 'send';
CREATE INDEX executions_to_claim ON executions (user_key, is_catch_up, key) WHERE queue_name = 'claim';
CREATE INDEX executions_to_claim_by_task ON executions (user_key, task, is_catch_up, key)
    WHERE queue_name = 'claim' AND task IS NOT NULL;
-- For executions that no worker claims: the longest wait, and the next look at one (`due_at`; null is at once).
CREATE INDEX executions_claimable_since ON executions (updated_at) WHERE queue_name = 'claim';
CREATE INDEX executions_unclaimed ON executions (due_at) WHERE queue_name = 'claim';
CREATE INDEX executions_in_flight ON executions (user_key, last_attempt_at) WHERE status = 'delivering';
CREATE INDEX executions_in_flows ON executions (user_key, destination_hash)
    WHERE queue_name = 'send' AND destination_hash < 0;
CREATE INDEX executions_blocking ON executions (blocks_cue, scheduled_for) WHERE blocks_cue IS NOT NULL;
CREATE INDEX executions_expiring ON executions (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX executions_without_outcome ON executions (outcome_due_at) WHERE outcome_due_at IS NOT NULL;
CREATE INDEX executions_leased ON executions (lease_expires_at) WHERE lease_expires_at IS NOT NULL;

-- Attempts that another one followed, claims that were lost, and deliveries that were cut off. The latest attempt of an
-- execution is in `executions`, so that an execution that succeeds at once has no row here.
CREATE TABLE attempts (
    execution_key    INTEGER NOT NULL REFERENCES executions (key) ON DELETE CASCADE,
    -- From 1.
    attempt          INTEGER NOT NULL,
    -- 0: a delivery that the end of the program cut off. It did not count, and the one that repeated it has the same
    -- number.
    is_counted       INTEGER NOT NULL,
    started_at       INTEGER NOT NULL,
    -- Null for a delivery that was cut off.
    duration_ms      INTEGER,
    http_status      INTEGER,
    cause            TEXT,
    error_message    TEXT,
    -- As in `executions`.
    response_headers TEXT,
    response_body    TEXT,
    -- The time at which the next attempt was planned. Null for a lost claim.
    next_retry       INTEGER,
    -- The worker that lost its claim. Null for a delivery.
    worker_id        TEXT,
    PRIMARY KEY (execution_key, attempt, is_counted)
) STRICT, WITHOUT ROWID;

-- Figures of each user and hour in UTC, kept for 400 days. `hour` is the number of hours since 1970.
CREATE TABLE hourly_stats (
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    hour        INTEGER NOT NULL,
    -- Executions that ended in the hour. A late report that turns a failure into a success takes the failure back.
    succeeded   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    -- Attempts that another one followed, and missed runs recorded.
    retried     INTEGER NOT NULL,
    missed      INTEGER NOT NULL,
    -- The executions whose end was that of an attempt. The times are over these.
    measured    INTEGER NOT NULL,
    -- Milliseconds from the scheduled instant to the start of the first attempt.
    late_sum_ms INTEGER NOT NULL,
    late_max_ms INTEGER NOT NULL,
    -- Milliseconds of the last attempts.
    took_sum_ms INTEGER NOT NULL,
    PRIMARY KEY (user_key, hour)
) STRICT, WITHOUT ROWID;

-- The number of executions that are ready to be sent ('send'), ready to be claimed ('claim') and waiting for a retry
-- ('retry'). `/health` reports them; counting a backlog of a million rows would be slow. Every write that moves an
-- execution between queues updates them, and the trigger covers deletions. An execution that waits for the `send_at`
-- of a manual fire is not counted.
CREATE TABLE backlog (
    name  TEXT PRIMARY KEY CHECK (name IN ('send', 'claim', 'retry')),
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO backlog (name, count) VALUES ('send', 0), ('claim', 0), ('retry', 0);

CREATE TRIGGER decrement_backlog AFTER DELETE ON executions WHEN old.queue_name IS NOT NULL
BEGIN
    UPDATE backlog SET count = count - 1
     WHERE name = iif(old.queue_name = 'waiting', iif(old.status = 'retrying', 'retry', NULL), old.queue_name);
END;

-- Reported outcomes, at most one per execution: the primary key makes a report write-once.
CREATE TABLE outcomes (
    execution_key INTEGER PRIMARY KEY REFERENCES executions (key) ON DELETE CASCADE,
    success       INTEGER NOT NULL,
    result        TEXT,
    error         TEXT,
    -- JSON objects.
    metadata      TEXT,
    evidence      TEXT,
    recorded_at   INTEGER NOT NULL,
    -- The verdict of a manual verification. Null if there is none, or if the outcome was set back to pending.
    valid         INTEGER,
    reason        TEXT,
    verified_at   INTEGER,
    CHECK ((valid IS NULL) = (verified_at IS NULL))
) STRICT;

-- An outcome is deleted before its execution, which tells the user.
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

CREATE TABLE workers (
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    worker_id        TEXT    NOT NULL,
    -- A JSON array of strings.
    handlers         TEXT    NOT NULL,
    last_heartbeat   INTEGER NOT NULL,
    registered_since INTEGER NOT NULL,
    PRIMARY KEY (user_key, worker_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX workers_by_heartbeat ON workers (last_heartbeat);

-- Responses to requests with an Idempotency-Key, kept for 24 hours. `fingerprint` is the SHA-256 of the request.
CREATE TABLE idempotency_keys (
    user_key        INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    idempotency_key TEXT    NOT NULL,
    fingerprint     BLOB    NOT NULL,
    response_status INTEGER NOT NULL,
    response_body   TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (user_key, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

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

-- Device logins, kept for an hour. The device code of an approved login can be exchanged for an API key or a session;
-- the token in the mailed link approves the login. Both are stored as SHA-256 only.
CREATE TABLE device_logins (
    code_hash      BLOB    PRIMARY KEY,
    -- The client that requested the code: its IPv4 address, or the /64 of its IPv6 address.
    client_network TEXT    NOT NULL,
    state          TEXT    NOT NULL CHECK (state IN ('pending', 'email_sent', 'approved', 'claimed')),
    email          TEXT,
    token_hash     BLOB,
    mail_count     INTEGER NOT NULL,
    user_key       INTEGER REFERENCES users (key) ON DELETE CASCADE,
    created_at     INTEGER NOT NULL,
    -- The code that people see, on the device, on pages and in the mail. The device does not poll with it. Null in
    -- logins from before version 3.
    user_code      TEXT,
    -- The device gets a session in place of an API key.
    is_for_session INTEGER NOT NULL DEFAULT 0,
    CHECK ((state IN ('approved', 'claimed')) = (user_key IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX device_logins_by_client ON device_logins (client_network, created_at);
CREATE UNIQUE INDEX device_logins_by_user_code ON device_logins (user_code);
CREATE INDEX device_logins_by_age ON device_logins (created_at);
CREATE INDEX device_logins_by_user ON device_logins (user_key) WHERE user_key IS NOT NULL;

-- Login mails requested in the last hour, for known and unknown addresses alike. Limits the mails per address.
CREATE TABLE login_mails (
    key          INTEGER PRIMARY KEY,
    email        TEXT    NOT NULL,
    requested_at INTEGER NOT NULL
) STRICT;

CREATE INDEX login_mails_by_email ON login_mails (email, requested_at);
CREATE INDEX login_mails_by_age ON login_mails (requested_at);

-- Manual billing. 'offered': the user got a link to a confirmation page. 'requested': the user confirmed, and the
-- operator has to decide. 'approved', 'declined': the operator's decision. The token of the link is stored as a hash.
-- A row that is never confirmed is deleted when its link has expired.
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

-- Customers of the payment provider. `id` is the provider's.
CREATE TABLE billing_customers (
    id        TEXT    PRIMARY KEY,
    user_key  INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    linked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_customers_by_user ON billing_customers (user_key, linked_at);

-- Subscriptions at the payment provider. `id` and `customer_id` are the provider's. There is no foreign key to
-- `billing_customers`, because events can arrive in any order.
CREATE TABLE billing_subscriptions (
    id              TEXT    PRIMARY KEY,
    customer_id     TEXT    NOT NULL,
    plan            TEXT    NOT NULL,
    plan_interval   TEXT    NOT NULL,
    -- 'live': grants the plan. 'lapsed': does not, but can become live again. 'over': has ended for good.
    state           TEXT    NOT NULL CHECK (state IN ('live', 'lapsed', 'over')),
    -- When the provider created the latest event of this subscription, in seconds since 1970. Null if only the
    -- checkout is known. Older events are ignored.
    last_event_secs INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_subscriptions_by_customer ON billing_subscriptions (customer_id);

-- Events of the payment provider that were processed, so that a repeated one is ignored. `id` is the provider's.
CREATE TABLE billing_events (
    id          TEXT    PRIMARY KEY,
    received_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX billing_events_by_age ON billing_events (received_at);

-- The number of executions of a cue that failed since its last success, in the order in which they finished. No row
-- means none. All attempts of an execution count once. Manual fires and replays count; executions that were never
-- attempted (quota, disabled account) do not.
CREATE TABLE consecutive_failures (
    cue_key      INTEGER PRIMARY KEY REFERENCES cues (key) ON DELETE CASCADE,
    failures     INTEGER NOT NULL,
    -- The end of the first of them, and whether a channel has told one of them: it then tells the recovery too.
    since        INTEGER NOT NULL,
    is_announced INTEGER NOT NULL CHECK (is_announced IN (0, 1)),
    -- The last of them.
    last_key     INTEGER NOT NULL
) STRICT;

-- The failing cues that a channel has told, until the failures or the channel end. `channel_key` is 0 for failure mails,
-- -1 for the alert webhook.
CREATE TABLE told_failures (
    cue_key     INTEGER NOT NULL REFERENCES consecutive_failures (cue_key) ON DELETE CASCADE,
    channel_key INTEGER NOT NULL,
    told_at     INTEGER NOT NULL,
    -- The next reminder. Null for none.
    remind_at   INTEGER,
    PRIMARY KEY (cue_key, channel_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX told_failures_due ON told_failures (remind_at) WHERE remind_at IS NOT NULL;
CREATE INDEX told_failures_by_channel ON told_failures (channel_key);

-- Nobody is reminded of the failures of a paused cue, and its next failure is told.
CREATE TRIGGER forget_told_failures AFTER UPDATE OF status ON cues WHEN new.status = 'paused'
BEGIN
    DELETE FROM told_failures WHERE cue_key = new.key;
END;

-- Failure mails of the last hour per user. Limits them to ten an hour (contract §6), across restarts.
CREATE TABLE failure_mails (
    key        INTEGER PRIMARY KEY,
    user_key   INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    -- The number of failures after this mail that were not mailed because of the limit.
    suppressed INTEGER NOT NULL
) STRICT;

CREATE INDEX failure_mails_by_user ON failure_mails (user_key, created_at);

-- The latest alerts of each user. `metadata` is a JSON object.
CREATE TABLE alerts (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    user_key     INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    -- Null if the alert is about the account.
    cue_key      INTEGER REFERENCES cues (key) ON DELETE CASCADE,
    execution_id BLOB    CHECK (length(execution_id) = 16),
    alert_type   TEXT    NOT NULL CHECK (alert_type IN ('consecutive_failures', 'verification_failed', 'claim_lost',
                                                        'catch_up', 'unclaimed', 'clock_behind',
                                                        'outcome_missing', 'time_zone_changed')),
    message      TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    CHECK ((alert_type IN ('catch_up', 'clock_behind', 'time_zone_changed')) = (cue_key IS NULL)),
    CHECK ((cue_key IS NULL) = (execution_id IS NULL))
) STRICT;

CREATE INDEX alerts_by_user ON alerts (user_key, created_at);
CREATE INDEX alerts_by_cue ON alerts (cue_key, alert_type, created_at);

-- The channels that send an account its failures, recoveries and alerts (contract §12).
CREATE TABLE channels (
    key            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    user_key       INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    type           TEXT    NOT NULL CHECK (type IN ('email', 'webhook', 'ntfy', 'slack', 'discord', 'mattermost', 'teams',
                                                    'telegram', 'gotify', 'pushover')),
    name           TEXT    NOT NULL,
    -- A JSON object of texts: the settings of its type, tokens included.
    settings       TEXT    NOT NULL,
    -- A JSON array of words; one of tags, null without any; the JSON object of the quiet hours.
    events         TEXT    NOT NULL,
    tags           TEXT,
    quiet          TEXT,
    -- What it tells of the failures of a cue in a row: 'first', with reminders while they last, or 'every' one.
    repeat         TEXT    NOT NULL CHECK (repeat IN ('first', 'every')),
    -- 0: no reminders.
    remind_after_seconds INTEGER NOT NULL,
    -- The last notice that it has told or does not take.
    cursor         INTEGER NOT NULL,
    -- When it looks for notices. Null while none waits, and while a message of it is in the outbox.
    due_at         INTEGER,
    -- The start of its current window and the number of messages in it, which make its pace.
    window_at      INTEGER,
    window_count   INTEGER NOT NULL DEFAULT 0,
    -- In a row.
    failures       INTEGER NOT NULL DEFAULT 0,
    last_sent_at   INTEGER,
    last_failed_at INTEGER,
    last_error     TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX channels_by_user ON channels (user_key, key);
CREATE INDEX channels_due ON channels (due_at) WHERE due_at IS NOT NULL;

CREATE TRIGGER remove_told_failures AFTER DELETE ON channels
BEGIN
    DELETE FROM told_failures WHERE channel_key = old.key;
END;

-- What the channels of an account have to tell, until all have. Kept only for accounts with channels.
CREATE TABLE notices (
    -- AUTOINCREMENT: channels remember keys of deleted rows.
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    user_key INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    -- JSON arrays: the events that it stands for, and the tags of its cue, null without any.
    events   TEXT    NOT NULL,
    tags     TEXT,
    -- A JSON array of the keys of the channels that tell it; null for all that take its events.
    channels TEXT,
    -- When it may be told.
    ready_at INTEGER NOT NULL,
    -- The id of its message, which is the JSON object in `body`.
    id       TEXT    NOT NULL,
    body     TEXT    NOT NULL
) STRICT;

CREATE INDEX notices_by_user ON notices (user_key, key);

-- Notifications to be sent. A row is inserted in the transaction that records the failure, and deleted when the
-- receiver or the mail server has accepted it or when it expires. It survives the deletion of its cue. `kind` is
-- 'mail', 'failure' (a POST to `on_failure.webhook`), 'channel' (a message to the service of a channel) or an alert type.
CREATE TABLE outbox (
    key              INTEGER PRIMARY KEY,
    -- The `webhook-id` header, the same for all attempts.
    id               TEXT    NOT NULL,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind             TEXT    NOT NULL CHECK (kind IN ('mail', 'failure', 'channel', 'consecutive_failures',
                                                      'verification_failed', 'claim_lost', 'catch_up', 'unclaimed',
                                                      'clock_behind', 'outcome_missing',
                                                      'time_zone_changed')),
    -- Null for mail.
    url              TEXT,
    destination_hash INTEGER,
    body             TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    -- The time of the next attempt. Null if the notification is ready to be sent.
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    -- The channel that sends it, also of a mail. One message of a channel is in the outbox at a time, beside tests.
    channel_key      INTEGER REFERENCES channels (key) ON DELETE CASCADE,
    CHECK ((kind = 'mail') = (url IS NULL)),
    CHECK ((url IS NULL) = (destination_hash IS NULL)),
    CHECK (kind <> 'channel' OR channel_key IS NOT NULL)
) STRICT;

CREATE INDEX outbox_waiting ON outbox (due_at) WHERE due_at IS NOT NULL;
-- The threads of ready POSTs are shared fairly among users, and among the destinations of a user.
CREATE INDEX outbox_posts ON outbox (user_key, destination_hash, key)
    WHERE due_at IS NULL AND destination_hash IS NOT NULL;
CREATE INDEX outbox_mails ON outbox (key) WHERE due_at IS NULL AND destination_hash IS NULL;
CREATE INDEX outbox_by_user ON outbox (user_key, kind);
CREATE INDEX outbox_by_channel ON outbox (channel_key) WHERE channel_key IS NOT NULL;

-- The number of notifications dropped because too many of the same kind were waiting for the user. The row is deleted
-- when there is room again.
CREATE TABLE outbox_overflow (
    user_key INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind     TEXT    NOT NULL,
    dropped  INTEGER NOT NULL,
    PRIMARY KEY (user_key, kind)
) STRICT, WITHOUT ROWID;
