//! Users, their plans and their webhook secrets. `api_keys` holds their API keys, `usage` their monthly usage.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::account::user::User;
use crate::domain::billing::offer::Interval;
use crate::domain::cue::CueStatus;
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

row!(columns, "", User {
    key,
    id,
    email,
    plan,
    plan_interval,
    alert_webhook_url,
    active_cues,
    cue_count = "active_cues + paused_cues + completed_cues + failed_cues",
    stored_bytes,
    disabled_at,
    created_at,
    confirmed_at,
});

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", columns!(), " FROM users ", $rest)
    };
}

const UNCONFIRMED_BYTES: &str = "SELECT coalesce(sum(stored_bytes), 0)
    FROM users INDEXED BY users_unconfirmed WHERE confirmed_at IS NULL";

// A disabled account keeps its address from being registered again, and one that pays is no stranger's. An attempt under
// way is recorded for its user.
const REMOVABLE: &str =
    "SELECT key, created_at, confirmed_at IS NULL AND disabled_at IS NULL AND plan_interval IS NULL
        AND NOT EXISTS (SELECT 1 FROM cues WHERE user_key = users.key AND last_run > ?2)
        AND NOT EXISTS (SELECT 1 FROM executions WHERE user_key = users.key AND status = 'delivering')
   FROM users WHERE key > ?1 ORDER BY key LIMIT ?3 + 0";

#[derive(Debug, Clone)]
pub struct NewUser {
    pub id: String,
    pub email: String,
    pub plan: String,
    pub webhook_secret: String,
    pub alert_webhook_secret: String,
    pub created_at: Timestamp,
    /// The secret of the link that confirms the address; `None` if the address is confirmed.
    pub confirmation_token: Option<String>,
}

/// Inserts a user and returns its row key, or `None` if the address is taken.
pub fn insert(tx: &WriteTx<'_>, new: &NewUser) -> Result<Option<i64>> {
    let is_inserted = tx.changes(
            "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at,
                                confirmed_at, confirmation_token)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, iif(?7 IS NULL, ?6, NULL), ?7) ON CONFLICT (email) DO NOTHING",
        params![
            new.id,
            new.email,
            new.plan,
            new.webhook_secret,
            new.alert_webhook_secret,
            millis(new.created_at),
            new.confirmation_token,
        ],
    )?;
    Ok(is_inserted.then(|| tx.last_insert_rowid()))
}

pub fn find(read: &ReadTx<'_>, user_key: i64) -> Result<Option<User>> {
    read.find(select!("WHERE key = ?1"), [user_key])
}

pub fn find_by_email(read: &ReadTx<'_>, email: &str) -> Result<Option<User>> {
    read.find(select!("WHERE email = ?1"), [email])
}

pub fn find_by_id(read: &ReadTx<'_>, id: &str) -> Result<Option<User>> {
    read.find(select!("WHERE id = ?1"), [id])
}

pub fn list(read: &ReadTx<'_>) -> Result<Vec<User>> {
    read.all(select!("ORDER BY key"), [])
}

pub fn first_enabled(read: &ReadTx<'_>) -> Result<Option<User>> {
    read.find(select!("WHERE disabled_at IS NULL ORDER BY key LIMIT 1"), [])
}

pub fn any_exist(read: &ReadTx<'_>) -> Result<bool> {
    read.any("SELECT 1 FROM users", [])
}

/// Sets the user's plan and clears its payment interval. Returns `false` if the user already has the plan.
pub fn set_plan(tx: &WriteTx<'_>, user_key: i64, plan: &str) -> Result<bool> {
    let sql = "UPDATE users SET plan = ?2, plan_interval = NULL WHERE key = ?1 AND plan <> ?2";
    tx.changes(sql, params![user_key, plan])
}

row! { count_columns, "",
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CueCounts {
    pub active: i64 = "active_cues",
    pub paused: i64 = "paused_cues",
    pub completed: i64 = "completed_cues",
    pub failed: i64 = "failed_cues",
    /// In all states.
    pub all: i64 = "active_cues + paused_cues + completed_cues + failed_cues",
} }

impl CueCounts {
    /// The number of the user's cues with `status`; of all without one.
    pub fn of(&self, status: Option<CueStatus>) -> i64 {
        match status {
            None => self.all,
            Some(CueStatus::Active) => self.active,
            Some(CueStatus::Paused) => self.paused,
            Some(CueStatus::Completed) => self.completed,
            Some(CueStatus::Failed) => self.failed,
        }
    }
}

/// The numbers of the user's cues, without changes of a write that has not ended.
pub fn stored_cue_counts(read: &ReadTx<'_>, user_key: i64) -> Result<CueCounts> {
    read.one(concat!("SELECT ", count_columns!(), " FROM users WHERE key = ?1"), [user_key])
}

/// The numbers of the user's cues, including changes of this transaction; `None` if the user is disabled.
pub fn cue_counts(tx: &WriteTx<'_>, user_key: i64) -> Result<Option<CueCounts>> {
    tx.counters().flush(tx)?;
    let sql = concat!("SELECT ", count_columns!(), " FROM users WHERE key = ?1 AND disabled_at IS NULL");
    tx.find(sql, [user_key])
}

pub fn list_with_active_cues(read: &ReadTx<'_>, after: i64, limit: u32) -> Result<Vec<i64>> {
    let sql = "SELECT key FROM users WHERE key > ?1 AND active_cues > 0 AND disabled_at IS NULL
                ORDER BY key LIMIT ?2 + 0";
    read.all(sql, params![after, limit])
}

