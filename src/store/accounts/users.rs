//! Users with their plans, secrets and quotas: executions by calendar month and stored bytes. Also the user that an API
//! key belongs to.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::domain::account::plan::{Plans, Quota, UNCONFIRMED_DISK_PART};
use crate::domain::account::user::{CONFIRM, User, month_of};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::Interval;
use crate::domain::cue::CueStatus;
use crate::domain::row_keys::UserKey;
use crate::domain::secret::Secret;
use crate::domain::webhook::signature::WebhookSecrets;
use crate::error::Result;
use crate::store::db::columns::{row, select, webhook_secret_columns};
use crate::store::db::open;
use crate::store::{ReadTx, Store, WriteTx};
use crate::system::locks::Mutex;

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
    is_operator,
});

const UNCONFIRMED_BYTES: &str = "SELECT coalesce(sum(stored_bytes), 0)
    FROM users INDEXED BY users_unconfirmed WHERE confirmed_at IS NULL";

// A disabled account keeps its address taken. An attempt under way is recorded for its user.
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
    pub webhook_secret: Secret,
    pub alert_webhook_secret: Secret,
    pub created_at: Timestamp,
    pub confirmation_token: Option<Secret>,
}

/// The first user of a file is its operator, and is in the file itself at once: without it, whoever comes first would be.
pub fn insert(tx: &WriteTx<'_>, new: &NewUser) -> Result<Option<UserKey>> {
    if !any_exist(tx)? {
        tx.checkpoint();
    }
    let NewUser {
        id,
        email,
        plan,
        webhook_secret,
        alert_webhook_secret,
        created_at,
        confirmation_token,
    } = new;
    let is_inserted = tx.changes(
            "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at,
                                confirmed_at, confirmation_token, is_operator)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, iif(?7 IS NULL, ?6, NULL), ?7, NOT EXISTS (SELECT 1 FROM users))
             ON CONFLICT (email) DO NOTHING",
        (id, email, plan, webhook_secret, alert_webhook_secret, created_at, confirmation_token),
    )?;
    Ok(is_inserted.then(|| UserKey::new(tx.last_insert_rowid())))
}

pub fn find(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<User>> {
    read.find(select!(columns, "FROM users WHERE key = ?1"), [user_key])
}

pub fn find_by_email(read: &ReadTx<'_>, email: &str) -> Result<Option<User>> {
    read.find(select!(columns, "FROM users WHERE email = ?1"), [email])
}

pub fn find_by_id(read: &ReadTx<'_>, id: &str) -> Result<Option<User>> {
    read.find(select!(columns, "FROM users WHERE id = ?1"), [id])
}

/// A page of the users whose address has `part`, oldest first, with their executions of this month; and the number of
/// all of them.
pub fn list_page(
    read: &ReadTx<'_>,
    part: &str,
    now: Timestamp,
    limit: u32,
    offset: u64,
) -> Result<(Vec<(User, i64)>, i64)> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", coalesce(executions, 0) FROM users
           LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
          WHERE instr(email, ?1) > 0 ORDER BY key LIMIT ?3 + 0 OFFSET ?4 + 0"
    );
    let page = read.all(sql, (part, month_of(now), limit, offset))?;
    let total = read.one("SELECT count(*) FROM users WHERE instr(email, ?1) > 0", [part])?;
    Ok((page, total))
}

pub fn list(read: &ReadTx<'_>) -> Result<Vec<User>> {
    read.all(select!(columns, "FROM users ORDER BY key"), ())
}

pub fn first_enabled(read: &ReadTx<'_>) -> Result<Option<User>> {
    read.find(select!(columns, "FROM users WHERE disabled_at IS NULL ORDER BY key LIMIT 1"), ())
}

/// The addresses of the first enabled users.
pub fn first_emails(read: &ReadTx<'_>, limit: u32) -> Result<Vec<String>> {
    read.all("SELECT email FROM users WHERE disabled_at IS NULL ORDER BY key LIMIT ?1", [limit])
}

pub fn any_exist(read: &ReadTx<'_>) -> Result<bool> {
    read.any("SELECT 1 FROM users", ())
}

