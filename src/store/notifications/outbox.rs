//! The outbox: notifications to be sent. A notification is inserted in the transaction of the event that it reports,
//! and the engine's `notifications` send it. It stays ready in the database while it is being sent, so that it is sent
//! again after a crash.

use std::collections::{HashSet, VecDeque};

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::NextStep;
use crate::domain::notification::NotificationKind;
use crate::domain::webhook::callback_url::destination_hash;
use crate::error::Result;
use crate::store::db::columns::{millis, row, row_count};
use crate::store::fair_queue::{AccountRows, FairQueue, Grant, ReadyRow, Rotation};
use crate::store::{ReadTx, WakeSet, WriteTx, fair_queue};

#[derive(Debug, Clone)]
pub struct NewNotification {
    /// The id, computed by `domain::notification`.
    pub id: String,
    pub user_key: i64,
    pub kind: NotificationKind,
    /// The URL to POST to; `None` for a mail.
    pub url: Option<String>,
    pub body: String,
}

row! { columns, "",
/// A notification that is ready to be sent. It contains secrets and must not be logged.
#[derive(Clone)]
pub struct Notification {
    pub key: i64 = "outbox.key",
    pub user_key: i64,
    pub id: String = "outbox.id",
    pub kind: NotificationKind,
    /// `None` for a mail.
    pub url: Option<String>,
    /// Fairness key of the host and port; `None` for a mail.
    pub destination: Option<i64> = "destination_hash",
    pub body: String,
    /// The number of attempts that have ended.
    pub attempts: u32,
    pub created_at: Timestamp = "outbox.created_at",
    pub user_id: String = "users.id",
    pub email: String,
    pub is_confirmed: bool = "confirmed_at IS NOT NULL",
    pub disabled_at: Option<Timestamp>,
    pub webhook_secret: String,
    pub previous_webhook_secret: Option<String>,
    pub previous_webhook_secret_expires_at: Option<Timestamp>,
    pub alert_webhook_secret: String,
} }

const INSERT: &str =
    "INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, created_at, due_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8)";
const POSTPONE_UNSENT: &str = "UPDATE outbox SET body = ?4, due_at = ?5
  WHERE user_key = ?1 AND kind = ?2 AND id = ?3 AND due_at IS NOT NULL AND attempts = 0";
const RELEASE_UNSENT: &str = "UPDATE outbox SET due_at = NULL
  WHERE user_key = ?1 AND kind = ?2 AND id = ?3 AND due_at IS NOT NULL AND attempts = 0";
// Stops counting at the limit.
const COUNT_WAITING: &str =
    "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE user_key = ?1 AND kind = ?2 LIMIT ?3 + 0)";
const INCREMENT_DROPPED: &str = "INSERT INTO outbox_overflow (user_key, kind, dropped) VALUES (?1, ?2, 1)
    ON CONFLICT DO UPDATE SET dropped = dropped + 1 RETURNING dropped";
const END_BACKLOG: &str = "DELETE FROM outbox_overflow WHERE user_key = ?1 AND kind = ?2 RETURNING dropped";
const USER_ID: &str = "SELECT id FROM users WHERE key = ?1";
const NEXT_DUE: &str = "SELECT due_at FROM outbox WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";
const PROMOTE: &str = "UPDATE outbox SET due_at = NULL
    WHERE key IN (SELECT key FROM outbox WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at LIMIT ?2 + 0)";
const HAS_READY: &str =
    "SELECT EXISTS (SELECT 1 FROM outbox WHERE due_at IS NULL AND destination_hash IS NULL)
    OR EXISTS (SELECT 1 FROM outbox WHERE due_at IS NULL AND destination_hash IS NOT NULL)";
const NEXT_USER: &str = "SELECT user_key FROM outbox
    WHERE due_at IS NULL AND destination_hash IS NOT NULL AND user_key >= ?1 ORDER BY user_key LIMIT 1";
const NEXT_DESTINATION: &str = "SELECT destination_hash FROM outbox
    WHERE due_at IS NULL AND user_key = ?1 AND destination_hash >= ?2 ORDER BY destination_hash LIMIT 1";
const READY_POSTS: &str = "SELECT key FROM outbox
    WHERE due_at IS NULL AND user_key = ?1 AND destination_hash = ?2 AND key > ?3 ORDER BY key LIMIT ?4 + 0";
const READY_MAILS: &str =
    "SELECT key FROM outbox WHERE due_at IS NULL AND destination_hash IS NULL ORDER BY key LIMIT ?1 + 0";
const FIND: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM outbox JOIN users ON users.key = outbox.user_key WHERE outbox.key = ?1"
);
const DELETE: &str = "DELETE FROM outbox WHERE key = ?1";
const DELETE_POSTS: &str = "DELETE FROM outbox WHERE user_key = ?1 AND kind <> 'mail'";
const POSTPONE: &str = "UPDATE outbox SET due_at = ?2, attempts = attempts + 1 WHERE key = ?1";

/// Inserts a notification, to be sent at `due_at`, or at once.
pub fn insert(
    tx: &WriteTx<'_>,
    new: &NewNotification,
    now: Timestamp,
    due_at: Option<Timestamp>,
) -> Result<()> {
    tx.run(
        INSERT,
        params![
            new.id,
            new.user_key,
            new.kind.as_str(),
            new.url,
            new.url.as_deref().map(destination_hash),
            new.body,
            millis(now),
            due_at.map(millis),
        ],
    )?;
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

/// Replaces the body of a notification that was never sent, and its time to send.
pub fn postpone_unsent(
    tx: &WriteTx<'_>,
    user_key: i64,
    (kind, id): (NotificationKind, &str),
    body: &str,
    due_at: Timestamp,
) -> Result<()> {
    tx.run(POSTPONE_UNSENT, params![user_key, kind.as_str(), id, body, millis(due_at)])
}

/// Makes a notification ready that was never sent and is due later.
pub fn release_unsent(tx: &WriteTx<'_>, user_key: i64, (kind, id): (NotificationKind, &str)) -> Result<()> {
    tx.run(RELEASE_UNSENT, params![user_key, kind.as_str(), id])?;
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

/// The earliest time at which a notification is due for another attempt.
pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_DUE, [])
}

