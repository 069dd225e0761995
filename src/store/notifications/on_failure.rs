//! What follows the end of an execution for whoever should know: how many of a cue's have failed in a row, notices as
//! its `on_failure` asks for them, alerts, the pause (contract §6).
//!
//! Called where an attempt, a worker's report or a lost claim ends an execution. One that ends without having been
//! attempted, for the quota or with its account, is told by usage and by the operator: neither counted nor escalated.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::notification::alert::{FAILURES_IN_A_ROW, NewAlert};
use crate::domain::notification::failure_report::{
    FailureMail, FailureReport, MAX_MAILS, RATE_WINDOW, held_until, told,
};
use crate::domain::notification::{NotificationKind, notice_id};
use crate::domain::webhook::request::instant;
use crate::error::Result;
use crate::store::cues::pause;
use crate::store::db::columns::{millis, read_instant};
use crate::store::notifications::alerts::{AlertSubject, raise_about, read_subject, subject_columns};
use crate::store::notifications::outbox::{self, NewNotification};
use crate::store::{ReadTx, WriteTx};

/// An execution that has failed, and what its cue wants done about that.
struct FailedExecution {
    subject: AlertSubject,
    user_id: String,
    attempts: u32,
    http_status: Option<u16>,
    error: Option<String>,
    email: bool,
    webhook: Option<String>,
    pauses: bool,
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
const FORGET_STREAK: &str = "DELETE FROM failure_streaks WHERE cue_key = ?1";
const COUNT_FAILURE: &str = "INSERT INTO failure_streaks (cue_key, failures) VALUES (?1, 1)
    ON CONFLICT (cue_key) DO UPDATE SET failures = failures + 1 RETURNING failures";
const MAIL_BEFORE: &str = "SELECT written_at FROM failure_mails
    WHERE user_key = ?1 ORDER BY written_at DESC, key DESC LIMIT 1 OFFSET ?2";
const HELD: &str =
    "SELECT held FROM failure_mails WHERE user_key = ?1 ORDER BY written_at DESC, key DESC LIMIT 1";
const HOLD_MAIL: &str = "UPDATE failure_mails SET held = held + 1
    WHERE key = (SELECT key FROM failure_mails WHERE user_key = ?1 ORDER BY written_at DESC, key DESC LIMIT 1)
    RETURNING held";
const FORGET_MAILS: &str = "DELETE FROM failure_mails WHERE user_key = ?1 AND written_at <= ?2";
const COUNT_MAIL: &str = "INSERT INTO failure_mails (user_key, written_at, held) VALUES (?1, ?2, 0)";

/// Notes that an execution of the cue has ended as a success: its failures so far are no longer in a row.
///
/// # Errors
/// When the file cannot be written.
pub fn after_success(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.prepare_cached(FORGET_STREAK)?.execute([cue_key])?;
    Ok(())
}

/// Does what follows the failure of the execution in row `key`, whose end is stored: counts it, alerts when it is one
/// too many in a row, stores the notices that the cue asks for, pauses the cue. Nothing for a disabled user.
///
/// # Errors
/// When the file cannot be written.
pub fn after_failure(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<()> {
    let Some(failed) = tx.prepare_cached(FAILED)?.query_row([key], read_failed).optional()? else {
        return Ok(());
    };
    let cue_key = failed.subject.cue_key;
    let failures: i64 = tx.prepare_cached(COUNT_FAILURE)?.query_row([cue_key], |row| row.get(0))?;
    if failures >= FAILURES_IN_A_ROW {
        raise_about(tx, &failed.subject, &NewAlert::ConsecutiveFailures { failures }, now)?;
    }
    if let Some(url) = &failed.webhook {
        let body = facts(&failed, now).body();
        outbox::insert(
            tx,
            &notification(&failed, NotificationKind::Failure, Some(url.clone()), body, now),
            now,
        )?;
    }
    if failed.email {
        mail(tx, &failed, now)?;
    }
    if failed.pauses {
        pause(tx, cue_key, now)?;
    }
    Ok(())
}

/// Stores a mail, or counts it as held back where its user has had as many as an hour may bring.
fn mail(tx: &WriteTx<'_>, failed: &FailedExecution, now: Timestamp) -> Result<()> {
    let user_key = failed.subject.user_key;
    if let Some(until) = held_until(mail_before(tx, user_key, MAX_MAILS - 1)?, now) {
        let held: u32 = tx.prepare_cached(HOLD_MAIL)?.query_row([user_key], |row| row.get(0))?;
        if held == 1 {
            tracing::warn!(
                "user {} has had {MAX_MAILS} mails about failures within an hour: more are held back until {until}, \
                 the first is that of execution {}",
                failed.user_id,
                failed.subject.execution_id
            );
        }
        return Ok(());
    }
    let held: Option<u32> = tx.prepare_cached(HELD)?.query_row([user_key], |row| row.get(0)).optional()?;
    // With this one it is the tenth newest.
    let tenth = mail_before(tx, user_key, MAX_MAILS - 2)?;
    let counted_since = now.checked_sub(RATE_WINDOW).unwrap_or(Timestamp::MIN);
    tx.prepare_cached(FORGET_MAILS)?.execute(params![user_key, millis(counted_since)])?;
    tx.prepare_cached(COUNT_MAIL)?.execute(params![user_key, millis(now)])?;
    let held_until = held_until(tenth, now).map(instant);
    let body = FailureMail { failure: facts(failed, now), held: held.unwrap_or(0), held_until }.body();
    outbox::insert(tx, &notification(failed, NotificationKind::Mail, None, body, now), now)
}

/// When the user's newest mail but so many was written.
fn mail_before(read: &ReadTx<'_>, user_key: i64, but: usize) -> Result<Option<Timestamp>> {
    let but = i64::try_from(but).unwrap_or(i64::MAX);
    let written_at: Option<i64> =
        read.prepare_cached(MAIL_BEFORE)?.query_row([user_key, but], |row| row.get(0)).optional()?;
    Ok(written_at.map(read_instant).transpose()?)
}

fn facts(failed: &FailedExecution, now: Timestamp) -> FailureReport {
    FailureReport {
        event: FailureReport::EVENT.to_owned(),
        cue_id: failed.subject.cue_id.clone(),
        cue_name: failed.subject.cue_name.clone(),
        execution_id: failed.subject.execution_id.to_string(),
        attempts: failed.attempts,
        last_http_status: failed.http_status,
        last_error: failed.error.as_deref().map(told),
        failed_at: instant(now),
    }
}

fn notification(
    failed: &FailedExecution,
    kind: NotificationKind,
    url: Option<String>,
    body: String,
    now: Timestamp,
) -> NewNotification {
    let AlertSubject { user_key, execution_id, .. } = failed.subject;
    NewNotification { id: notice_id(execution_id, kind, now), user_key, kind, url, body }
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
    use crate::store::plan_tests::plan;

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
