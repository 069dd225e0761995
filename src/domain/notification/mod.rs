//! Notifications: their retry rules and expiry. `event`, the live events, is stored nowhere.

pub mod alert;
pub mod event;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::credentials::sha256;
use crate::domain::execution::{AttemptResult, NextStep, RetryPolicy, after_attempt};
use crate::domain::notification::alert::AlertType;
use crate::domain::secret::Secret;
use crate::domain::webhook::delivery::{SignedRequest, delivery_headers};
use crate::domain::webhook::signature::{SigningSecrets, signature_headers};

/// A notification that is older than this is dropped: a day later, the list of failed executions says more.
pub const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Waiting POSTs of one kind per user: a receiver that is down for a day must not fill the outbox.
pub const MAX_WAITING: u32 = 1_000;

/// A full backlog counts as cleared at half of the limit, so that a backlog that stays near the limit is logged once.
pub const BACKLOG_CLEARED: u32 = MAX_WAITING / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationKind {
    Mail,
    Failure,
    Channel,
    Alert(AlertType),
}

impl NotificationKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Failure => "failure",
            Self::Channel => "channel",
            Self::Alert(alert_type) => alert_type.as_str(),
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "mail" => Some(Self::Mail),
            "failure" => Some(Self::Failure),
            "channel" => Some(Self::Channel),
            word => AlertType::parse(word).map(Self::Alert),
        }
    }
}

/// The id of a notification `about` the id of an execution or the key of a user: derived from the arguments, so that
/// repeating a write creates no second notification.
pub fn notification_id(about: &[u8], kind: NotificationKind, at: Timestamp) -> String {
    let facts = [about, kind.as_str().as_bytes(), &at.as_millisecond().to_be_bytes()].concat();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sha256(&facts)[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// The next step after POST number `attempt` (from 1): at most three, enough for a restart of the receiver. The API
/// still has the failure.
pub fn after_post(
    attempt: u32,
    created_at: Timestamp,
    ended: &AttemptResult,
    now: Timestamp,
) -> NextStep {
    let retry =
        RetryPolicy { max_attempts: 3, backoff_minutes: vec![1.0, 5.0], backoff_seconds: None };
    unless_expired(after_attempt(&retry, attempt, ended, now), created_at)
}

/// The next step after attempt number `attempt` (from 1) to send a mail that the mail server refused for now: quick
/// for greylisting, which usually accepts a second attempt within minutes, then every half hour.
pub fn after_mail(attempt: u32, created_at: Timestamp, now: Timestamp) -> NextStep {
    let retry = RetryPolicy {
        max_attempts: u32::MAX,
        backoff_minutes: vec![1.0, 5.0, 15.0, 30.0],
        backoff_seconds: None,
    };
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
    SignedRequest {
        headers: delivery_headers(Secret::default(), headers),
        body: Some(body.as_bytes().to_vec().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
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
            assert_eq!(
                after_post(attempt, made, &ended, now),
                next,
                "attempt {attempt}: {ended:?}"
            );
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
