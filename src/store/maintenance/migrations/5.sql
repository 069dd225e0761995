-- Version 4 to 5: sessions of browsers, one-time links that begin one, bounds on accounts with unconfirmed addresses; a clock
-- that is behind.

CREATE TABLE sessions (
    key         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    api_key_key INTEGER REFERENCES api_keys (key) ON DELETE CASCADE,
    token_hash  BLOB    NOT NULL UNIQUE,
    via         TEXT    NOT NULL CHECK (via IN ('key', 'mail', 'link', 'dev')),
    device      TEXT    NOT NULL,
    address     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_user ON sessions (user_key, key);
CREATE INDEX sessions_by_api_key ON sessions (api_key_key) WHERE api_key_key IS NOT NULL;
CREATE INDEX sessions_by_age ON sessions (expires_at);

CREATE TABLE session_links (
    key         INTEGER PRIMARY KEY,
    user_key    INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    api_key_key INTEGER REFERENCES api_keys (key) ON DELETE CASCADE,
    session_key INTEGER REFERENCES sessions (key) ON DELETE CASCADE,
    token_hash  BLOB    NOT NULL UNIQUE,
    expires_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX session_links_by_user ON session_links (user_key, key);
CREATE INDEX session_links_by_api_key ON session_links (api_key_key) WHERE api_key_key IS NOT NULL;
CREATE INDEX session_links_by_session ON session_links (session_key) WHERE session_key IS NOT NULL;
CREATE INDEX session_links_by_age ON session_links (expires_at);

ALTER TABLE device_logins ADD COLUMN is_for_session INTEGER NOT NULL DEFAULT 0;

INSERT INTO meta (name, value) VALUES ('instance', abs(random() % 4294967296));

CREATE INDEX users_unconfirmed ON users (confirmed_at, stored_bytes) WHERE confirmed_at IS NULL;

-- One more type of alert.
CREATE TABLE alerts_5 (
    key          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL,
    user_key     INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    cue_key      INTEGER REFERENCES cues (key) ON DELETE CASCADE,
    execution_id BLOB    CHECK (length(execution_id) = 16),
    alert_type   TEXT    NOT NULL CHECK (alert_type IN ('consecutive_failures', 'verification_failed', 'claim_lost',
                                                        'catch_up', 'unclaimed', 'clock_behind')),
    message      TEXT    NOT NULL,
    metadata     TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    CHECK ((alert_type IN ('catch_up', 'clock_behind')) = (cue_key IS NULL)),
    CHECK ((cue_key IS NULL) = (execution_id IS NULL))
) STRICT;
INSERT INTO alerts_5 SELECT * FROM alerts;
DROP TABLE alerts;
ALTER TABLE alerts_5 RENAME TO alerts;
CREATE INDEX alerts_by_user ON alerts (user_key, created_at);
CREATE INDEX alerts_by_cue ON alerts (cue_key, alert_type, created_at);

CREATE TABLE outbox_5 (
    key              INTEGER PRIMARY KEY,
    id               TEXT    NOT NULL,
    user_key         INTEGER NOT NULL REFERENCES users (key) ON DELETE CASCADE,
    kind             TEXT    NOT NULL CHECK (kind IN ('mail', 'failure', 'consecutive_failures', 'verification_failed',
                                                      'claim_lost', 'catch_up', 'unclaimed', 'clock_behind')),
    url              TEXT,
    destination_hash INTEGER,
    body             TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    due_at           INTEGER,
    created_at       INTEGER NOT NULL,
    CHECK ((kind = 'mail') = (url IS NULL)),
    CHECK ((url IS NULL) = (destination_hash IS NULL))
) STRICT;
INSERT INTO outbox_5 SELECT * FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_5 RENAME TO outbox;
CREATE INDEX outbox_waiting ON outbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX outbox_posts ON outbox (user_key, destination_hash, key)
    WHERE due_at IS NULL AND destination_hash IS NOT NULL;
CREATE INDEX outbox_mails ON outbox (key) WHERE due_at IS NULL AND destination_hash IS NULL;
CREATE INDEX outbox_by_user ON outbox (user_key, kind);

CREATE TABLE fired_ahead (
    cue_key INTEGER NOT NULL REFERENCES cues (key) ON DELETE CASCADE,
    at      INTEGER NOT NULL,
    PRIMARY KEY (cue_key, at)
) STRICT, WITHOUT ROWID;
