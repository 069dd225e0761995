//! Mails to the address of an account, and their hourly limit (contract §6.8).

use jiff::Timestamp;

use crate::domain::api_error::ErrorCode;
use crate::domain::channel::FAILURE_MAILS;
use crate::domain::channel::message::Message;
use crate::domain::mails::{
    Credential, FailureReport, MAX_MAILS, MAX_WITH_REPLACEMENTS, RATE_WINDOW, StoredMail,
    suppressed_until, truncated,
};
use crate::domain::notification::{NotificationKind, notification_id};
use crate::domain::row_keys::UserKey;
use crate::domain::time::{instant, saturating_sub};
use crate::error::{Error, Result};
use crate::service::notifications::enqueue;
use crate::store::accounts::users;
use crate::store::channels::record_told;
use crate::store::outbox::{self, FailedExecution, NewNotification, Recipient};
use crate::store::{ReadTx, WriteTx};

/// Above the hourly limit it is suppressed, and the next mail says how many were. An unconfirmed address gets none: it is
/// asked once to confirm.
pub(super) fn mail_failure(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    now: Timestamp,
) -> Result<()> {
    let user_key = failed.subject.user_key;
    let id = notification_id(failed.subject.execution_id.bytes(), NotificationKind::Mail, now);
    if let Some(confirmation_token) = users::confirmation_token(tx, user_key)? {
        if !users::mark_confirmation_requested(tx, user_key, now)? {
            return Ok(());
        }
        let mail = StoredMail::Confirmation { user_id: failed.user_id.clone(), confirmation_token };
        return send(tx, user_key, id, &mail, now);
    }
    if let Some(until) = limit_end(tx, user_key, now)? {
        let suppressed = outbox::increment_suppressed_mails(tx, user_key)?;
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
    let suppressed = outbox::suppressed_mails(tx, user_key)?;
    count_as(tx, user_key, 0, now)?;
    let suppressed_until = limit_end(tx, user_key, now)?.map(instant);
    let mail = StoredMail::Failure { failure: report(failed, now), suppressed, suppressed_until };
    record_told(tx, failed.subject.cue_key, FAILURE_MAILS, 0, now)?;
    send(tx, user_key, id, &mail, now)
}

pub(super) fn report(failed: &FailedExecution, now: Timestamp) -> FailureReport {
    FailureReport {
        event: FailureReport::EVENT.to_owned(),
        cue_id: failed.subject.cue_id.clone(),
        cue_name: failed.subject.cue_name.clone(),
        execution_id: failed.subject.execution_id.to_string(),
        attempts: failed.attempts,
        last_http_status: failed.http_status,
        last_error: failed.error.as_deref().map(truncated),
        failed_at: instant(now),
    }
}

/// An unconfirmed address gets none, and above the hourly limit none is sent.
pub(super) fn mail_replacement(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    replaced: Credential,
    now: Timestamp,
) -> Result<()> {
    let oldest_counted = outbox::mail_time(tx, user_key, MAX_WITH_REPLACEMENTS - 1)?;
    if users::confirmation_token(tx, user_key)?.is_some()
        || suppressed_until(oldest_counted, now).is_some()
    {
        return Ok(());
    }
    let id = notification_id(&user_key.number().to_be_bytes(), NotificationKind::Mail, now);
    let mail = StoredMail::Replacement { replaced, replaced_at: instant(now) };
    count(tx, user_key, now)?;
    send(tx, user_key, id, &mail, now)
}

/// A test of the failure mails, to the confirmed address of the account. Errors: `invalid_state`, `rate_limit_exceeded`.
pub(super) fn mail_test(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: String,
    now: Timestamp,
) -> Result<()> {
    if users::confirmation_token(tx, user_key)?.is_some() {
        let message = "The address of the account is not confirmed, and gets no mail about failures: sign in with it, or \
                       open the link of the mail that asks to confirm it";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    refuse_above_limit(tx, user_key, now)?;
    let mail = StoredMail::Channel(Box::new(Message::test(&id, "Failure emails", now)));
    count(tx, user_key, now)?;
    send(tx, user_key, id, &mail, now)
}

/// When the account may get another mail, if it has reached the hourly limit.
pub(super) fn limit_end(
    read: &ReadTx<'_>,
    user_key: UserKey,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    Ok(suppressed_until(outbox::mail_time(read, user_key, MAX_MAILS - 1)?, now))
}

/// Errors: `rate_limit_exceeded`.
pub(super) fn refuse_above_limit(
    read: &ReadTx<'_>,
    user_key: UserKey,
    now: Timestamp,
) -> Result<()> {
    if limit_end(read, user_key, now)?.is_none() {
        return Ok(());
    }
    let message = format!(
        "The account has got {MAX_MAILS} mails within an hour, which is the limit; try again later"
    );
    Err(Error::refused(ErrorCode::RateLimitExceeded, message))
}

/// Counts a mail beside those about failures, as one of a channel.
pub(super) fn count(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    count_as(tx, user_key, outbox::suppressed_mails(tx, user_key)?, now)
}

/// `suppressed` failures are told by the next mail about one.
fn count_as(tx: &WriteTx<'_>, user_key: UserKey, suppressed: u32, now: Timestamp) -> Result<()> {
    outbox::delete_mails(tx, user_key, saturating_sub(now, RATE_WINDOW))?;
    outbox::insert_mail(tx, user_key, now, suppressed)
}

fn send(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: String,
    mail: &StoredMail,
    now: Timestamp,
) -> Result<()> {
    let (to, body) = (Recipient::Account, mail.body());
    enqueue(tx, &NewNotification { id, user_key, to, body, due_at: None }, now).map(drop)
}
