//! Raises alerts, in the transaction of the event that they report. A cue gets at most one alert of a type in five
//! minutes, and an account one alert about each outage.

use jiff::Timestamp;

use crate::domain::json::JsonText;
use crate::domain::notification::alert::{Alert, AlertType, DEDUP_WINDOW, MAX_KEPT, NewAlert};
use crate::domain::notification::{NotificationKind, account_notification_id, notification_id};
use crate::domain::schedule::catch_up::{CaughtUp, Outage};
use crate::domain::time::saturating_sub;
use crate::domain::webhook::canonical_json::canonical;
use crate::error::Result;
use crate::lifecycle::notify;
use crate::store::WriteTx;
use crate::store::notifications::alerts;
use crate::store::notifications::alerts::AlertSubject;
use crate::store::notifications::outbox::NewNotification;

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
    let since = saturating_sub(now, DEDUP_WINDOW);
    if alerts::exists_since(tx, subject.cue_key, alert_type, since)? {
        return Ok(false);
    }
    let kind = NotificationKind::Alert(alert_type);
    let alert = Alert {
        id: notification_id(subject.execution_id, kind, now),
        alert_type,
        cue_id: Some(subject.cue_id.clone()),
        execution_id: Some(subject.execution_id),
        message: alert.message(&subject.cue_name),
        metadata: alert.metadata(),
        created_at: now,
    };
    alerts::insert(tx, subject.user_key, Some(subject.cue_key), &alert)?;
    alerts::delete_surplus(tx, subject.user_key, MAX_KEPT)?;
    if let Some(url) = &subject.alert_webhook_url {
        let body = canonical(JsonText::from(&alert.json()).get());
        let (user_key, url) = (subject.user_key, Some(url.clone()));
        notify::enqueue(tx, &NewNotification { id: alert.id, user_key, kind, url, body }, now)?;
    }
    Ok(true)
}

/// Adds runs that caught up after `outage` to the user's alert about it, or creates the alert.
pub(super) fn add_caught_up(
    tx: &WriteTx<'_>,
    user_key: i64,
    outage: Outage,
    caught_up: CaughtUp,
) -> Result<()> {
    if let Some(known) = alerts::find_catch_up(tx, user_key, outage.until)? {
        let caught_up = known.caught_up().map_or(caught_up, |known| known.and(caught_up));
        return alerts::update_catch_up(tx, user_key, &Alert::catch_up(known.id, caught_up, outage.until));
    }
    let id = account_notification_id(user_key, NotificationKind::Alert(AlertType::CatchUp), outage.until);
    alerts::insert(tx, user_key, None, &Alert::catch_up(id, caught_up, outage.until))?;
    alerts::delete_surplus(tx, user_key, MAX_KEPT)
}

/// Enqueues the POST of the user's alert about `outage`. Call it when all runs have caught up, so that it counts them
/// all.
pub fn post_catch_up(tx: &WriteTx<'_>, user_key: i64, outage: Outage, now: Timestamp) -> Result<()> {
    let (Some(url), Some(alert)) =
        (alerts::alert_url(tx, user_key)?, alerts::find_catch_up(tx, user_key, outage.until)?)
    else {
        return Ok(());
    };
    let (kind, body) =
        (NotificationKind::Alert(AlertType::CatchUp), canonical(JsonText::from(&alert.json()).get()));
    notify::enqueue(tx, &NewNotification { id: alert.id, user_key, kind, url: Some(url), body }, now)
}
