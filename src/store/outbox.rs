//! Notifications to be sent, inserted in the transaction of the event. One stays ready in the database while it is
//! being sent, so that it is sent again after a crash. Also streaks and failure mails.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::domain::channel::{ChannelType, Quiet, Settings};
use crate::domain::execution::NextStep;
use crate::domain::notification::NotificationKind;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::secret::Secret;
use crate::domain::webhook::callback::destination_hash;
use crate::domain::webhook::signature::WebhookSecrets;
use crate::error::Result;
use crate::store::alerts::{AlertSubject, subject_columns};
use crate::store::db::columns::{row, select, webhook_secret_columns};
use crate::store::fair_queue::{self, FairQueue, Grant, ReadyRow, Rotation};
use crate::store::{ReadTx, WakeSet, WriteTx};

#[derive(Clone)]
pub struct NewNotification {
    pub id: String,
    pub user_key: UserKey,
    pub to: Recipient,
    pub body: String,
    /// At once without it.
    pub due_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub enum Recipient {
    /// The address of the account.
    Account,
    /// A URL that the account or a cue has for this kind.
    Url(NotificationKind, String),
    /// The channel in this row, with its URL; without one, it mails.
    Channel(i64, Option<String>),
}

impl Recipient {
    pub fn kind(&self) -> NotificationKind {
        match self {
            Self::Account | Self::Channel(_, None) => NotificationKind::Mail,
            Self::Url(kind, _) => *kind,
            Self::Channel(_, Some(_)) => NotificationKind::Channel,
        }
    }
}

/// The channel of a message, as it is when the message is sent.
#[derive(Debug, Clone)]
pub struct ChannelRef {
    pub key: i64,
    pub channel_type: ChannelType,
    pub settings: Settings,
    pub failures: u32,
    pub quiet: Option<Quiet>,
}

row!(channel_columns, "channels.", ChannelRef { key, channel_type = "channels.type", settings, failures, quiet });

row! { columns, "",
/// A notification that is ready to be sent.
#[derive(Debug, Clone)]
pub struct Notification {
    pub key: i64 = "outbox.key",
    pub user_key: UserKey = "outbox.user_key",
    pub id: String = "outbox.id",
    pub kind: NotificationKind,
    pub url: Option<Secret>,
    /// Fairness key of the host and port; `None` for a mail.
    pub destination: Option<i64> = "destination_hash",
    pub body: Secret,
    pub attempts: u32,
    pub created_at: Timestamp = "outbox.created_at",
    pub user_id: String = "users.id",
    pub email: String,
    pub is_confirmed: bool = "confirmed_at IS NOT NULL",
    pub disabled_at: Option<Timestamp>,
    pub secrets: WebhookSecrets = (webhook_secret_columns),
    pub alert_webhook_secret: Secret,
    pub channel: Option<ChannelRef> = (channel_columns),
} }

pub fn insert(tx: &WriteTx<'_>, new: &NewNotification, now: Timestamp) -> Result<()> {
    let NewNotification { id, user_key, to, body, due_at } = new;
    let (url, channel_key) = match to {
        Recipient::Account => (None, None),
        Recipient::Url(_, url) => (Some(url), None),
        Recipient::Channel(key, url) => (url.as_ref(), Some(*key)),
    };
    let destination = url.map(|url| destination_hash(url));
    tx.insert(
        "outbox",
        "id, user_key, kind, url, destination_hash, body, attempts, created_at, due_at, channel_key",
        (id, user_key, to.kind(), url, destination, body, 0_i64, now, due_at, channel_key),
    )?;
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

const POSTPONE_UNSENT: &str = "UPDATE outbox SET body = ?4, due_at = ?5
  WHERE user_key = ?1 AND kind = ?2 AND id = ?3 AND due_at IS NOT NULL AND attempts = 0";

pub fn postpone_unsent(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    kind: NotificationKind,
    id: &str,
    body: &str,
    due_at: Timestamp,
) -> Result<()> {
    tx.run(POSTPONE_UNSENT, (user_key, kind, id, body, due_at))
}

const RELEASE_UNSENT: &str = "UPDATE outbox SET due_at = NULL
  WHERE user_key = ?1 AND kind = ?2 AND id = ?3 AND due_at IS NOT NULL AND attempts = 0";

pub fn release_unsent(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    kind: NotificationKind,
    id: &str,
) -> Result<()> {
    tx.run(RELEASE_UNSENT, (user_key, kind, id))?;
    tx.wake(WakeSet { notifications: true, ..WakeSet::default() });
    Ok(())
}

const NEXT_DUE: &str = "SELECT due_at FROM outbox WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1";

pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_DUE, ())
}

