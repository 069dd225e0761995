//! Alerts: raised in the transaction of the event that they are about, at most one of a type per cue in five minutes.

use jiff::Timestamp;

use crate::domain::notification::alert::{Alert, DEDUP_WINDOW, MAX_KEPT, NewAlert};
use crate::domain::notification::{NotificationKind, notification_id};
use crate::domain::time::saturating_sub;
use crate::domain::webhook::canonical_json::canonical;
use crate::error::Result;
use crate::lifecycle::notify;
use crate::store::WriteTx;
use crate::store::notifications::alerts;
use crate::store::notifications::alerts::AlertSubject;
use crate::store::notifications::outbox::NewNotification;

/// Raises an alert about the execution in row `execution_key`, and stores a POST to the user's `alert_webhook_url`.
/// Returns `false` if a recent alert of its type stands for the cue, or the user is disabled.
pub fn raise(tx: &WriteTx<'_>, execution_key: i64, alert: &NewAlert, now: Timestamp) -> Result<bool> {
    let subject = alerts::find_subject(tx, execution_key)?;
    subject.map_or(Ok(false), |subject| raise_about(tx, &subject, alert, now))
}

/// As [`raise`], for a caller that has read the subject already.
pub(super) fn raise_about(
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
    let raised = Alert {
        id: notification_id(subject.execution_id, kind, now),
        alert_type,
        cue_id: subject.cue_id.clone(),
        execution_id: subject.execution_id,
        message: alert.message(&subject.cue_name),
        metadata: alert.metadata(),
        created_at: now,
    };
    alerts::insert(tx, subject, &raised)?;
    alerts::delete_surplus(tx, subject.user_key, MAX_KEPT)?;
    if let Some(url) = &subject.alert_webhook_url {
        let body = canonical(&raised.json());
        let (user_key, url) = (subject.user_key, Some(url.clone()));
        notify::enqueue(tx, &NewNotification { id: raised.id, user_key, kind, url, body }, now)?;
    }
    Ok(true)
}
