//! One notice: what is sent of it, by POST or by mail, and what follows from how that went. No database here.

use jiff::Timestamp;

use crate::domain::execution::NextStep;
use crate::domain::notification::failure_report::FailureMail;
use crate::domain::notification::{NotificationKind, after_mail, after_post, is_expired, signed_post};
use crate::domain::webhook::callback::Method;
use crate::domain::webhook::callback_url::authority_of;
use crate::domain::webhook::request::SignedRequest;
use crate::domain::webhook::signature::SigningSecrets;
use crate::engine::delivery::attempt::{SendResult, send_guarded};
use crate::engine::scheduler::scheduler_thread::caught;
use crate::engine::webhook_client::{WebhookClient, WebhookRequest};
use crate::mail::{Mail, MailTransport, SmtpError};
use crate::store::notifications::outbox::Notification;

/// A try to tell a notice that has ended.
pub struct NotificationResult {
    pub(in crate::engine) key: i64,
    /// None for a mail.
    pub(in crate::engine) lane: Option<i64>,
    pub(in crate::engine) next: NextStep,
    pub(in crate::engine) timed_out: bool,
}

/// Sends a POST, signed at `now`, and waits for the answer. Never panics.
pub fn send(webhook_client: &dyn WebhookClient, notification: &Notification, now: Timestamp) -> SendResult {
    send_guarded(webhook_client, || parcel(notification, now), &notification.id)
}

/// What a POST that ended at `now` means for its notice.
#[must_use]
pub fn judge(notification: &Notification, outcome: &SendResult, now: Timestamp) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = after_post(attempt, notification.created_at, &outcome.attempt(now), now);
    if next == NextStep::Failed {
        let why = match outcome {
            SendResult::Answered(receipt) => format!("it answered {}", receipt.http_status),
            SendResult::Unanswered { reason, .. } | SendResult::Unsendable(reason) => reason.clone(),
        };
        // The host alone: the path of such a URL is often a secret.
        let host = notification.url.as_deref().map(authority_of).unwrap_or_default();
        give_up(notification, &format!("attempt {attempt} to tell {host}: {why}"));
    }
    NotificationResult {
        key: notification.key,
        lane: notification.lane,
        next,
        timed_out: outcome.timed_out(),
    }
}

/// Sends a mail, with links to the server at `base`, and waits until it is taken or refused. Never panics.
///
/// # Errors
/// Why it was not taken.
pub fn send_mail(route: &MailTransport, base: &str, notification: &Notification) -> Result<(), SmtpError> {
    let mail =
        write_mail(base, notification).ok_or(SmtpError::lasting("what is stored of it cannot be read"))?;
    caught(|| Ok(route.send(&mail))).unwrap_or_else(|error| Err(SmtpError::lasting(&error.to_string())))
}

/// What a mail that was taken or refused at `now` means for its notice.
#[must_use]
pub fn judge_mail(
    notification: &Notification,
    sent: &Result<(), SmtpError>,
    now: Timestamp,
) -> NotificationResult {
    let attempt = notification.attempts + 1;
    let next = match sent {
        Ok(()) => NextStep::Success,
        Err(fault) if fault.passes => after_mail(attempt, notification.created_at, now),
        Err(_) => NextStep::Failed,
    };
    if let Err(fault) = sent {
        log_fault(notification, attempt, fault, next);
    }
    NotificationResult { key: notification.key, lane: None, next, timed_out: false }
}

fn log_fault(notification: &Notification, attempt: u32, fault: &SmtpError, next: NextStep) {
    let (id, user_id) = (&notification.id, &notification.user_id);
    match next {
        NextStep::RetryAt(due) if attempt == 1 => {
            tracing::warn!(
                "notice {id} (mail) for user {user_id} could not be sent, next try at {due}: {fault}"
            );
        }
        // An outage of the mail server lasts for many tries of many mails.
        NextStep::RetryAt(due) => tracing::debug!("notice {id} (mail) is tried again at {due}: {fault}"),
        NextStep::Success | NextStep::Failed => {
            give_up(notification, &format!("attempt {attempt} to mail it: {fault}"))
        }
    }
}

fn parcel(notification: &Notification, now: Timestamp) -> Result<WebhookRequest, String> {
    let url = notification.url.clone().ok_or("the notice has no URL")?;
    let secrets = match notification.kind {
        NotificationKind::Alert(_) => {
            SigningSecrets { current: &notification.alert_webhook_secret, previous: None }
        }
        NotificationKind::Failure | NotificationKind::Mail => SigningSecrets::at(
            now,
            &notification.webhook_secret,
            notification.previous_secret.as_deref(),
            notification.previous_secret_expires,
        ),
    };
    let SignedRequest { headers, body } =
        signed_post(notification.kind, &notification.id, &notification.body, secrets, now);
    Ok(WebhookRequest { method: Method::Post, url, headers, body })
}

fn write_mail(base: &str, notification: &Notification) -> Option<Mail> {
    let mail = FailureMail::read(&notification.body)?;
    Some(Mail {
        to: notification.email.clone(),
        subject: mail.subject(),
        text: mail.text(base),
        gist: format!("{}: {}", mail.subject(), mail.link(base)),
        at: notification.created_at,
        stays: false,
    })
}

/// Whether the notice may still be told; the log says why not.
pub(in crate::engine) fn is_worth(notification: &Notification, now: Timestamp) -> bool {
    if notification.disabled_at.is_some() {
        give_up(notification, "the account is disabled");
    } else if is_expired(notification.created_at, now) {
        give_up(notification, "it is a day old");
    } else {
        return true;
    }
    false
}

fn give_up(notification: &Notification, why: &str) {
    let (id, kind, user_id) = (&notification.id, notification.kind.as_str(), &notification.user_id);
    tracing::warn!("notice {id} ({kind}) for user {user_id} is given up: {why}");
}