const PROMOTE: &str = "UPDATE outbox SET due_at = NULL
    WHERE key IN (SELECT key FROM outbox WHERE due_at IS NOT NULL AND due_at <= ?1 ORDER BY due_at LIMIT ?2 + 0)";

pub fn promote_due(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.run(PROMOTE, (now, limit))
}

const HAS_READY: &str =
    "SELECT EXISTS (SELECT 1 FROM outbox WHERE due_at IS NULL AND destination_hash IS NULL)
    OR EXISTS (SELECT 1 FROM outbox WHERE due_at IS NULL AND destination_hash IS NOT NULL)";

pub fn has_ready(read: &ReadTx<'_>) -> Result<bool> {
    read.one(HAS_READY, ())
}

const READY_MAILS: &str = "SELECT key FROM outbox WHERE due_at IS NULL AND destination_hash IS NULL ORDER BY key LIMIT ?1 + 0";

pub fn ready_mails(read: &ReadTx<'_>, skipped: &HashSet<i64>, limit: usize) -> Result<Vec<i64>> {
    let keys: Vec<i64> = read.all(READY_MAILS, [skipped.len() + limit])?;
    Ok(keys.into_iter().filter(|key| !skipped.contains(key)).take(limit).collect())
}

const NEXT_USER: &str = "SELECT user_key FROM outbox
    WHERE due_at IS NULL AND destination_hash IS NOT NULL AND user_key >= ?1 ORDER BY user_key LIMIT 1";
const NEXT_DESTINATION: &str = "SELECT destination_hash FROM outbox
    WHERE due_at IS NULL AND user_key = ?1 AND destination_hash >= ?2 ORDER BY destination_hash LIMIT 1";
const READY_POSTS: &str = "SELECT key FROM outbox
    WHERE due_at IS NULL AND user_key = ?1 AND destination_hash = ?2 AND key > ?3 ORDER BY key LIMIT ?4 + 0";

/// In the order of [`fair_queue::take`]. `try_acquire` gets the user and the destination.
pub fn ready_posts(
    read: &ReadTx<'_>,
    skipped: &HashSet<i64>,
    rotation: &mut Rotation,
    mut try_acquire: impl FnMut(UserKey, i64) -> Grant,
) -> Result<Vec<ReadyRow>> {
    let queue = FairQueue {
        priorities: 1,
        next_user: &|from| read.find(NEXT_USER, [from]),
        next_destination: &|rows, from| read.find(NEXT_DESTINATION, (rows.user_key, from)),
        ready: &|rows, destination, after, limit| {
            let most = skipped.len() + limit;
            let keys: Vec<i64> =
                read.all(READY_POSTS, (rows.user_key, destination, after, most))?;
            Ok(keys.into_iter().filter(|key| !skipped.contains(key)).take(limit).collect())
        },
    };
    fair_queue::take(&queue, rotation, |user, destination| Ok(try_acquire(user, destination)))
}

