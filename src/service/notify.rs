//! Alerts and the POSTs about failures, in the transaction of the event, within their limits (contract §6.8, §6.9).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::app::App;
use crate::domain::api_error::ErrorCode;
use crate::domain::channel::message;
use crate::domain::channel::{ALERT_WEBHOOK, BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL};
use crate::domain::json::JsonText;
use crate::domain::notification::alert::{
    ALERT_THRESHOLD, Alert, AlertType, MAX_KEPT, MAX_WAITING_BEFORE_TEST, MovedRuns, NewAlert,
    OnAttempt, TEST_KIND, test_alert,
};
use crate::domain::notification::{NotificationKind, notification_id};
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::schedule::catch_up::{CaughtUp, Outage};
use crate::domain::time::{saturating_add, saturating_sub};
use crate::domain::webhook::canonical_json::canonical;
use crate::error::{Error, Result};
use crate::service::notifications::enqueue;
use crate::service::{channels, events, mails};
use crate::store::accounts::users;
use crate::store::alerts::{self, AlertSubject};
use crate::store::channels::{record_told, release_notice, told_at, update_notice};
use crate::store::db::meta;
use crate::store::outbox::{self, FailedExecution, NewNotification, Recipient, Streak};
use crate::store::{Pending, WriteTx};

pub(super) fn post_failure(
    tx: &WriteTx<'_>,
    failed: &FailedExecution,
    url: &str,
    now: Timestamp,
) -> Result<()> {
    let (user_key, kind) = (failed.subject.user_key, NotificationKind::Failure);
    let id = notification_id(failed.subject.execution_id.bytes(), kind, now);
    let (to, body) = (Recipient::Url(kind, url.to_owned()), mails::report(failed, now).body());
    enqueue(tx, &NewNotification { id, user_key, to, body, due_at: None }, now).map(drop)
}

const CATCH_UP: NotificationKind = NotificationKind::Alert(AlertType::CatchUp);

/// Wait of the POST about an outage after the last batch of its runs: batches follow each other in milliseconds.
const CATCH_UP_QUIET: SignedDuration = SignedDuration::from_secs(60);

/// Raises the alert that `new` makes of the name of the cue. Returns `false` if the cue has a recent alert of this type or
/// the user is disabled.
pub fn raise_alert(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    new: impl FnOnce(&str) -> NewAlert,
    now: Timestamp,
) -> Result<bool> {
    let Some(subject) = alerts::find_subject(tx, execution_key)? else { return Ok(false) };
    Ok(raise_alert_for(tx, &subject, new(&subject.cue_name), now)?.is_some())
}

/// Failures of a cue in a row are mailed, and sent to the alert webhook, once in this time: a little less than a day, so
/// that a nightly cue is told every night.
const TOLD_FOR: SignedDuration = SignedDuration::from_hours(23);

/// Returns whether a failure of the cue in this row was told within [`TOLD_FOR`].
pub(super) fn is_told(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    channel_key: i64,
    now: Timestamp,
) -> Result<bool> {
    let told_at = told_at(tx, cue_key, channel_key)?;
    // A later one is of a clock that was ahead.
    Ok(told_at.is_some_and(|told_at| told_at <= now && now < saturating_add(told_at, TOLD_FOR)))
}

/// The alert about the failures of a cue in a row, one for all of them: from the third on each changes it.
pub(super) fn alert_streak(
    tx: &WriteTx<'_>,
    subject: &AlertSubject,
    streak: &Streak,
    now: Timestamp,
) -> Result<Option<Alert>> {
    if streak.failures < ALERT_THRESHOLD {
        return Ok(None);
    }
    let new = NewAlert::consecutive_failures(&subject.cue_name, streak.failures);
    let recent =
        saturating_sub(now, new.alert_type.dedup_window() - SignedDuration::from_millis(1));
    // A streak that follows another within minutes is no news.
    let Some(known) = alerts::find_streak(tx, subject.cue_key, streak.since.min(recent))? else {
        return raise_alert_for(tx, subject, new, now);
    };
    let is_of_streak = known.created_at >= streak.since;
    let alert = of_cue(subject, new, known.id, known.created_at);
    alerts::update_streak(tx, subject.cue_key, &alert)?;
    if is_of_streak && !is_told(tx, subject.cue_key, ALERT_WEBHOOK, now)? {
        let kind = NotificationKind::Alert(alert.alert_type);
        // A receiver takes the same id for a repetition.
        let again = Alert { id: notification_id(alert.id.as_bytes(), kind, now), ..alert.clone() };
        post_alert(tx, subject.user_key, Some(subject.cue_key), &again, now, None)?;
    }
    Ok(Some(alert))
}

