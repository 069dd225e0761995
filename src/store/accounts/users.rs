//! Users, their plans and their webhook secrets. `api_keys` holds their API keys, `usage` their monthly usage.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::user::User;
use crate::domain::billing::offer::Interval;
use crate::error::Result;
use crate::store::db::columns::{instant, maybe_instant, millis};
use crate::store::{ReadTx, WriteTx};

const COLUMNS: &str =
    "key, id, email, plan, plan_interval, alert_webhook_url, active_cues, disabled_at, created_at";

#[derive(Debug, Clone)]
pub struct NewUser {
    pub id: String,
    pub email: String,
    pub plan: String,
    pub webhook_secret: String,
    pub alert_webhook_secret: String,
    pub created_at: Timestamp,
}

/// Inserts a user and returns its row key, or `None` if the address is taken.
pub fn insert(tx: &WriteTx<'_>, new: &NewUser) -> Result<Option<i64>> {
    let inserted = tx
        .prepare_cached(
            "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6) ON CONFLICT (email) DO NOTHING",
        )?
        .execute(params![
            new.id,
            new.email,
            new.plan,
            new.webhook_secret,
            new.alert_webhook_secret,
            millis(new.created_at),
        ])?;
    Ok((inserted > 0).then(|| tx.last_insert_rowid()))
}

/// The user in row `user_key`.
pub fn find(read: &ReadTx<'_>, user_key: i64) -> Result<Option<User>> {
    let sql = format!("SELECT {COLUMNS} FROM users WHERE key = ?1");
    Ok(read.prepare_cached(&sql)?.query_row([user_key], read_user).optional()?)
}

/// The user with this email address.
pub fn find_by_email(read: &ReadTx<'_>, email: &str) -> Result<Option<User>> {
    let sql = format!("SELECT {COLUMNS} FROM users WHERE email = ?1");
    Ok(read.prepare_cached(&sql)?.query_row([email], read_user).optional()?)
}

/// The user with this id.
pub fn find_by_id(read: &ReadTx<'_>, id: &str) -> Result<Option<User>> {
    let sql = format!("SELECT {COLUMNS} FROM users WHERE id = ?1");
    Ok(read.prepare_cached(&sql)?.query_row([id], read_user).optional()?)
}

/// All users, in order of registration.
pub fn list(read: &ReadTx<'_>) -> Result<Vec<User>> {
    let sql = format!("SELECT {COLUMNS} FROM users ORDER BY key");
    Ok(read.prepare_cached(&sql)?.query_map([], read_user)?.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Returns whether any user exists.
pub fn any_exist(read: &ReadTx<'_>) -> Result<bool> {
    Ok(read.prepare_cached("SELECT EXISTS (SELECT 1 FROM users)")?.query_row([], |row| row.get(0))?)
}

/// Sets the user's plan and clears its payment interval. Returns `false` if the user already has the plan.
pub fn set_plan(tx: &WriteTx<'_>, user_key: i64, plan: &str) -> Result<bool> {
    let changed = tx
        .prepare_cached("UPDATE users SET plan = ?2, plan_interval = NULL WHERE key = ?1 AND plan <> ?2")?
        .execute(params![user_key, plan])?;
    Ok(changed > 0)
}

/// The number of the user's active cues, including changes of this transaction; `None` if the user is disabled.
pub fn active_cues(tx: &WriteTx<'_>, user_key: i64) -> Result<Option<i64>> {
    tx.counters().flush(tx)?;
    Ok(tx
        .prepare_cached("SELECT active_cues FROM users WHERE key = ?1 AND disabled_at IS NULL")?
        .query_row([user_key], |row| row.get(0))
        .optional()?)
}

/// Sets the interval at which a subscription pays for the user's plan; `None` if no subscription pays.
pub fn set_plan_interval(tx: &WriteTx<'_>, user_key: i64, interval: Option<Interval>) -> Result<()> {
    tx.prepare_cached("UPDATE users SET plan_interval = ?2 WHERE key = ?1")?
        .execute(params![user_key, interval.map(Interval::as_str)])?;
    Ok(())
}

/// Disables a user. Its API keys are rejected from then on.
pub fn disable(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<()> {
    tx.prepare_cached("UPDATE users SET disabled_at = ?2 WHERE key = ?1")?
        .execute(params![user_key, millis(now)])?;
    Ok(())
}

/// The secret that signs the user's webhooks.
pub fn webhook_secret(read: &ReadTx<'_>, user_key: i64) -> Result<String> {
    Ok(read
        .prepare_cached("SELECT webhook_secret FROM users WHERE key = ?1")?
        .query_row([user_key], |row| row.get(0))?)
}

/// Replaces the user's webhook secret. Until `previous_expires` webhooks are signed with both secrets.
pub fn rotate_secret(
    tx: &WriteTx<'_>,
    user_key: i64,
    secret: &str,
    previous_expires: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "UPDATE users SET previous_webhook_secret = webhook_secret, previous_webhook_secret_expires_at = ?3,
                webhook_secret = ?2
          WHERE key = ?1",
    )?
    .execute(params![user_key, secret, millis(previous_expires)])?;
    Ok(())
}

/// The secret that signs the user's alerts.
pub fn alert_webhook_secret(read: &ReadTx<'_>, user_key: i64) -> Result<String> {
    Ok(read
        .prepare_cached("SELECT alert_webhook_secret FROM users WHERE key = ?1")?
        .query_row([user_key], |row| row.get(0))?)
}

/// Replaces the user's alert secret. The previous one is no longer used.
pub fn set_alert_webhook_secret(tx: &WriteTx<'_>, user_key: i64, secret: &str) -> Result<()> {
    tx.prepare_cached("UPDATE users SET alert_webhook_secret = ?2 WHERE key = ?1")?
        .execute(params![user_key, secret])?;
    Ok(())
}

/// Sets the URL that receives the user's alerts; `None` turns them off.
pub fn set_alert_webhook_url(tx: &WriteTx<'_>, user_key: i64, url: Option<&str>) -> Result<()> {
    tx.prepare_cached("UPDATE users SET alert_webhook_url = ?2 WHERE key = ?1")?
        .execute(params![user_key, url])?;
    Ok(())
}

fn read_user(row: &Row<'_>) -> rusqlite::Result<User> {
    Ok(User {
        key: row.get("key")?,
        id: row.get("id")?,
        email: row.get("email")?,
        plan: row.get("plan")?,
        plan_interval: row.get("plan_interval")?,
        alert_webhook_url: row.get("alert_webhook_url")?,
        active_cues: row.get("active_cues")?,
        disabled_at: maybe_instant(row, "disabled_at")?,
        created_at: instant(row, "created_at")?,
    })
}