const FIND: &str = select!(columns, "FROM outbox JOIN users ON users.key = outbox.user_key LEFT JOIN channels ON channels.key = outbox.channel_key
     WHERE outbox.key = ?1");

pub fn find(read: &ReadTx<'_>, key: i64) -> Result<Notification> {
    read.one(FIND, [key])
}

// These two compare the id as well: SQLite reuses the key of a deleted row.
const DELETE: &str = "DELETE FROM outbox WHERE key = ?1 AND id = ?2";
// Ready at once for a disabled account: the next pass gives it up.
const POSTPONE: &str = "UPDATE outbox
    SET due_at = iif((SELECT disabled_at FROM users WHERE users.key = user_key) IS NULL, ?3, NULL), attempts = attempts + 1
  WHERE key = ?1 AND id = ?2";

/// Returns `false` if the notification was deleted meanwhile.
pub fn record_result(tx: &WriteTx<'_>, key: i64, id: &str, next: NextStep) -> Result<bool> {
    match next {
        NextStep::Success | NextStep::Failed => tx.changes(DELETE, (key, id)),
        NextStep::RetryAt(due_at) => tx.changes(POSTPONE, (key, id, due_at)),
    }
}

const DELETE_POSTS: &str = "DELETE FROM outbox WHERE user_key = ?1 AND kind <> 'mail'";

/// Deletes the user's POSTs. One that is being sent ends, and is not repeated.
pub fn delete_posts(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run(DELETE_POSTS, [user_key])
}

const DELETE_WAITING: &str = "DELETE FROM outbox WHERE user_key = ?1 AND due_at IS NOT NULL";

/// Deletes the user's notifications that wait for another attempt or for their time.
pub fn delete_waiting(tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
    tx.run(DELETE_WAITING, [user_key])
}

const COUNT_WAITING: &str =
    "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE user_key = ?1 AND kind = ?2 LIMIT ?3 + 0)";

pub fn count_waiting(
    read: &ReadTx<'_>,
    user_key: UserKey,
    kind: NotificationKind,
    limit: u32,
) -> Result<u32> {
    read.one(COUNT_WAITING, (user_key, kind, limit))
}

const INCREMENT_DROPPED: &str =
    "INSERT INTO outbox_overflow (user_key, kind, dropped) VALUES (?1, ?2, 1)
    ON CONFLICT DO UPDATE SET dropped = dropped + 1 RETURNING dropped";

pub fn increment_dropped(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    kind: NotificationKind,
) -> Result<u32> {
    tx.one(INCREMENT_DROPPED, (user_key, kind))
}

const END_BACKLOG: &str =
    "DELETE FROM outbox_overflow WHERE user_key = ?1 AND kind = ?2 RETURNING dropped";

/// Ends the user's backlog of this kind. Returns the number of dropped POSTs, or `None` if there was no backlog.
pub fn end_backlog(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    kind: NotificationKind,
) -> Result<Option<u32>> {
    tx.find(END_BACKLOG, (user_key, kind))
}

const USER_ID: &str = "SELECT id FROM users WHERE key = ?1";

pub fn user_id(read: &ReadTx<'_>, user_key: UserKey) -> Result<String> {
    read.one(USER_ID, [user_key])
}

row! {
#[derive(Debug, Clone)]
pub struct FailedExecution {
    pub subject: AlertSubject,
    pub user_id: String,
    pub attempts: u32,
    pub http_status: Option<u16>,
    pub error: Option<String>,
    pub email: bool,
    pub webhook: Option<String>,
    /// True if to pause the cue. Only an active recurring cue is paused.
    pub pause: bool,
    /// False for a run by hand, whose failure is always mailed: somebody waits for it.
    pub by_schedule: bool,
} }

// The error of a worker is in its report, that of a delivery in the execution.
const FIND_FAILED: &str = concat!(
    "SELECT ",
    subject_columns!(),
    ", u.id AS user_id, e.attempts, e.http_status, iif(e.transport = 'worker', coalesce(o.error, e.error_message),
       e.error_message) AS error, c.on_failure ->> 'email' AS email, c.on_failure ->> 'webhook' AS webhook,
       c.on_failure ->> 'pause' AND c.status = 'active' AND c.at IS NULL AS pauses,
       e.triggered_by = 'schedule'
     FROM executions e JOIN cues c ON c.key = e.cue_key
     JOIN users u ON u.key = e.user_key AND u.disabled_at IS NULL
     LEFT JOIN outcomes o ON o.execution_key = e.key
    WHERE e.key = ?1"
);