pub fn set_plan(tx: &WriteTx<'_>, user_key: UserKey, plan: &str) -> Result<bool> {
    let sql = "UPDATE users SET plan = ?2, plan_interval = NULL WHERE key = ?1 AND plan <> ?2";
    tx.changes(sql, (user_key, plan))
}

row! { count_columns, "",
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CueCounts {
    pub active: i64 = "active_cues",
    pub paused: i64 = "paused_cues",
    pub completed: i64 = "completed_cues",
    pub failed: i64 = "failed_cues",
    #[serde(skip)]
    pub all: i64 = "active_cues + paused_cues + completed_cues + failed_cues",
} }

impl CueCounts {
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
pub fn stored_cue_counts(read: &ReadTx<'_>, user_key: UserKey) -> Result<CueCounts> {
    read.one(select!(count_columns, "FROM users WHERE key = ?1"), [user_key])
}

pub fn cue_counts(tx: &WriteTx<'_>, user_key: UserKey) -> Result<Option<CueCounts>> {
    tx.counters().flush(tx)?;
    let sql = select!(count_columns, "FROM users WHERE key = ?1 AND disabled_at IS NULL");
    tx.find(sql, [user_key])
}

pub fn list_with_active_cues(
    read: &ReadTx<'_>,
    after: UserKey,
    limit: u32,
) -> Result<Vec<UserKey>> {
    let sql = "SELECT key FROM users WHERE key > ?1 AND active_cues > 0 AND disabled_at IS NULL
                ORDER BY key LIMIT ?2 + 0";
    read.all(sql, (after, limit))
}

/// And whether the account may be removed: its address is unconfirmed, and no cue of it ran after `idle_since`.
pub fn list_removable(
    read: &ReadTx<'_>,
    after: UserKey,
    idle_since: Timestamp,
    limit: i64,
) -> Result<Vec<(UserKey, Timestamp, bool)>> {
    read.all(REMOVABLE, (after, idle_since, limit))
}

/// Deletes the user with all rows that refer to it, but not its executions. Its cues must be deleted before.
pub fn delete(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    // What was counted for the user refers to it as well.
    tx.counters().flush(tx)?;
    tx.run("DELETE FROM users WHERE key = ?1", [user_key])
}

pub fn confirmation_token(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<Secret>> {
    let sql = "SELECT confirmation_token FROM users WHERE key = ?1 AND confirmed_at IS NULL";
    Ok(read.find(sql, [user_key])?.flatten())
}

/// Marks that the user is asked to confirm the address. Returns `false` if that was done before.
pub fn mark_confirmation_requested(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    now: Timestamp,
) -> Result<bool> {
    let sql = "UPDATE users SET confirmation_requested_at = ?2
                WHERE key = ?1 AND confirmation_requested_at IS NULL";
    tx.changes(sql, (user_key, now))
}

/// Confirms the user's address, unless it is confirmed. Its link is used up.
pub fn confirm(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    let sql = "UPDATE users SET confirmed_at = ?2, confirmation_token = NULL
                WHERE key = ?1 AND confirmed_at IS NULL";
    tx.run(sql, (user_key, now))
}

pub fn set_plan_interval(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    interval: Option<Interval>,
) -> Result<()> {
    let sql = "UPDATE users SET plan_interval = ?2 WHERE key = ?1";
    tx.run(sql, (user_key, interval))
}

pub fn disable(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    tx.run("UPDATE users SET disabled_at = ?2 WHERE key = ?1", (user_key, now))
}

pub fn enable(tx: &WriteTx<'_>, user_key: UserKey) -> Result<bool> {
    let sql = "UPDATE users SET disabled_at = NULL WHERE key = ?1 AND disabled_at IS NOT NULL";
    tx.changes(sql, [user_key])
}

pub fn is_disabled(read: &ReadTx<'_>, user_key: UserKey) -> Result<bool> {
    read.any("SELECT 1 FROM users WHERE key = ?1 AND disabled_at IS NOT NULL", [user_key])
}

pub fn set_operator(tx: &WriteTx<'_>, user_key: UserKey, is_operator: bool) -> Result<bool> {
    let sql = "UPDATE users SET is_operator = ?2 WHERE key = ?1 AND is_operator <> ?2";
    tx.changes(sql, (user_key, is_operator))
}

pub fn has_enabled_operator(read: &ReadTx<'_>) -> Result<bool> {
    read.any("SELECT 1 FROM users WHERE is_operator AND disabled_at IS NULL", ())
}

pub fn webhook_secret(read: &ReadTx<'_>, user_key: UserKey) -> Result<Secret> {
    read.one("SELECT webhook_secret FROM users WHERE key = ?1", [user_key])
}

pub fn signing_secrets(read: &ReadTx<'_>, user_key: UserKey) -> Result<WebhookSecrets> {
    read.one(select!(webhook_secret_columns, "FROM users WHERE key = ?1"), [user_key])
}

pub fn rotate_secret(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    secret: &Secret,
    previous_expires: Timestamp,
) -> Result<()> {
    let sql = "UPDATE users SET previous_webhook_secret = webhook_secret,
                      previous_webhook_secret_expires_at = ?3, webhook_secret = ?2 WHERE key = ?1";
    tx.run(sql, (user_key, secret, previous_expires))
}

pub fn alert_webhook_secret(read: &ReadTx<'_>, user_key: UserKey) -> Result<Secret> {
    read.one("SELECT alert_webhook_secret FROM users WHERE key = ?1", [user_key])
}

pub fn set_alert_webhook_secret(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    secret: &Secret,
) -> Result<()> {
    tx.run("UPDATE users SET alert_webhook_secret = ?2 WHERE key = ?1", (user_key, secret))
}

/// Replaces both secrets, without an overlap, and removes the URL of the user's alerts: a stranger knows them.
pub fn replace_secrets(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    webhook_secret: &Secret,
    alert_webhook_secret: &Secret,
) -> Result<()> {
    let sql = "UPDATE users SET webhook_secret = ?2, previous_webhook_secret = NULL,
                      previous_webhook_secret_expires_at = NULL, alert_webhook_secret = ?3, alert_webhook_url = NULL
                WHERE key = ?1";
    tx.run(sql, (user_key, webhook_secret, alert_webhook_secret))
}

pub fn set_alert_webhook_url(tx: &WriteTx<'_>, user_key: UserKey, url: Option<&str>) -> Result<()> {
    tx.run("UPDATE users SET alert_webhook_url = ?2 WHERE key = ?1", (user_key, url))
}

row! { usage_columns, "",
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthlyUsage {
    pub executions: i64,
    pub outcomes_succeeded: i64,
    pub outcomes_failed: i64,
} }

const FIND_USAGE: &str =
    select!(usage_columns, "FROM monthly_usage WHERE user_key = ?1 AND month = ?2");

const QUOTA: &str = "SELECT plan, coalesce(executions, 0), over_quota_since
   FROM users LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE users.key = ?1 AND disabled_at IS NULL";

pub fn monthly_usage(read: &ReadTx<'_>, user_key: UserKey, now: Timestamp) -> Result<MonthlyUsage> {
    Ok(read.find(FIND_USAGE, (user_key, month_of(now)))?.unwrap_or_default())
}

pub fn quota(
    read: &ReadTx<'_>,
    plans: &Plans,
    user_key: UserKey,
    now: Timestamp,
) -> Result<Option<Quota>> {
    let found: Option<(String, i64, Option<Timestamp>)> =
        read.find(QUOTA, (user_key, month_of(now)))?;
    Ok(found.map(|(plan, used, over_quota_since)| Quota {
        limit: plans.limits(&plan).executions,
        used,
        over_quota_since,
    }))
}

pub fn save_quota(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    quota: &Quota,
    now: Timestamp,
) -> Result<()> {
    let sql = "INSERT INTO monthly_usage
                   (user_key, month, executions, over_quota_since, outcomes_succeeded, outcomes_failed)
               VALUES (?1, ?2, ?3, ?4, 0, 0)
               ON CONFLICT (user_key, month)
               DO UPDATE SET executions = excluded.executions, over_quota_since = excluded.over_quota_since";
    tx.run(sql, (user_key, month_of(now), quota.used, quota.over_quota_since))
}

pub fn stored_bytes(read: &ReadTx<'_>, user_key: UserKey) -> Result<(i64, String, bool)> {
    read.one(
        "SELECT stored_bytes, plan, confirmed_at IS NOT NULL FROM users WHERE key = ?1",
        [user_key],
    )
}

/// Runs `write`, after which the user may not store more than the plan allows (contract §11.6).
/// Errors: `storage_limit_exceeded`, which rolls the write back, and the errors of `write`.
pub fn check_storage_quota<T>(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: UserKey,
    write: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (before, ..) = stored_bytes(tx, user_key)?;
    let written = write()?;
    let refusal = storage_refusal(tx, plans, user_key, before, 0)?;
    refusal.map_or(Ok(written), |refusal| Err(refusal.into()))
}

/// The way to lift a limit of the user's plan. An operator buys nothing, and the only account of a server is that of its
/// operator.
pub fn limit_remedy(read: &ReadTx<'_>, user_key: UserKey) -> Result<&'static str> {
    let sql = "SELECT is_operator OR (SELECT count(*) = 1 FROM (SELECT 1 FROM users LIMIT 2))
                 FROM users WHERE key = ?1";
    let is_own_server: bool = read.one(sql, [user_key])?;
    Ok(if is_own_server { "start this server with --limits off" } else { "upgrade" })
}

/// The refusal of a write after which the user stores more than the bytes `before` it and more than the plan allows. Of
/// what is stored `freed` bytes do not count: they are deleted soon.
pub fn storage_refusal(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: UserKey,
    before: i64,
    freed: i64,
) -> Result<Option<Refusal>> {
    let (after, plan, is_confirmed) = stored_bytes(tx, user_key)?;
    let after = after - freed;
    let limit = plans.storage_bounds(&plan, is_confirmed).bytes;
    let refusal = |message| Ok(Some(Refusal::new(ErrorCode::StorageLimitExceeded, message)));
    if after <= before {
        return Ok(None);
    }
    let is_bounded = !is_confirmed && plans.bounds_unconfirmed();
    if let Some(limit) = limit.filter(|limit| after > *limit) {
        let (allows, remedy) = if is_bounded {
            ("an account with an unconfirmed address may store", CONFIRM)
        } else {
            ("the plan allows", limit_remedy(tx, user_key)?)
        };
        return refusal(format!(
            "The account would store {after} bytes of payloads, callback headers, results and kept responses; {allows} \
             {limit}: delete cues that are no longer needed, send less, or {remedy}"
        ));
    }
    if is_bounded && is_disk_share_used_up(tx)? {
        return refusal(format!(
            "The accounts with unconfirmed addresses store all that the disk has room for; {CONFIRM}"
        ));
    }
    Ok(None)
}

fn is_disk_share_used_up(tx: &WriteTx<'_>) -> Result<bool> {
    let Some(free) = tx.path().and_then(|path| open::free_bytes(Path::new(path))) else {
        return Ok(false);
    };
    let stored = u64::try_from(unconfirmed_bytes(tx)?).unwrap_or(0);
    Ok(stored > free / UNCONFIRMED_DISK_PART)
}

fn unconfirmed_bytes(read: &ReadTx<'_>) -> Result<i64> {
    read.one(UNCONFIRMED_BYTES, ())
}

pub fn record_outcome(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    success: bool,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "INSERT INTO monthly_usage (user_key, month, executions, outcomes_succeeded, outcomes_failed)
         VALUES (?1, ?2, 0, ?3, NOT ?3)
         ON CONFLICT (user_key, month)
         DO UPDATE SET outcomes_succeeded = outcomes_succeeded + excluded.outcomes_succeeded,
                       outcomes_failed = outcomes_failed + excluded.outcomes_failed",
        (user_key, month_of(now), success),
    )
}

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub key: i64,
    pub user_key: UserKey,
    pub user_id: String,
    pub plan: String,
    pub is_operator: bool,
    pub executions: i64,
} }

