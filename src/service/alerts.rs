//! Raises alerts, in the transaction of the event that they report. A cue gets at most one alert of a type in its
//! window, and an account one alert about each outage.

use jiff::{SignedDuration, Timestamp};

use crate::domain::api_error::ErrorCode;
use crate::domain::json::JsonText;
use crate::domain::notification::alert::{
    Alert, AlertType, MAX_KEPT, MAX_WAITING_BEFORE_TEST, NewAlert, TEST_KIND, test_alert,
};
use crate::domain::notification::{NotificationKind, account_notification_id, notification_id};
use crate::domain::schedule::catch_up::{CaughtUp, Outage};
use crate::domain::time::{saturating_add, saturating_sub};
use crate::domain::webhook::canonical_json::canonical;
use crate::error::{Error, Result};
use crate::service::{events, notify};
use crate::store::WriteTx;
use crate::store::accounts::users;
use crate::store::notifications::alerts::{self, AlertSubject};
use crate::store::notifications::outbox::{self, NewNotification};

const CATCH_UP: NotificationKind = NotificationKind::Alert(AlertType::CatchUp);

/// The POST about an outage waits for this long after the last batch of its runs: batches follow each other in
/// milliseconds, and a longer pause means that the process has ended.
const CATCH_UP_QUIET: SignedDuration = SignedDuration::from_secs(60);

/// Raises an alert about the execution in row `execution_key` and enqueues a POST to the user's `alert_webhook_url`.
/// Returns `false` if the cue has a recent alert of this type or the user is disabled.
pub fn raise(tx: &WriteTx<'_>, execution_key: i64, alert: &NewAlert, now: Timestamp) -> Result<bool> {
    let subject = alerts::find_subject(tx, execution_key)?;
    subject.map_or(Ok(false), |subject| raise_for(tx, &subject, alert, now))
}

/// Like [`raise`], for a subject that the caller has read.
pub(super) fn raise_for(
    tx: &WriteTx<'_>,
    subject: &AlertSubject,
    alert: &NewAlert,
    now: Timestamp,
) -> Result<bool> {
    let alert_type = alert.alert_type();
    let since = saturating_sub(now, alert_type.dedup_window());
    if alerts::exists_since(tx, subject.cue_key, alert_type, since)? {
        return Ok(false);
    }
    let alert = Alert {
        id: notification_id(subject.execution_id, NotificationKind::Alert(alert_type), now),
        alert_type,
        cue_id: Some(subject.cue_id.clone()),
        execution_id: Some(subject.execution_id),
        message: alert.message(&subject.cue_name),
        metadata: alert.metadata(),
        created_at: now,
    };
    let url = subject.alert_webhook_url.clone();
    insert(tx, (subject.user_key, Some(subject.cue_key)), &alert, url, (now, None))?;
    Ok(true)
}

/// Adds runs that caught up after `outage` to the user's alert about it, or creates the alert. Its POST waits until the
/// last of them, or until [`post_catch_up`]: it is in the file from the first on, so that the end of the process does
/// not lose it.
pub(super) fn add_caught_up(
    tx: &WriteTx<'_>,
    user_key: i64,
    outage: Outage,
    caught_up: CaughtUp,
    now: Timestamp,
) -> Result<()> {
    let due_at = saturating_add(now, CATCH_UP_QUIET);
    if let Some(known) = alerts::find_catch_up(tx, user_key, outage.until)? {
        let caught_up = match known.caught_up() {
            Ok(earlier) => earlier.and(caught_up),
            // A damaged alert must not keep cues from firing: its count starts again.
            Err(reason) => {
                let alert_id = known.id.clone();
                tx.on_commit(move || {
                    tracing::error!(alert_id, reason, "the count of an alert cannot be read")
                });
                caught_up
            }
        };
        let alert = Alert::catch_up(known.id, caught_up, outage.until);
        alerts::update_catch_up(tx, user_key, &alert)?;
        return outbox::postpone_unsent(tx, user_key, (CATCH_UP, &alert.id), &body(&alert), due_at);
    }
    let id = account_notification_id(user_key, CATCH_UP, outage.until);
    let alert = Alert::catch_up(id, caught_up, outage.until);
    insert_for_account(tx, user_key, &alert, now, Some(due_at))
}

