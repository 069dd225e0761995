//! One notice: what is sent of it, by POST or by mail, and what follows from how that went. No database here.

use jiff::Timestamp;

use crate::domain::execution::Next;
use crate::domain::notification::failure_report::FailureMail;
use crate::domain::notification::{Kind, after_mail, after_post, is_stale, post};
use crate::domain::webhook::callback::Method;
use crate::domain::webhook::callback_url::authority_of;
use crate::domain::webhook::request::Message;
use crate::domain::webhook::signature::Secrets;
use crate::engine::delivery::attempt::{Outcome, carry};
use crate::engine::scheduler::scheduler_thread::caught;
use crate::engine::webhook_client::{Courier, Parcel};
use crate::mail::{Mail, MailRoute, SmtpFault};
use crate::store::notifications::outbox::Notice;

/// A try to tell a notice that has ended.
pub struct Told {
    pub(in crate::engine) key: i64,
    /// None for a mail.
    pub(in crate::engine) lane: Option<i64>,
    pub(in crate::engine) next: Next,
    pub(in crate::engine) timed_out: bool,
}

/// Sends a POST, signed at `now`, and waits for the answer. Never panics.
pub fn send(courier: &dyn Courier, notice: &Notice, now: Timestamp) -> Outcome {
    carry(courier, || parcel(notice, now), &notice.id)
}

/// What a POST that ended at `now` means for its notice.
#[must_use]
pub fn judge(notice: &Notice, outcome: &Outcome, now: Timestamp) -> Told {
    let attempt = notice.attempts + 1;
    let next = after_post(attempt, notice.created_at, &outcome.attempt(now), now);
    if next == Next::Failed {
        let why = match outcome {
            Outcome::Answered(receipt) => format!("it answered {}", receipt.http_status),
            Outcome::Unanswered { reason, .. } | Outcome::Unsendable(reason) => reason.clone(),
        };
        // The host alone: the path of such a URL is often a secret.
        let host = notice.url.as_deref().map(authority_of).unwrap_or_default();
        give_up(notice, &format!("attempt {attempt} to tell {host}: {why}"));
    }
    Told { key: notice.key, lane: notice.lane, next, timed_out: outcome.timed_out() }
}

/// Sends a mail, with links to the server at `base`, and waits until it is taken or refused. Never panics.
///
/// # Errors
/// Why it was not taken.
pub fn send_mail(route: &MailRoute, base: &str, notice: &Notice) -> Result<(), SmtpFault> {
    let mail = write_mail(base, notice).ok_or(SmtpFault::lasting("what is stored of it cannot be read"))?;
    caught(|| Ok(route.send(&mail))).unwrap_or_else(|error| Err(SmtpFault::lasting(&error.to_string())))
}

/// What a mail that was taken or refused at `now` means for its notice.
#[must_use]
pub fn judge_mail(notice: &Notice, sent: &Result<(), SmtpFault>, now: Timestamp) -> Told {
    let attempt = notice.attempts + 1;
    let next = match sent {
        Ok(()) => Next::Success,
        Err(fault) if fault.passes => after_mail(attempt, notice.created_at, now),
        Err(_) => Next::Failed,
    };
    if let Err(fault) = sent {
        log_fault(notice, attempt, fault, next);
    }
    Told { key: notice.key, lane: None, next, timed_out: false }
}

fn log_fault(notice: &Notice, attempt: u32, fault: &SmtpFault, next: Next) {
    let (id, user_id) = (&notice.id, &notice.user_id);
    match next {
        Next::RetryAt(due) if attempt == 1 => {
            tracing::warn!(
                "notice {id} (mail) for user {user_id} could not be sent, next try at {due}: {fault}"
            );
        }
        // An outage of the mail server lasts for many tries of many mails.
        Next::RetryAt(due) => tracing::debug!("notice {id} (mail) is tried again at {due}: {fault}"),
        Next::Success | Next::Failed => give_up(notice, &format!("attempt {attempt} to mail it: {fault}")),
    }
}

fn parcel(notice: &Notice, now: Timestamp) -> Result<Parcel, String> {
    let url = notice.url.clone().ok_or("the notice has no URL")?;
    let secrets = match notice.kind {
        Kind::Alert(_) => Secrets { current: &notice.alert_webhook_secret, previous: None },
        Kind::Failure | Kind::Mail => Secrets::at(
            now,
            &notice.webhook_secret,
            notice.previous_secret.as_deref(),
            notice.previous_secret_expires,
        ),
    };
    let Message { headers, body } = post(notice.kind, &notice.id, &notice.body, secrets, now);
    Ok(Parcel { method: Method::Post, url, headers, body })
}

fn write_mail(base: &str, notice: &Notice) -> Option<Mail> {
    let mail = FailureMail::read(&notice.body)?;
    Some(Mail {
        to: notice.email.clone(),
        subject: mail.subject(),
        text: mail.text(base),
        gist: format!("{}: {}", mail.subject(), mail.link(base)),
        at: notice.created_at,
        stays: false,
    })
}

/// Whether the notice may still be told; the log says why not.
pub(in crate::engine) fn is_worth(notice: &Notice, now: Timestamp) -> bool {
    if notice.disabled_at.is_some() {
        give_up(notice, "the account is disabled");
    } else if is_stale(notice.created_at, now) {
        give_up(notice, "it is a day old");
    } else {
        return true;
    }
    false
}

fn give_up(notice: &Notice, why: &str) {
    let (id, kind, user_id) = (&notice.id, notice.kind.as_str(), &notice.user_id);
    tracing::warn!("notice {id} ({kind}) for user {user_id} is given up: {why}");
}
