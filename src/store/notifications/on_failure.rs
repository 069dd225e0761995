//! Failed executions: the data of their notifications, the failure streak of each cue, and the failure mails of each
//! user. `service::finish` decides what a failure causes.

use jiff::Timestamp;
use rusqlite::params;

use crate::error::Result;
use crate::store::db::columns::{millis, row, row_count};
use crate::store::notifications::alerts::{AlertSubject, subject_columns};
use crate::store::{ReadTx, WriteTx};

row! {
/// A failed execution, and the `on_failure` settings of its cue.
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
} }

// The error of a worker is in its report, that of a delivery in the execution.
const FIND_FAILED: &str = concat!(
    "SELECT ",
    subject_columns!(),
    ", u.id AS user_id, e.attempts, e.http_status, iif(e.transport = 'worker', coalesce(o.error, e.error_message),
       e.error_message) AS error, c.on_failure ->> 'email' AS email, c.on_failure ->> 'webhook' AS webhook,
       c.on_failure ->> 'pause' AND c.status = 'active' AND c.cron IS NOT NULL AS pauses
     FROM executions e JOIN cues c ON c.key = e.cue_key
     JOIN users u ON u.key = e.user_key AND u.disabled_at IS NULL
     LEFT JOIN outcomes o ON o.execution_key = e.key
    WHERE e.key = ?1"
);
// Runs after every success, nearly always on an empty table.
const DELETE_STREAK: &str = "DELETE FROM consecutive_failures WHERE cue_key = ?1";
const INCREMENT_STREAK: &str = "INSERT INTO consecutive_failures (cue_key, failures) VALUES (?1, 1)
    ON CONFLICT (cue_key) DO UPDATE SET failures = failures + 1 RETURNING failures";
const MAIL_TIME: &str = "SELECT created_at FROM failure_mails
    WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1 OFFSET ?2";
const SUPPRESSED_MAILS: &str =
    "SELECT suppressed FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1";
const INCREMENT_SUPPRESSED: &str = "UPDATE failure_mails SET suppressed = suppressed + 1
    WHERE key = (SELECT key FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1)
    RETURNING suppressed";
const DELETE_MAILS: &str = "DELETE FROM failure_mails WHERE user_key = ?1 AND created_at <= ?2";
const INSERT_MAIL: &str = "INSERT INTO failure_mails (user_key, created_at, suppressed) VALUES (?1, ?2, ?3)";

/// The failed execution in row `key`; `None` if its user is disabled.
pub fn find_failed(read: &ReadTx<'_>, key: i64) -> Result<Option<FailedExecution>> {
    read.find(FIND_FAILED, [key])
}

pub fn delete_streak(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.run(DELETE_STREAK, [cue_key])
}

pub fn increment_streak(tx: &WriteTx<'_>, cue_key: i64) -> Result<i64> {
    tx.one(INCREMENT_STREAK, [cue_key])
}

/// The time of the user's newest failure mail, not counting the `skipped` newest.
pub fn mail_time(read: &ReadTx<'_>, user_key: i64, skipped: usize) -> Result<Option<Timestamp>> {
    read.find(MAIL_TIME, [user_key, row_count(skipped)])
}

/// The number of failure mails suppressed since the user's newest one.
pub fn suppressed_mails(read: &ReadTx<'_>, user_key: i64) -> Result<u32> {
    Ok(read.find(SUPPRESSED_MAILS, [user_key])?.unwrap_or(0))
}

/// Counts a suppressed failure mail. Returns their number since the user's newest mail.
pub fn increment_suppressed_mails(tx: &WriteTx<'_>, user_key: i64) -> Result<u32> {
    tx.one(INCREMENT_SUPPRESSED, [user_key])
}

pub fn delete_mails(tx: &WriteTx<'_>, user_key: i64, up_to: Timestamp) -> Result<()> {
    tx.run(DELETE_MAILS, params![user_key, millis(up_to)])
}

/// Records a mail at `now`, and the number of failure mails that were suppressed and not mentioned in one yet.
pub fn insert_mail(tx: &WriteTx<'_>, user_key: i64, now: Timestamp, suppressed: u32) -> Result<()> {
    tx.run(INSERT_MAIL, params![user_key, millis(now), suppressed])
}

#[cfg(test)]
crate::store::test_support::plan_test! { failure_handling_never_reads_the_history:
    FIND_FAILED => "SEARCH e USING INTEGER PRIMARY KEY",
    DELETE_STREAK => "SEARCH consecutive_failures USING INTEGER PRIMARY KEY",
    MAIL_TIME => "failure_mails_by_user (user_key=?)",
    SUPPRESSED_MAILS => "failure_mails_by_user (user_key=?)",
    INCREMENT_SUPPRESSED => "failure_mails_by_user (user_key=?)",
    DELETE_MAILS => "failure_mails_by_user (user_key=? AND created_at<?)",
}
