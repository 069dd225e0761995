-- Version 4 to 5: sessions of browsers, one-time links that begin one, bounds on accounts with unconfirmed addresses.

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
