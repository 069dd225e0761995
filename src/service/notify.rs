//! Enqueues notifications within their limits: mails per user and hour, and POSTs of one kind that wait for a user
//! (contract §6.8).

use jiff::Timestamp;

use crate::domain::notification::mail::{
    Credential, FailureReport, MAX_MAILS, MAX_WITH_REPLACEMENTS, RATE_WINDOW, StoredMail, suppressed_until,
    truncated,
};
use crate::domain::notification::{
    BACKLOG_CLEARED, MAX_WAITING, NotificationKind, account_notification_id, notification_id,
};
use crate::domain::time::{rfc3339, saturating_sub};
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::accounts::users;
use crate::store::notifications::on_failure::{self, FailedExecution};
use crate::store::notifications::outbox::{self, NewNotification};

pub(super) fn post_failure(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    url: &str,
    now: Timestamp,
) -> Result<()> {
    let body = report(failed, now).body();
    enqueue(tx, &notification(failed, NotificationKind::Failure, Some(url.to_owned()), body, now), now)
}

/// Enqueues a mail about a failure. Above the hourly limit the mail is suppressed and counted, and the next mail states
/// how many were suppressed. An unconfirmed address gets no failure mail.
pub(super) fn mail_failure(tx: &WriteTx<'_>, failed: &FailedExecution, now: Timestamp) -> Result<()> {
    let user_key = failed.subject.user_key;
    if let Some(token) = users::confirmation_token(tx, user_key)? {
        return ask_to_confirm(tx, failed, token, now);
    }
    let tenth_newest = on_failure::mail_time(tx, user_key, MAX_MAILS - 1)?;
    if let Some(until) = suppressed_until(tenth_newest, now) {
        let suppressed = on_failure::increment_suppressed_mails(tx, user_key)?;
        if suppressed == 1 {
            let (user_id, execution_id) = (failed.user_id.clone(), failed.subject.execution_id);
            tx.on_commit(move || {
                tracing::warn!(
                    %user_id, %execution_id, %until, limit = MAX_MAILS,
                    "failure mails suppressed: the user has reached the hourly limit"
                );
            });
        }
        return Ok(());
    }
    let suppressed = on_failure::suppressed_mails(tx, user_key)?;
    // The ninth newest mail so far becomes the tenth newest with this one.
    let tenth_newest = on_failure::mail_time(tx, user_key, MAX_MAILS - 2)?;
    let counted_since = saturating_sub(now, RATE_WINDOW);
    on_failure::delete_mails(tx, user_key, counted_since)?;
    on_failure::insert_mail(tx, user_key, now, 0)?;
    let suppressed_until = suppressed_until(tenth_newest, now).map(rfc3339);
    let body = StoredMail::Failure { failure: report(failed, now), suppressed, suppressed_until }.body();
    enqueue(tx, &notification(failed, NotificationKind::Mail, None, body, now), now)
}

/// Enqueues a mail about a credential that was replaced. An unconfirmed address gets none, and above the hourly limit none
/// is sent.
pub fn mail_replacement(tx: &WriteTx<'_>, user_key: i64, replaced: Credential, now: Timestamp) -> Result<()> {
    let oldest_counted = on_failure::mail_time(tx, user_key, MAX_WITH_REPLACEMENTS - 1)?;
    if users::confirmation_token(tx, user_key)?.is_some() || suppressed_until(oldest_counted, now).is_some() {
        return Ok(());
    }
    let suppressed = on_failure::suppressed_mails(tx, user_key)?;
    on_failure::delete_mails(tx, user_key, saturating_sub(now, RATE_WINDOW))?;
    on_failure::insert_mail(tx, user_key, now, suppressed)?;
    let mail = StoredMail::Replacement { replaced, replaced_at: rfc3339(now) };
    let (kind, body) = (NotificationKind::Mail, mail.body());
    let id = account_notification_id(user_key, kind, now);
    enqueue(tx, &NewNotification { id, user_key, kind, url: None, body }, now)
}

/// Enqueues the mail that asks to confirm the user's address, once.
fn ask_to_confirm(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    confirmation_token: String,
    now: Timestamp,
) -> Result<()> {
    if !users::mark_confirmation_requested(tx, failed.subject.user_key, now)? {
        return Ok(());
    }
    let body = StoredMail::Confirmation { user_id: failed.user_id.clone(), confirmation_token }.body();
    enqueue(tx, &notification(failed, NotificationKind::Mail, None, body, now), now)
}

/// As `enqueue_at`, to be sent at once.
pub fn enqueue(tx: &WriteTx<'_>, new: &NewNotification, now: Timestamp) -> Result<()> {
    enqueue_at(tx, new, now, None)
}

/// Inserts a notification, to be sent at `due_at`, or at once. Drops a POST if [`MAX_WAITING`] of its kind are waiting
/// for its user. Logs the start of such a backlog, and its end with the number of dropped POSTs.
pub(super) fn enqueue_at(
    tx: &WriteTx<'_>,
    new: &NewNotification,
    now: Timestamp,
    due_at: Option<Timestamp>,
) -> Result<()> {
    if new.url.is_some() && !has_room(tx, new)? {
        return Ok(());
    }
    outbox::insert(tx, new, now, due_at)
}

/// Returns whether one more POST of this kind may wait for its user. Tracks backlogs: one begins when the queue is full and
/// ends when half of it has been sent, so that a queue near its limit is not reported repeatedly.
fn has_room(tx: &WriteTx<'_>, new: &NewNotification) -> Result<bool> {
    let NewNotification { id, user_key, kind, .. } = new;
    let (user_key, kind) = (*user_key, *kind);
    let waiting = outbox::count_waiting(tx, user_key, kind, MAX_WAITING)?;
    if waiting >= MAX_WAITING {
        if outbox::increment_dropped(tx, user_key, kind)? == 1 {
            let (user_id, notification_id) = (outbox::user_id(tx, user_key)?, id.clone());
            tx.on_commit(move || {
                tracing::warn!(
                    %user_id, kind = kind.as_str(), %notification_id, limit = MAX_WAITING,
                    "notifications dropped: too many of this kind are waiting for the user"
                );
            });
        }
    } else if waiting <= BACKLOG_CLEARED
        && let Some(count) = outbox::end_backlog(tx, user_key, kind)?
    {
        let user_id = outbox::user_id(tx, user_key)?;
        tx.on_commit(move || {
            tracing::warn!(
                %user_id, kind = kind.as_str(), count,
                "notifications accepted again: the backlog of the user is cleared"
            );
        });
    }
    Ok(waiting < MAX_WAITING)
}

fn report(failed: &FailedExecution, now: Timestamp) -> FailureReport {
    FailureReport {
        event: FailureReport::EVENT.to_owned(),
        cue_id: failed.subject.cue_id.clone(),
        cue_name: failed.subject.cue_name.clone(),
        execution_id: failed.subject.execution_id.to_string(),
        attempts: failed.attempts,
        last_http_status: failed.http_status,
        last_error: failed.error.as_deref().map(truncated),
        failed_at: rfc3339(now),
    }
}

fn notification(
    failed: &FailedExecution,
    kind: NotificationKind,
    url: Option<String>,
    body: String,
    now: Timestamp,
) -> NewNotification {
    let subject = &failed.subject;
    let id = notification_id(subject.execution_id, kind, now);
    NewNotification { id, user_key: subject.user_key, kind, url, body }
}
