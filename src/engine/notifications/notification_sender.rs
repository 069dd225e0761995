//! One notification: builds its POST or mail, sends it and decides the next step. No database access.

use jiff::Timestamp;

use crate::app::Notifiers;
use crate::domain::execution::NextStep;
use crate::domain::notification::mail::StoredMail;
use crate::domain::notification::test_alert::{RunningTests, TestAttempt};
use crate::domain::notification::{NotificationKind, after_mail, after_post, is_expired, signed_post};
use crate::domain::webhook::callback::Method;
use crate::domain::webhook::callback_url::authority_of;
use crate::domain::webhook::request::SignedRequest;
use crate::domain::webhook::signature::SigningSecrets;
use crate::engine::delivery::attempt::{SendResult, send_guarded};
use crate::engine::webhook_client::{MAX_KEPT_BODY, WebhookClient, WebhookRequest};
use crate::locks::Mutex;
use crate::mail::{Mail, MailTransport, SmtpError};
use crate::panics;
use crate::store::notifications::outbox::Notification;

/// A finished attempt to send a notification.
pub struct NotificationResult {
    pub(in crate::engine) key: i64,
    pub(in crate::engine) user_key: i64,
    /// The destination that held a slot; `None` for a mail.
    pub(in crate::engine) destination: Option<i64>,
    pub(in crate::engine) is_confirmed: bool,
    pub(in crate::engine) next: NextStep,
    pub(in crate::engine) timed_out: bool,
}

/// Sends a POST, waits for the response and decides the next step. Reads the time with `now` before and after; `None` from
/// it, when the program stops, ends the work without a result. Who waits for a test alert learns of it. Never panics.
pub(in crate::engine) fn post(
    webhook_client: &dyn WebhookClient,
    notification: &Notification,
    tests: &Mutex<RunningTests>,
    notifiers: &Notifiers,
    now: &dyn Fn() -> Option<Timestamp>,
) -> Option<NotificationResult> {
    let started = now()?;
    let sent = send(webhook_client, notification, started);
    let ended = now()?;
    let result = result_of_post(notification, &sent, ended);
    let attempt = || {
        let (http_status, error_message) = sent.status_and_error(result.next == NextStep::Success);
        let duration = ended.duration_since(started);
        TestAttempt { http_status, duration, error_message, next: result.next }
    };
    if tests.lock().record(notification.user_key, &notification.id, attempt) {
        notifiers.test_alerts.notify();
    }
    Some(result)
}

/// Sends a POST, signed at `now`, and waits for the response. Never panics.
pub fn send(webhook_client: &dyn WebhookClient, notification: &Notification, now: Timestamp) -> SendResult {
    send_guarded(
        webhook_client,
        || request(notification, now),
        |error| tracing::error!(notification_id = %notification.id, %error, "notification panicked"),
    )
}

/// The next step of a notification whose POST ended at `now`.
pub fn result_of_post(
    notification: &Notification,
    result: &SendResult,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = after_post(attempt, notification.created_at, &result.attempt(now), now);
    if next == NextStep::Failed {
        let why = match result {
            SendResult::Responded(response) => format!("it returned {}", response.http_status),
            SendResult::NoResponse { reason, detail: None, .. } | SendResult::Unsendable(reason) => {
                reason.clone()
            }
            SendResult::NoResponse { reason, detail: Some(detail), .. } => format!("{reason}: {detail}"),
        };
        // The host alone: the path of such a URL is often a secret.
        let host = notification.url.as_deref().map(authority_of).unwrap_or_default();
        give_up(notification, &format!("attempt {attempt} to reach {host} failed: {why}"));
    }
    NotificationResult {
        key: notification.key,
        user_key: notification.user_key,
        destination: notification.destination,
        is_confirmed: notification.is_confirmed,
        next,
        timed_out: result.timed_out(),
    }
}

/// Sends a mail, with links to the server at `base`, and waits until the mail server accepts or refuses it. Never panics.
pub fn send_mail(route: &MailTransport, base: &str, notification: &Notification) -> Result<(), SmtpError> {
    let mail = write_mail(base, notification)
        .ok_or(SmtpError::permanent("the stored notification cannot be read"))?;
    panics::catch("the mail transport", || Ok(route.send(&mail)))
        .unwrap_or_else(|error| Err(SmtpError::permanent(&error.to_string())))
}

/// The next step of a notification whose mail was accepted or refused at `now`.
pub fn result_of_mail(
    notification: &Notification,
    sent: &Result<(), SmtpError>,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = match sent {
        Ok(()) => NextStep::Success,
        Err(error) if error.is_transient => after_mail(attempt, notification.created_at, now),
        Err(_) => NextStep::Failed,
    };
    if let Err(error) = sent {
        log_error(notification, attempt, error, next);
    }
    NotificationResult {
        key: notification.key,
        user_key: notification.user_key,
        destination: None,
        is_confirmed: notification.is_confirmed,
        next,
        timed_out: false,
    }
}

fn log_error(notification: &Notification, attempt: u32, error: &SmtpError, next: NextStep) {
    let (id, user_id) = (&notification.id, &notification.user_id);
    match next {
        NextStep::RetryAt(due) if attempt == 1 => {
            tracing::warn!(notification_id = %id, %user_id, next_attempt = %due, error = %error, "mail not sent; retrying");
        }
        // Only the first failure is a warning: an outage of the mail server fails many attempts of many mails.
        NextStep::RetryAt(due) => {
            tracing::debug!(notification_id = %id, %user_id, next_attempt = %due, error = %error, "mail not sent; retrying");
        }
        NextStep::Success | NextStep::Failed => {
            give_up(notification, &format!("attempt {attempt} to mail it failed: {error}"))
        }
    }
}

fn request(notification: &Notification, now: Timestamp) -> Result<WebhookRequest, String> {
    let url = notification.url.clone().ok_or("the notification has no URL")?;
    let secrets = match notification.kind {
        NotificationKind::Alert(_) => {
            SigningSecrets { current: &notification.alert_webhook_secret, previous: None }
        }
        NotificationKind::Failure | NotificationKind::Mail => SigningSecrets::at(
            now,
            &notification.webhook_secret,
            notification.previous_webhook_secret.as_deref(),
            notification.previous_webhook_secret_expires_at,
        ),
    };
    let SignedRequest { headers, body } =
        signed_post(notification.kind, &notification.id, &notification.body, secrets, now);
    Ok(WebhookRequest { method: Method::Post, url, headers, body, max_response: MAX_KEPT_BODY })
}

fn write_mail(base: &str, notification: &Notification) -> Option<Mail> {
    let mail = StoredMail::read(&notification.body)?;
    let subject = mail.subject();
    Some(Mail {
        to: notification.email.clone(),
        log_line: format!("{subject}: {}", mail.link(base)),
        subject,
        text: mail.text(base),
        at: notification.created_at,
        log_only: false,
    })
}

/// Returns whether the notification may still be sent; if not, the reason is logged.
pub(in crate::engine) fn is_worth_sending(notification: &Notification, now: Timestamp) -> bool {
    if notification.disabled_at.is_some() {
        give_up(notification, "the account is disabled");
    } else if is_expired(notification.created_at, now) {
        give_up(notification, "it is over a day old");
    } else {
        return true;
    }
    false
}

fn give_up(notification: &Notification, reason: &str) {
    let (id, kind, user_id) = (&notification.id, notification.kind.as_str(), &notification.user_id);
    tracing::warn!(notification_id = %id, kind, %user_id, reason, "notification given up");
}