pub(super) fn raise_alert_for(
    tx: &WriteTx<'_>,
    subject: &AlertSubject,
    new: NewAlert,
    now: Timestamp,
) -> Result<Option<Alert>> {
    let since = saturating_sub(now, new.alert_type.dedup_window());
    if alerts::exists_since(tx, subject.cue_key, new.alert_type, since)? {
        return Ok(None);
    }
    let kind = NotificationKind::Alert(new.alert_type);
    let id = notification_id(subject.execution_id.bytes(), kind, now);
    let alert = of_cue(subject, new, id, now);
    insert_alert(tx, subject.user_key, Some(subject.cue_key), &alert, now, None)?;
    Ok(Some(alert))
}

fn of_cue(subject: &AlertSubject, new: NewAlert, id: String, created_at: Timestamp) -> Alert {
    let (cue_id, execution_id) = (Some(subject.cue_id.clone()), Some(subject.execution_id));
    Alert { cue_id, execution_id, ..new.of_account(id, created_at) }
}

/// Adds the runs to the alert about `outage`, or creates it. Its POST waits until the last of them, or
/// [`post_catch_up`]; it is in the file from the first on, so that the end of the process does not lose it.
pub(super) fn add_caught_up(
    tx: &WriteTx<'_>,
    user_key: UserKey,
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
        let alert = NewAlert::catch_up(caught_up).of_account(known.id, outage.until);
        alerts::update_catch_up(tx, user_key, &alert)?;
        update_notice(tx, user_key, &message::alert(&alert, None), due_at)?;
        let body = alert_body(&alert.json());
        return outbox::postpone_unsent(tx, user_key, CATCH_UP, &alert.id, &body, due_at);
    }
    let id = notification_id(&user_key.number().to_be_bytes(), CATCH_UP, outage.until);
    let alert = NewAlert::catch_up(caught_up).of_account(id, outage.until);
    insert_alert(tx, user_key, None, &alert, now, Some(due_at))
}

/// Call it when all runs have caught up, so that the alert counts them all.
pub fn post_catch_up(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    outage: Outage,
    now: Timestamp,
) -> Result<()> {
    let Some(alert) = alerts::find_catch_up(tx, user_key, outage.until)? else { return Ok(()) };
    release_notice(tx, user_key, &alert.id, now)?;
    outbox::release_unsent(tx, user_key, CATCH_UP, &alert.id)
}

/// Alerts a batch of the accounts after `after` with an active cue, once for each `newest`. Returns the last of them.
pub fn raise_clock_behind(
    tx: &WriteTx<'_>,
    after: UserKey,
    limit: u32,
    newest: Timestamp,
    now: Timestamp,
) -> Result<Option<UserKey>> {
    let kind = NotificationKind::Alert(AlertType::ClockBehind);
    let users = users::list_with_active_cues(tx, after, limit)?;
    for user_key in &users {
        let id = notification_id(&user_key.number().to_be_bytes(), kind, newest);
        if alerts::exists(tx, *user_key, &id)? {
            continue;
        }
        let alert = NewAlert::clock_behind(newest, now).of_account(id, now);
        insert_alert(tx, *user_key, None, &alert, now, None)?;
    }
    Ok(users.last().copied())
}

pub(super) fn raise_moved_runs(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    moved: &MovedRuns,
    now: Timestamp,
) -> Result<()> {
    let kind = NotificationKind::Alert(AlertType::TimeZoneChanged);
    // Many cues of an account move in several batches, each with its alert.
    let about = moved.first.first().map_or("", |run| &run.cue_id);
    let id = notification_id(about.as_bytes(), kind, now);
    let alert = NewAlert::time_zone_changed(moved).of_account(id, now);
    insert_alert(tx, user_key, None, &alert, now, None)
}

