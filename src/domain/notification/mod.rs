//! Notifications of failures: their channels, retry rules and expiry. They are stored in the outbox.
//!
//! Not here: their content (`failure_report`, `mail`, `alert`, `test_alert`), and `event`, the live events, which are stored
//! nowhere.

pub mod alert;
pub mod event;
pub mod mail;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::sha256;
use crate::domain::execution::{AttemptResult, NextStep, RetryPolicy, after_attempt};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::alert::AlertType;
use crate::domain::webhook::request::SignedRequest;
use crate::domain::webhook::signature::{SigningSecrets, signature_headers};

/// A notification that is older than this is dropped: a day later, the list of failed executions says more.
pub const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Waiting POSTs of one kind per user; more are dropped until the backlog shrinks.
/// A receiver that is down for a day while its cues fail every few minutes must not fill the outbox.
pub const MAX_WAITING: u32 = 1_000;

/// A full backlog counts as cleared at half of the limit, so that a backlog that stays near the limit is logged once.
pub const BACKLOG_CLEARED: u32 = MAX_WAITING / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationKind {
    Mail,
    /// A POST to the cue's `on_failure.webhook`.
    Failure,
    /// A POST to the user's `alert_webhook_url`.
    Alert(AlertType),
}

impl NotificationKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Failure => "failure",
            Self::Alert(alert_type) => alert_type.as_str(),
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "mail" => Some(Self::Mail),
            "failure" => Some(Self::Failure),
            word => AlertType::parse(word).map(Self::Alert),
        }
    }
}

/// The id of a notification about `execution` at `at`: a UUID derived from the arguments, so that repeating a write
/// creates no second notification.
pub fn notification_id(execution: ExecutionId, kind: NotificationKind, at: Timestamp) -> String {
    derived_id(execution.bytes(), kind, at)
}

pub fn account_notification_id(user_key: i64, kind: NotificationKind, at: Timestamp) -> String {
    derived_id(&user_key.to_be_bytes(), kind, at)
}

fn derived_id(about: &[u8], kind: NotificationKind, at: Timestamp) -> String {
    let facts = [about, kind.as_str().as_bytes(), &at.as_millisecond().to_be_bytes()].concat();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sha256(&facts)[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// The next step after POST number `attempt` (from 1) of a notification created at `created_at`.
/// At most three attempts, one and five minutes apart, or later if `Retry-After` asks for it, up to [`MAX_AGE`]:
/// enough for a restart of the receiver. A dead receiver costs little, since the failure can be read over the API.
pub fn after_post(attempt: u32, created_at: Timestamp, ended: &AttemptResult, now: Timestamp) -> NextStep {
    let retry = RetryPolicy { max_attempts: 3, backoff_minutes: vec![1.0, 5.0] };
    unless_expired(after_attempt(&retry, attempt, ended, now), created_at)
}

/// The next step after attempt number `attempt` (from 1) to send a mail created at `created_at` that the mail server
/// refused for now.
/// Retries after 1, 5 and 15 minutes and then every half hour, up to [`MAX_AGE`]: quick for greylisting, which
/// usually accepts a second attempt within minutes, and 48 attempts a day for a server that is down longer.
pub fn after_mail(attempt: u32, created_at: Timestamp, now: Timestamp) -> NextStep {
    let retry = RetryPolicy { max_attempts: u32::MAX, backoff_minutes: vec![1.0, 5.0, 15.0, 30.0] };
    unless_expired(after_attempt(&retry, attempt, &AttemptResult::NoResponse, now), created_at)
}

fn unless_expired(next: NextStep, created_at: Timestamp) -> NextStep {
    match next {
        NextStep::RetryAt(due) if is_expired(created_at, due) => NextStep::Failed,
        next => next,
    }
}

pub fn is_expired(created_at: Timestamp, now: Timestamp) -> bool {
    created_at.checked_add(MAX_AGE).is_ok_and(|end| end <= now)
}

/// The POST of a notification, signed at `now` with both signatures of a delivery.
pub fn signed_post(
    kind: NotificationKind,
    id: &str,
    body: &str,
    secrets: SigningSecrets<'_>,
    now: Timestamp,
) -> SignedRequest {
    let mut headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("User-Agent", concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned()),
    ];
    if let NotificationKind::Alert(alert_type) = kind {
        headers.push(("X-CueAPI-Alert-Id", id.to_owned()));
        headers.push(("X-CueAPI-Alert-Type", alert_type.as_str().to_owned()));
    }
    headers.extend(signature_headers(secrets, id, now.as_second(), body.as_bytes()));
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    SignedRequest { headers, body: Some(body.as_bytes().to_vec()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn words_and_kinds_convert_into_each_other() {
        for word in ["mail", "failure"].into_iter().chain(AlertType::WORDS) {
            assert_eq!(NotificationKind::parse(word).unwrap().as_str(), word);
        }
        assert_eq!(NotificationKind::parse("pigeon"), None);
    }

    #[test]
    fn an_id_is_derived_from_execution_kind_and_instant() {
        let execution = ExecutionId::parse("0190a5c0-0000-7000-8000-000000000001").unwrap();
        let other = ExecutionId::parse("0190a5c0-0000-7000-8000-000000000002").unwrap();
        let (now, later) = (at("2026-01-01T10:00:00Z"), at("2026-01-01T10:00:00.001Z"));
        let id = notification_id(execution, NotificationKind::Failure, now);
        assert_eq!(id, notification_id(execution, NotificationKind::Failure, now));
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'8'), "{id} is a UUID of version 8");
        for another in [
            notification_id(other, NotificationKind::Failure, now),
            notification_id(execution, NotificationKind::Mail, now),
            notification_id(execution, NotificationKind::Failure, later),
        ] {
            assert_ne!(id, another);
        }
    }

    #[test]
    fn a_post_has_three_attempts_and_none_after_a_day() {
        let (made, now) = (at("2026-01-01T10:00:00Z"), at("2026-01-01T12:00:00Z"));
        let responded = |http_status, hours: i64| AttemptResult::Responded {
            http_status,
            retry_after: Some(SignedDuration::from_hours(hours)),
        };
        for (attempt, ended, next) in [
            (1, responded(204, 0), NextStep::Success),
            (1, responded(500, 0), NextStep::RetryAt(at("2026-01-01T12:01:00Z"))),
            (2, AttemptResult::TimedOut, NextStep::RetryAt(at("2026-01-01T12:05:00Z"))),
            (3, responded(500, 0), NextStep::Failed),
            (1, responded(410, 0), NextStep::Failed),
            (1, responded(429, 21), NextStep::RetryAt(at("2026-01-02T09:00:00Z"))),
            (1, responded(429, 22), NextStep::Failed),
        ] {
            assert_eq!(after_post(attempt, made, &ended, now), next, "attempt {attempt}: {ended:?}");
        }
        for (attempt, now, next) in [
            (1, "2026-01-01T12:00:00Z", NextStep::RetryAt(at("2026-01-01T12:01:00Z"))),
            (9, "2026-01-01T12:00:00Z", NextStep::RetryAt(at("2026-01-01T12:30:00Z"))),
            (40, "2026-01-02T09:30:00Z", NextStep::Failed),
        ] {
            assert_eq!(after_mail(attempt, made, at(now)), next, "mail, attempt {attempt}");
        }
        assert!(!is_expired(made, at("2026-01-02T09:59:59Z")));
        assert!(is_expired(made, at("2026-01-02T10:00:00Z")));
    }
}
