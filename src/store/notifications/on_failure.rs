//! Failures of executions: what their notifications need, the streak of each cue, and the mails written to each user.
//! What follows from them is decided in `lifecycle::finish`.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Result;
use crate::store::db::columns::{millis, read_instant};
use crate::store::notifications::alerts::{AlertSubject, read_subject, subject_columns};
use crate::store::{ReadTx, WriteTx};

/// An execution that has failed, and the consequences that its cue asks for.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct FailedExecution {
    pub subject: AlertSubject,
    pub user_id: String,
    pub attempts: u32,
    pub http_status: Option<u16>,
    pub error: Option<String>,
    /// Whether the user gets a mail.
    pub email: bool,
    /// The URL that gets a POST.
    pub webhook: Option<String>,
    /// Whether the cue is to be paused.
    pub pauses: bool,
}

// A worker's own words are in its report; those of a delivery are the execution's.
const FAILED: &str = concat!(
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
// Every success asks this, and nearly always of an empty table.
const FORGET_STREAK: &str = "DELETE FROM consecutive_failures WHERE cue_key = ?1";
const COUNT_FAILURE: &str = "INSERT INTO consecutive_failures (cue_key, failures) VALUES (?1, 1)
    ON CONFLICT (cue_key) DO UPDATE SET failures = failures + 1 RETURNING failures";
const MAIL_BEFORE: &str = "SELECT created_at FROM failure_mails
    WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1 OFFSET ?2";
const HELD: &str =
    "SELECT suppressed FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1";
const HOLD_MAIL: &str = "UPDATE failure_mails SET suppressed = suppressed + 1
    WHERE key = (SELECT key FROM failure_mails WHERE user_key = ?1 ORDER BY created_at DESC, key DESC LIMIT 1)
    RETURNING suppressed";
const FORGET_MAILS: &str = "DELETE FROM failure_mails WHERE user_key = ?1 AND created_at <= ?2";
const COUNT_MAIL: &str = "INSERT INTO failure_mails (user_key, created_at, suppressed) VALUES (?1, ?2, 0)";

/// The failed execution in this row; none if its user is disabled.
pub fn find_failed(read: &ReadTx<'_>, key: i64) -> Result<Option<FailedExecution>> {
    Ok(read.prepare_cached(FAILED)?.query_row([key], read_failed).optional()?)
}

/// Ends the streak of failures of a cue.
pub fn delete_streak(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.prepare_cached(FORGET_STREAK)?.execute([cue_key])?;
    Ok(())
}

/// Counts a failure of a cue; returns how many there are in a row.
pub fn increment_streak(tx: &WriteTx<'_>, cue_key: i64) -> Result<i64> {
    Ok(tx.prepare_cached(COUNT_FAILURE)?.query_row([cue_key], |row| row.get(0))?)
}

/// When the user's newest mail was written, after skipping the `skipped` newest.
pub fn mail_time(read: &ReadTx<'_>, user_key: i64, skipped: usize) -> Result<Option<Timestamp>> {
    let skipped = i64::try_from(skipped).unwrap_or(i64::MAX);
    let written_at: Option<i64> =
        read.prepare_cached(MAIL_BEFORE)?.query_row([user_key, skipped], |row| row.get(0)).optional()?;
    Ok(written_at.map(read_instant).transpose()?)
}

/// How many mails were held back since the user's newest one.
pub fn suppressed_mails(read: &ReadTx<'_>, user_key: i64) -> Result<u32> {
    let held = read.prepare_cached(HELD)?.query_row([user_key], |row| row.get(0)).optional()?;
    Ok(held.unwrap_or(0))
}

/// Counts a mail that is held back; returns how many there are since the user's newest mail.
pub fn increment_suppressed_mails(tx: &WriteTx<'_>, user_key: i64) -> Result<u32> {
    Ok(tx.prepare_cached(HOLD_MAIL)?.query_row([user_key], |row| row.get(0))?)
}

/// Deletes the user's mails that were written at `up_to` or earlier.
pub fn delete_mails(tx: &WriteTx<'_>, user_key: i64, up_to: Timestamp) -> Result<()> {
    tx.prepare_cached(FORGET_MAILS)?.execute(params![user_key, millis(up_to)])?;
    Ok(())
}

/// Records a mail written at `now`.
pub fn insert_mail(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<()> {
    tx.prepare_cached(COUNT_MAIL)?.execute(params![user_key, millis(now)])?;
    Ok(())
}

fn read_failed(row: &Row<'_>) -> rusqlite::Result<FailedExecution> {
    Ok(FailedExecution {
        subject: read_subject(row)?,
        user_id: row.get("user_id")?,
        attempts: row.get("attempts")?,
        http_status: row.get("http_status")?,
        error: row.get("error")?,
        email: row.get("email")?,
        webhook: row.get("webhook")?,
        pauses: row.get("pauses")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn failure_handling_never_reads_the_history() {
        for sql in
            [FAILED, FORGET_STREAK, COUNT_FAILURE, MAIL_BEFORE, HELD, HOLD_MAIL, FORGET_MAILS, COUNT_MAIL]
        {
            for step in plan(sql) {
                let searches = step.starts_with("SEARCH ") || step == "SCALAR SUBQUERY 1";
                assert!(searches, "{step}\n{sql}");
            }
        }
    }
}