/// The bytes that the user has stored, the user's plan, and whether the address is confirmed.
pub fn stored_bytes(read: &ReadTx<'_>, user_key: i64) -> Result<(i64, String, bool)> {
    read.one("SELECT stored_bytes, plan, confirmed_at IS NOT NULL FROM users WHERE key = ?1", [user_key])
}

pub fn unconfirmed_bytes(read: &ReadTx<'_>) -> Result<i64> {
    read.one(UNCONFIRMED_BYTES, [])
}

/// The users after row `after` in the order of their rows: the key, the creation, and whether the account may be removed,
/// because its address is unconfirmed and no cue of it ran after `idle_since`. At most `limit`.
pub fn list_removable(
    read: &ReadTx<'_>,
    after: i64,
    idle_since: Timestamp,
    limit: i64,
) -> Result<Vec<(i64, Timestamp, bool)>> {
    read.all(REMOVABLE, params![after, millis(idle_since), limit])
}

/// Deletes the user with all rows that refer to it, but not its executions. Its cues must be deleted before.
pub fn delete(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    // What was counted for the user refers to it as well.
    tx.counters().flush(tx)?;
    tx.run("DELETE FROM users WHERE key = ?1", [user_key])
}

/// The token of the link that confirms the user's address, if the address is unconfirmed.
pub fn confirmation_token(read: &ReadTx<'_>, user_key: i64) -> Result<Option<String>> {
    let sql = "SELECT confirmation_token FROM users WHERE key = ?1 AND confirmed_at IS NULL";
    Ok(read.find(sql, [user_key])?.flatten())
}

/// Marks that the user is asked to confirm the address. Returns `false` if that was done before.
pub fn mark_confirmation_requested(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<bool> {
    let sql = "UPDATE users SET confirmation_requested_at = ?2
                WHERE key = ?1 AND confirmation_requested_at IS NULL";
    tx.changes(sql, params![user_key, millis(now)])
}

/// Confirms the user's address, unless it is confirmed. Its link is used up.
pub fn confirm(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<()> {
    let sql = "UPDATE users SET confirmed_at = ?2, confirmation_token = NULL
                WHERE key = ?1 AND confirmed_at IS NULL";
    tx.run(sql, params![user_key, millis(now)])
}

/// Sets the interval at which a subscription pays for the user's plan; `None` if no subscription pays.
pub fn set_plan_interval(tx: &WriteTx<'_>, user_key: i64, interval: Option<Interval>) -> Result<()> {
    let sql = "UPDATE users SET plan_interval = ?2 WHERE key = ?1";
    tx.run(sql, params![user_key, interval.map(Interval::as_str)])
}

pub fn disable(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<()> {
    tx.run("UPDATE users SET disabled_at = ?2 WHERE key = ?1", params![user_key, millis(now)])
}

/// Enables a disabled user. Its API keys are accepted again; nothing else changes. Returns whether it was disabled.
pub fn enable(tx: &WriteTx<'_>, user_key: i64) -> Result<bool> {
    let sql = "UPDATE users SET disabled_at = NULL WHERE key = ?1 AND disabled_at IS NOT NULL";
    tx.changes(sql, [user_key])
}

pub fn webhook_secret(read: &ReadTx<'_>, user_key: i64) -> Result<String> {
    read.one("SELECT webhook_secret FROM users WHERE key = ?1", [user_key])
}

/// Replaces the user's webhook secret. Until `previous_expires` webhooks are signed with both secrets.
pub fn rotate_secret(
    tx: &WriteTx<'_>,
    user_key: i64,
    secret: &str,
    previous_expires: Timestamp,
) -> Result<()> {
    let sql = "UPDATE users SET previous_webhook_secret = webhook_secret,
                      previous_webhook_secret_expires_at = ?3, webhook_secret = ?2 WHERE key = ?1";
    tx.run(sql, params![user_key, secret, millis(previous_expires)])
}

pub fn alert_webhook_secret(read: &ReadTx<'_>, user_key: i64) -> Result<String> {
    read.one("SELECT alert_webhook_secret FROM users WHERE key = ?1", [user_key])
}

/// Replaces the user's alert secret. The previous one is no longer used.
pub fn set_alert_webhook_secret(tx: &WriteTx<'_>, user_key: i64, secret: &str) -> Result<()> {
    tx.run("UPDATE users SET alert_webhook_secret = ?2 WHERE key = ?1", params![user_key, secret])
}

/// Replaces both secrets, without an overlap, and removes the URL of the user's alerts: a stranger knows them.
pub fn replace_secrets(
    tx: &WriteTx<'_>,
    user_key: i64,
    webhook_secret: &str,
    alert_webhook_secret: &str,
) -> Result<()> {
    let sql = "UPDATE users SET webhook_secret = ?2, previous_webhook_secret = NULL,
                      previous_webhook_secret_expires_at = NULL, alert_webhook_secret = ?3, alert_webhook_url = NULL
                WHERE key = ?1";
    tx.run(sql, params![user_key, webhook_secret, alert_webhook_secret])
}

/// Sets the URL that receives the user's alerts; `None` turns them off.
pub fn set_alert_webhook_url(tx: &WriteTx<'_>, user_key: i64, url: Option<&str>) -> Result<()> {
    tx.run("UPDATE users SET alert_webhook_url = ?2 WHERE key = ?1", params![user_key, url])
}

#[cfg(test)]
crate::store::test_support::plan_test! { unconfirmed_users_are_summed_and_found_by_index:
    UNCONFIRMED_BYTES => "SEARCH users USING INDEX users_unconfirmed (confirmed_at=?)",
    REMOVABLE => "SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
    REMOVABLE => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=?)",
    REMOVABLE => "SEARCH executions USING INDEX executions_in_flight (user_key=?)",
}