/// Sends the POST of the user's alert about `outage` at once. Call it when all runs have caught up, so that it counts
/// them all.
pub fn post_catch_up(tx: &WriteTx<'_>, user_key: i64, outage: Outage) -> Result<()> {
    let Some(alert) = alerts::find_catch_up(tx, user_key, outage.until)? else { return Ok(()) };
    outbox::release_unsent(tx, user_key, (CATCH_UP, &alert.id))
}

/// Raises the alert about a clock that shows `now`, behind `newest`, to a batch of the accounts after `after` with an
/// active cue. Returns the last of them. An account has one alert for each `newest`.
pub fn raise_clock_behind(
    tx: &WriteTx<'_>,
    after: i64,
    limit: u32,
    newest: Timestamp,
    now: Timestamp,
) -> Result<Option<i64>> {
    let kind = NotificationKind::Alert(AlertType::ClockBehind);
    let users = users::list_with_active_cues(tx, after, limit)?;
    for user_key in &users {
        let id = account_notification_id(*user_key, kind, newest);
        if alerts::exists(tx, *user_key, &id)? {
            continue;
        }
        insert_for_account(tx, *user_key, &Alert::clock_behind(id, newest, now), now, None)?;
    }
    Ok(users.last().copied())
}

/// Inserts an alert about the account.
fn insert_for_account(
    tx: &WriteTx<'_>,
    user_key: i64,
    alert: &Alert,
    now: Timestamp,
    due_at: Option<Timestamp>,
) -> Result<()> {
    insert(tx, (user_key, None), alert, alerts::alert_url(tx, user_key)?, (now, due_at))
}

/// Inserts an alert about a cue or the account, and its POST to `url`, which is sent at `due_at`, or at once.
fn insert(
    tx: &WriteTx<'_>,
    (user_key, cue_key): (i64, Option<i64>),
    alert: &Alert,
    url: Option<String>,
    (now, due_at): (Timestamp, Option<Timestamp>),
) -> Result<()> {
    alerts::insert(tx, user_key, cue_key, alert)?;
    events::alert(tx, user_key, alert);
    alerts::delete_surplus(tx, user_key, MAX_KEPT)?;
    if url.is_none() {
        return Ok(());
    }
    let kind = NotificationKind::Alert(alert.alert_type);
    let new = NewNotification { id: alert.id.clone(), user_key, kind, url, body: body(alert) };
    notify::enqueue_at(tx, &new, now, due_at)
}

/// Enqueues the test alert `id` of the user. It is in no list and no event. Refused with `invalid_state` without an
/// `alert_webhook_url`, and if many alerts wait to be sent there.
pub fn enqueue_test(tx: &WriteTx<'_>, user_key: i64, id: String, now: Timestamp) -> Result<()> {
    let Some(url) = alerts::alert_url(tx, user_key)? else {
        let message = "The account has no alert webhook to test; set one with PATCH /v1/auth/me \
                       {\"alert_webhook_url\": \"https://…\"}";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    };
    let kind = TEST_KIND;
    if outbox::count_waiting(tx, user_key, kind, MAX_WAITING_BEFORE_TEST)? >= MAX_WAITING_BEFORE_TEST {
        let message = format!(
            "{MAX_WAITING_BEFORE_TEST} alerts wait already for the alert webhook, which has not accepted them; they \
             tell whether it works"
        );
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    let body = canonical(JsonText::from(&test_alert(&id, now)).get());
    notify::enqueue(tx, &NewNotification { id, user_key, kind, url: Some(url), body }, now)
}

fn body(alert: &Alert) -> String {
    canonical(JsonText::from(&alert.json()).get())
}