const FIND_OWNER: &str =
    "SELECT api_keys.key, users.key, users.id, plan, is_operator, coalesce(executions, 0)
   FROM api_keys JOIN users ON users.key = api_keys.user_key
        LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE key_hash = ?1 AND disabled_at IS NULL";

pub fn find_owner(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<Owner>> {
    read.find(FIND_OWNER, (hash, month_of(now)))
}

/// An owner that was read stays in memory for this long: reading it was an eighth of the time to get a cue. A commit of
/// this process ends it earlier, one of another process does not: an administration command takes longer from its commit
/// to its exit, so its change is in effect when it has ended.
const FRESH: Duration = Duration::from_millis(1);

const MAX_OWNERS: usize = 64;

#[derive(Debug, Default)]
pub struct KeyOwners(Mutex<HashMap<[u8; 32], ReadOwner>>);

#[derive(Debug)]
struct ReadOwner {
    owner: Owner,
    read_at: ReadAt,
}

/// The commits of this process and the clocks right before an owner is read.
#[derive(Debug, Clone, Copy)]
pub struct ReadAt {
    commits: u64,
    month: i64,
    monotonic: Duration,
}

impl KeyOwners {
    pub fn find(&self, hash: &[u8; 32], now: ReadAt) -> Option<Owner> {
        let owners = self.0.lock();
        owners.get(hash).filter(|known| known.read_at.holds(now)).map(|known| known.owner.clone())
    }

    pub fn keep(&self, hash: [u8; 32], owner: Owner, read_at: ReadAt) {
        let mut owners = self.0.lock();
        if owners.len() >= MAX_OWNERS {
            owners.clear();
        }
        owners.insert(hash, ReadOwner { owner, read_at });
    }
}

impl ReadAt {
    /// `now` selects the month of the usage, and `monotonic` is the time of the clock that always moves.
    pub fn new(store: &Store, now: Timestamp, monotonic: Duration) -> Self {
        Self { commits: store.commits(), month: month_of(now), monotonic }
    }

    fn holds(self, now: Self) -> bool {
        self.commits == now.commits
            && self.month == now.month
            && now.monotonic.checked_sub(self.monotonic).is_some_and(|age| age <= FRESH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan_test;

    fn at(commits: u64, month: i64, milliseconds: u64) -> ReadAt {
        ReadAt { commits, month, monotonic: Duration::from_millis(milliseconds) }
    }

    fn owner(user_key: UserKey) -> Owner {
        let (user_id, plan) = ("ann".to_owned(), "free".to_owned());
        Owner { key: 1, user_key, user_id, plan, is_operator: false, executions: 0 }
    }

    #[test]
    fn an_owner_is_read_again_after_a_commit_in_another_month_and_after_a_millisecond() {
        let owners = KeyOwners::default();
        owners.keep([1; 32], owner(UserKey::new(7)), at(5, 100, 10));
        for (now, is_known) in [
            (at(5, 100, 10), true),
            (at(5, 100, 11), true),
            (at(5, 100, 12), false),
            (at(5, 100, 9), false),
            (at(6, 100, 10), false),
            (at(5, 101, 10), false),
        ] {
            assert_eq!(owners.find(&[1; 32], now).is_some(), is_known, "{now:?}");
        }
        assert!(owners.find(&[2; 32], at(5, 100, 10)).is_none());
    }

    #[test]
    fn owners_in_memory_are_bounded() {
        let owners = KeyOwners::default();
        for key in 0..=u8::MAX {
            owners.keep([key; 32], owner(UserKey::new(i64::from(key))), at(0, 0, 0));
            assert!(owners.0.lock().len() <= MAX_OWNERS);
            assert_eq!(
                owners.find(&[key; 32], at(0, 0, 0)),
                Some(owner(UserKey::new(i64::from(key))))
            );
        }
    }

    plan_test! { every_statement_uses_its_index:
        UNCONFIRMED_BYTES => "SEARCH users USING INDEX users_unconfirmed (confirmed_at=?)",
        REMOVABLE => "SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
        REMOVABLE => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=?)",
        REMOVABLE => "SEARCH executions USING INDEX executions_in_flight (user_key=?)",
        FIND_USAGE => "SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?)",
        QUOTA => "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
        QUOTA => "SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?) LEFT-JOIN",
        FIND_OWNER => "SEARCH api_keys",
        FIND_OWNER => "SEARCH users",
    }
}