pub fn find_failed(read: &ReadTx<'_>, key: ExecutionKey) -> Result<Option<FailedExecution>> {
    read.find(FIND_FAILED, [key])
}

row! {
/// The failures of a cue in a row.
#[derive(Debug, Clone, Copy)]
pub struct Streak {
    pub failures: i64,
    pub since: Timestamp,
    /// A channel has told one of them.
    pub is_announced: bool,
} }

// Runs after every success, nearly always on an empty table.
const DELETE_STREAK: &str =
    "DELETE FROM consecutive_failures WHERE cue_key = ?1 RETURNING failures, since, is_announced";

/// Returns the streak that has ended, if there was one.
pub fn delete_streak(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<Option<Streak>> {
    tx.find(DELETE_STREAK, [cue_key])
}

const INCREMENT_STREAK: &str =
    "INSERT INTO consecutive_failures (cue_key, failures, since, is_announced, last_key) VALUES (?1, 1, ?2, 0, ?3)
    ON CONFLICT (cue_key) DO UPDATE SET failures = failures + 1, last_key = ?3
    RETURNING failures, since, is_announced";

/// `key` is the execution that has failed.
pub fn increment_streak(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    key: ExecutionKey,
    now: Timestamp,
) -> Result<Streak> {
    tx.one(INCREMENT_STREAK, (cue_key, now, key))
}

const ANNOUNCE_STREAK: &str = "UPDATE consecutive_failures SET is_announced = 1 WHERE cue_key = ?1";

pub fn announce_streak(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    tx.run(ANNOUNCE_STREAK, [cue_key])
}

const MAIL_TIME: &str = "SELECT created_at FROM failure_mails
    WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1 OFFSET ?2";

pub fn mail_time(
    read: &ReadTx<'_>,
    user_key: UserKey,
    skipped: usize,
) -> Result<Option<Timestamp>> {
    read.find(MAIL_TIME, (user_key, skipped))
}

const SUPPRESSED_MAILS: &str = "SELECT suppressed FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1";

pub fn suppressed_mails(read: &ReadTx<'_>, user_key: UserKey) -> Result<u32> {
    Ok(read.find(SUPPRESSED_MAILS, [user_key])?.unwrap_or(0))
}

const INCREMENT_SUPPRESSED: &str = "UPDATE failure_mails SET suppressed = suppressed + 1
    WHERE key = (SELECT key FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1)
    RETURNING suppressed";

pub fn increment_suppressed_mails(tx: &WriteTx<'_>, user_key: UserKey) -> Result<u32> {
    tx.one(INCREMENT_SUPPRESSED, [user_key])
}

const DELETE_MAILS: &str = "DELETE FROM failure_mails WHERE user_key = ?1 AND created_at <= ?2";

pub fn delete_mails(tx: &WriteTx<'_>, user_key: UserKey, up_to: Timestamp) -> Result<()> {
    tx.run(DELETE_MAILS, (user_key, up_to))
}

pub fn insert_mail(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    now: Timestamp,
    suppressed: u32,
) -> Result<()> {
    let columns = "user_key, created_at, suppressed";
    tx.insert("failure_mails", columns, (user_key, now, suppressed)).map(drop)
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_statement_uses_its_index:
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
    DELETE_WAITING => "outbox_by_user (user_key=?)",
    POSTPONE => "SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)",
    FIND_FAILED => "SEARCH e USING INTEGER PRIMARY KEY",
    DELETE_STREAK => "SEARCH consecutive_failures USING INTEGER PRIMARY KEY",
    MAIL_TIME => "failure_mails_by_user (user_key=?)",
    SUPPRESSED_MAILS => "failure_mails_by_user (user_key=?)",
    INCREMENT_SUPPRESSED => "failure_mails_by_user (user_key=?)",
    DELETE_MAILS => "failure_mails_by_user (user_key=? AND created_at<?)",
}