pub fn promote_due(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.run(PROMOTE, params![millis(now), limit])
}

pub fn has_ready(read: &ReadTx<'_>) -> Result<bool> {
    read.one(HAS_READY, [])
}

/// The oldest ready mails that are not in `skipped`, at most `limit`.
pub fn ready_mails(read: &ReadTx<'_>, skipped: &HashSet<i64>, limit: usize) -> Result<Vec<i64>> {
    let keys: Vec<i64> = read.all(READY_MAILS, [row_count(skipped.len() + limit)])?;
    Ok(keys.into_iter().filter(|key| !skipped.contains(key)).take(limit).collect())
}

/// Ready POSTs that are not in `skipped`, in the order of [`fair_queue::take`]. `try_acquire` gets the user and the
/// destination.
pub fn ready_posts(
    read: &ReadTx<'_>,
    skipped: &HashSet<i64>,
    rotation: &mut Rotation,
    mut try_acquire: impl FnMut(i64, i64) -> Grant,
) -> Result<Vec<ReadyRow>> {
    fair_queue::take(&PostQueue { read, skipped }, rotation, |user, destination| {
        Ok(try_acquire(user, destination))
    })
}

/// The notification in row `key`. Errors: there is no notification in this row, or its columns are invalid.
pub fn find(read: &ReadTx<'_>, key: i64) -> Result<Notification> {
    read.one(FIND, [key])
}

/// Records the result of an attempt to send the notification in row `key`: schedules the next attempt, or deletes the
/// notification after the last one.
pub fn record_result(tx: &WriteTx<'_>, key: i64, next: NextStep) -> Result<()> {
    match next {
        NextStep::Success | NextStep::Failed => tx.run(DELETE, [key])?,
        NextStep::RetryAt(due_at) => tx.run(POSTPONE, params![key, millis(due_at)])?,
    };
    Ok(())
}

/// Deletes the user's POSTs. One that is being sent ends, and is not repeated.
pub fn delete_posts(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.run(DELETE_POSTS, [user_key])
}

/// The number of the user's POSTs of this kind in the outbox. Stops counting at `limit`.
pub fn count_waiting(read: &ReadTx<'_>, user_key: i64, kind: NotificationKind, limit: u32) -> Result<u32> {
    read.one(COUNT_WAITING, params![user_key, kind.as_str(), limit])
}

/// Counts a dropped POST of this kind. Returns their number since the backlog began.
pub fn increment_dropped(tx: &WriteTx<'_>, user_key: i64, kind: NotificationKind) -> Result<u32> {
    tx.one(INCREMENT_DROPPED, params![user_key, kind.as_str()])
}

/// Ends the user's backlog of this kind. Returns the number of dropped POSTs, or `None` if there was no backlog.
pub fn end_backlog(tx: &WriteTx<'_>, user_key: i64, kind: NotificationKind) -> Result<Option<u32>> {
    tx.find(END_BACKLOG, params![user_key, kind.as_str()])
}

pub fn user_id(read: &ReadTx<'_>, user_key: i64) -> Result<String> {
    read.one(USER_ID, [user_key])
}

/// The POSTs that are ready to be sent. Those being sent are still in the table, and `skipped`.
struct PostQueue<'a, 'b> {
    read: &'a ReadTx<'b>,
    skipped: &'a HashSet<i64>,
}

impl FairQueue for PostQueue<'_, '_> {
    const PRIORITIES: u8 = 1;

    fn next_user(&self, from: i64) -> Result<Option<i64>> {
        self.read.find(NEXT_USER, [from])
    }

    fn next_destination(&self, rows: AccountRows, from: i64) -> Result<Option<i64>> {
        self.read.find(NEXT_DESTINATION, params![rows.user_key, from])
    }

    fn ready(&self, rows: AccountRows, destination: i64, after: i64, limit: usize) -> Result<VecDeque<i64>> {
        let most = row_count(self.skipped.len() + limit);
        let keys: Vec<i64> = self.read.all(READY_POSTS, params![rows.user_key, destination, after, most])?;
        Ok(keys.into_iter().filter(|key| !self.skipped.contains(key)).take(limit).collect())
    }
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_query_uses_its_index_and_none_sorts:
    COUNT_WAITING => "outbox_by_user (user_key=? AND kind=?)",
    POSTPONE_UNSENT => "outbox_by_user (user_key=? AND kind=?)",
    RELEASE_UNSENT => "outbox_by_user (user_key=? AND kind=?)",
    END_BACKLOG => "SEARCH outbox_overflow USING PRIMARY KEY (user_key=? AND kind=?)",
    NEXT_DUE => "outbox_waiting (due_at>?)",
    PROMOTE => "outbox_waiting (due_at>? AND due_at<?)",
    HAS_READY => "SCAN outbox USING INDEX outbox_mails",
    NEXT_USER => "outbox_posts (user_key>?)",
    NEXT_DESTINATION => "outbox_posts (user_key=? AND destination_hash>?)",
    READY_POSTS => "outbox_posts (user_key=? AND destination_hash=? AND key>?)",
    READY_MAILS => "SCAN outbox USING INDEX outbox_mails",
    FIND => "SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)",
    DELETE => "SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)",
    DELETE_POSTS => "outbox_by_user (user_key=?)",
    POSTPONE => "SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)",
}