fn insert_alert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: Option<CueKey>,
    alert: &Alert,
    now: Timestamp,
    due_at: Option<Timestamp>,
) -> Result<()> {
    alerts::insert(tx, user_key, cue_key, alert)?;
    events::alert(tx, user_key, alert);
    alerts::delete_surplus(tx, user_key, MAX_KEPT)?;
    // Its failure is announced together with it.
    if alert.alert_type != AlertType::ConsecutiveFailures {
        channels::announce_alert(tx, user_key, cue_key, alert, due_at.unwrap_or(now))?;
    }
    post_alert(tx, user_key, cue_key, alert, now, due_at)
}

/// Sends the alert to the alert webhook, if there is one. One about failures in a row that was not sent, for want of a
/// webhook or of room, is sent with the next failure.
fn post_alert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: Option<CueKey>,
    alert: &Alert,
    now: Timestamp,
    due_at: Option<Timestamp>,
) -> Result<()> {
    let Some(url) = alerts::alert_url(tx, user_key)? else { return Ok(()) };
    let to = Recipient::Url(NotificationKind::Alert(alert.alert_type), url);
    let (id, body) = (alert.id.clone(), alert_body(&alert.json()));
    let is_sent = enqueue(tx, &NewNotification { id, user_key, to, body, due_at }, now)?;
    match (alert.alert_type, cue_key) {
        (AlertType::ConsecutiveFailures, Some(cue_key)) if is_sent => {
            record_told(tx, cue_key, ALERT_WEBHOOK, 0, now)
        }
        _ => Ok(()),
    }
}

/// In no list and no event. Refused with `invalid_state` without a URL, and if many alerts wait to be sent there.
fn enqueue_test(tx: &WriteTx<'_>, user_key: UserKey, id: String, now: Timestamp) -> Result<()> {
    let Some(url) = alerts::alert_url(tx, user_key)? else {
        let message =
            "The account has no alert webhook to test: set the account's alert_webhook_url";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    };
    let kind = TEST_KIND;
    if outbox::count_waiting(tx, user_key, kind, MAX_WAITING_BEFORE_TEST)?
        >= MAX_WAITING_BEFORE_TEST
    {
        let message = format!(
            "{MAX_WAITING_BEFORE_TEST} alerts wait already for the alert webhook, which has not accepted them; \
             wait for them to know whether it works"
        );
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    let (to, body) = (Recipient::Url(kind, url), alert_body(&test_alert(&id, now)));
    enqueue(tx, &NewNotification { id, user_key, to, body, due_at: None }, now).map(drop)
}

fn alert_body(alert: &Value) -> String {
    canonical(JsonText::from(alert).get())
}

/// A test of the alert webhook or of a channel, whose request waits for the first attempt.
pub struct PendingTest {
    pub id: String,
    app: Arc<App>,
    user_key: UserKey,
}

impl PendingTest {
    /// `on_attempt` gets the first attempt, on another thread.
    /// Errors: `rate_limit_exceeded` if the user waits for another test; no random bytes.
    pub fn begin(app: &Arc<App>, user_key: UserKey, on_attempt: OnAttempt) -> Result<Self> {
        let now = app.clock.now();
        // No execution has this id: two tests within a millisecond have different ones.
        let id = notification_id(app.ids.next(now)?.bytes(), TEST_KIND, now);
        app.test_alerts.lock().begin(user_key, id.clone(), on_attempt)?;
        Ok(Self { id, app: Arc::clone(app), user_key })
    }

    /// Sends it to a channel, which may be a built-in one.
    /// Errors: `channel_not_found`, `held`, and those of the built-in channels.
    pub fn send(&self, channel_id: String) -> Pending<()> {
        let (id, user_key, now) = (self.id.clone(), self.user_key, self.app.clock.now());
        let base = self.app.config.has_public_url.then(|| self.app.config.public_url.clone());
        self.app.store.write_for(user_key, move |tx| {
            meta::refuse_if_held(tx, "sends nothing")?;
            match channel_id.as_str() {
                BUILT_IN_EMAIL => mails::mail_test(tx, user_key, id, now),
                BUILT_IN_ALERT_WEBHOOK => enqueue_test(tx, user_key, id, now),
                channel_id => {
                    channels::enqueue_test(tx, user_key, channel_id, &id, base.as_deref(), now)
                }
            }
        })
    }
}

impl Drop for PendingTest {
    fn drop(&mut self) {
        drop(self.app.test_alerts.lock().end(self.user_key, &self.id));
    }
}
