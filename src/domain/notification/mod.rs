//! Notifications: their retry rules and expiry, and the mails about an account with their rate limit. The outbox stores
//! the canonical JSON of their fields; text and links are written when a mail is sent. `event`, the live events, is
//! stored nowhere.

pub mod alert;
pub mod event;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::account::credentials::sha256;
use crate::domain::execution::{AttemptResult, NextStep, RetryPolicy, after_attempt};
use crate::domain::json::{self, JsonText};
use crate::domain::notification::alert::AlertType;
use crate::domain::text::one_line;
use crate::domain::time::saturating_add;
use crate::domain::webhook::canonical_json::canonical;
use crate::domain::webhook::delivery::SignedRequest;
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
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    SignedRequest { headers, body: Some(body.as_bytes().to_vec()) }
}

/// Mails of an account in an hour above which a replacement is not mailed: failing cues alone cannot reach it.
pub const MAX_WITH_REPLACEMENTS: usize = MAX_MAILS + 5;

/// Characters of an error in a mail, which has one line for it.
const MAX_MAILED: usize = 500;

/// A mail as the outbox stores it, before its recipient is looked up. The names of the fields distinguish the kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredMail {
    /// Asks to confirm an address. An unconfirmed address gets it once, in place of its first failure mail, and no text
    /// that a caller has written (contract §3.10).
    Confirmation { user_id: String, confirmation_token: String },
    /// An API key or a secret was replaced (contract §3.9). The mail contains neither.
    Replacement { replaced: Credential, replaced_at: String },
    /// The message of a channel; a test is not repeated.
    Channel { title: String, text: String, link: Option<String>, is_test: bool },
    Failure {
        failure: FailureReport,
        /// Failures since the previous mail that were not mailed, because of the rate limit.
        #[serde(rename = "held")]
        suppressed: u32,
        /// Set on the last mail within the rate limit: the end of the silence.
        #[serde(rename = "held_until")]
        suppressed_until: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    ApiKey,
    WebhookSecret,
    AlertWebhookSecret,
}

impl Credential {
    /// Its name, and the effect of the replacement.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => ("API key", "The previous key is invalid."),
            Self::WebhookSecret => (
                "webhook secret",
                "Deliveries are signed with both secrets for 24 hours, then with the new one alone.",
            ),
            Self::AlertWebhookSecret => ("alert webhook secret", "The previous secret is invalid."),
        }
    }
}

impl StoredMail {
    pub fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }

    pub fn read(body: &str) -> Option<Self> {
        serde_json::from_value(json::read(body.as_bytes()).ok()?.get().to_value()).ok()
    }

    pub fn subject(&self) -> String {
        match self {
            Self::Confirmation { .. } => "Confirm your email address".to_owned(),
            Self::Replacement { replaced, .. } => {
                format!("Your {} was replaced", replaced.words().0)
            }
            Self::Channel { title, .. } => title.clone(),
            Self::Failure { failure, .. } => {
                format!("Cue {} failed", one_line(&failure.cue_name, 100))
            }
        }
    }

    /// The page of the server at `base` that confirms the address or where a user signs in without a key, or the
    /// execution.
    pub fn link(&self, base: &str) -> String {
        match self {
            Self::Confirmation { user_id, confirmation_token } => {
                format!("{base}/v1/auth/verify?token={confirmation_token}&user={user_id}")
            }
            Self::Replacement { .. } => format!("{base}/auth/device"),
            Self::Channel { link, .. } => link.clone().unwrap_or_default(),
            Self::Failure { failure, .. } => {
                format!("{base}/v1/executions/{}", failure.execution_id)
            }
        }
    }

    /// The link for the log of a server: a person opens it without a key, so it leads to the page if there is one.
    pub fn log_link(&self, base: &str, has_page: bool) -> String {
        match self {
            Self::Failure { failure, .. } if has_page => {
                format!("{base}/#/runs/{}", failure.execution_id)
            }
            _ => self.link(base),
        }
    }

    pub fn text(&self, base: &str) -> String {
        let link = self.link(base);
        match self {
            Self::Confirmation { .. } => format!(
                "This address was registered at {base}, and nobody has confirmed it yet. A job of the account has failed;\n\
                 failures are mailed to confirmed addresses only.\n\n\
                 If the account is yours, open this link and confirm:\n\n{link}\n\n\
                 If you did not register, do not open it: somebody else has the keys of this account. Ignore this mail, and you get\n\
                 no other one, unless somebody signs in with this address. Or take the account over: sign in a device with this\n\
                 address ({base}/auth/device), and choose there to revoke the other keys.\n"
            ),
            Self::Replacement { replaced, replaced_at } => {
                let (name, effect) = replaced.words();
                format!(
                    "The {name} of your account was replaced.\n\n\
                     Server:    {base}\n\
                     Time:      {replaced_at}\n\
                     Effect:    {effect}\n\n\
                     If it was you, there is nothing to do.\n\n\
                     If it was not you, somebody has a key of your account. Sign in a device with this address, and choose there\n\
                     to revoke the other keys:\n\n    {link}\n\n\
                     Then replace both secrets, with the new API key in KEY:\n\n    \
                     curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/webhook-secret/regenerate\n    \
                     curl -X POST -H \"Authorization: Bearer $KEY\" {base}/v1/auth/alert-webhook-secret/regenerate\n"
                )
            }
            Self::Channel { title, text, link, .. } => {
                let parts = [Some(title.as_str()), Some(text.as_str()), link.as_deref()];
                let mut lines: Vec<&str> =
                    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
                let page = format!("{base}/#/channels");
                // Without a link nobody knows the address of the page; a test has that of the channels already.
                let ending = match link.as_deref() {
                    None => {
                        "A channel of your account has sent this. `cued channel list` shows your channels.\n"
                            .to_owned()
                    }
                    Some(link) if link == page => "A channel of your account has sent this.\n".to_owned(),
                    Some(_) => format!("A channel of your account has sent this. Your channels: {page}\n"),
                };
                lines.push(&ending);
                lines.join("\n\n")
            }
            Self::Failure { failure, suppressed, suppressed_until } => {
                failure_text(failure, *suppressed, suppressed_until.as_deref(), base, &link)
            }
        }
    }
}

fn failure_text(
    failure: &FailureReport,
    suppressed: u32,
    until: Option<&str>,
    base: &str,
    link: &str,
) -> String {
    let FailureReport { cue_id, cue_name, execution_id, attempts, failed_at, .. } = failure;
    let error = failure.last_error.as_deref().unwrap_or("none");
    let http_status =
        failure.last_http_status.map_or("none".to_owned(), |status| status.to_string());
    let mut text = format!(
        "An execution of your cue has failed and will not be retried.\n\n\
         Cue:                {} ({cue_id})\n\
         Execution:          {execution_id}\n\
         Failed at:          {failed_at}\n\
         Attempts:           {attempts}\n\
         Last HTTP status:   {http_status}\n\
         Last error:         {}\n\n\
         Show it, with your API key in KEY:\n\n    curl -H \"Authorization: Bearer $KEY\" {link}\n\n\
         Run it again:\n\n    curl -X POST -H \"Authorization: Bearer $KEY\" {link}/replay\n",
        one_line(cue_name, 255),
        one_line(error, MAX_MAILED),
    );
    if suppressed > 0 {
        text += &format!("\nFailures since the previous mail that were not mailed: {suppressed}\n");
    }
    if let Some(until) = until {
        text += &format!(
            "\nThe limit of {MAX_MAILS} mails an hour is reached: failures before {until} are not mailed.\n\
             All of them are at {base}/v1/executions?status=failed\n"
        );
    }
    text + "\nTo stop mails about this cue, PATCH it with {\"on_failure\": {\"email\": false}}\n"
}

/// Failure mails per user in [`RATE_WINDOW`] (contract §6).
pub const MAX_MAILS: usize = 10;

pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

const MAX_POSTED: usize = 2_000;

/// The failure. Serializes to the body of the POST (contract §6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    pub event: String,
    pub cue_id: String,
    pub cue_name: String,
    pub execution_id: String,
    pub attempts: u32,
    pub last_http_status: Option<u16>,
    pub last_error: Option<String>,
    pub failed_at: String,
}

impl FailureReport {
    pub const EVENT: &'static str = "cue.failed";

    pub fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }
}

/// An error truncated for a POST: a reported error may have 64 KiB.
pub fn truncated(error: &str) -> String {
    error.chars().take(MAX_POSTED).collect()
}

/// The end of the silence that the rate limit imposes at `now`. `tenth` is the creation time of the user's tenth
/// newest mail.
pub fn suppressed_until(tenth: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let until = saturating_add(tenth?, RATE_WINDOW);
    (now < until).then_some(until)
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

    fn failure(suppressed: u32, suppressed_until: Option<&str>) -> StoredMail {
        let failure = FailureReport {
            event: FailureReport::EVENT.to_owned(),
            cue_id: "cue_abcdefghijkl".to_owned(),
            cue_name: "nightly\r\nBcc: x@example.com".to_owned(),
            execution_id: "0190a5c0-0000-7000-8000-000000000001".to_owned(),
            attempts: 4,
            last_http_status: Some(500),
            last_error: None,
            failed_at: "2026-01-01T10:00:00Z".to_owned(),
        };
        StoredMail::Failure {
            failure,
            suppressed,
            suppressed_until: suppressed_until.map(str::to_owned),
        }
    }

    #[test]
    fn a_stored_mail_is_read_back() {
        let confirmation = StoredMail::Confirmation {
            user_id: "u".to_owned(),
            confirmation_token: "t".to_owned(),
        };
        let replaced_at = "2026-01-01T10:00:00Z".to_owned();
        let replacement =
            StoredMail::Replacement { replaced: Credential::WebhookSecret, replaced_at };
        assert!(
            confirmation
                .text("http://cued")
                .contains("\nhttp://cued/v1/auth/verify?token=t&user=u\n")
        );
        assert!(replacement.text("http://cued").contains("\n    http://cued/auth/device\n"));
        for mail in
            [confirmation, replacement, failure(0, None), failure(3, Some("2026-01-01T11:00:00Z"))]
        {
            assert_eq!(StoredMail::read(&mail.body()), Some(mail));
        }
        assert_eq!(StoredMail::read("{}"), None);
    }

    #[test]
    fn a_mail_of_a_channel_ends_with_where_the_channels_are() {
        for (link, ending) in [
            (
                None,
                "\n\nA channel of your account has sent this. `cued channel list` shows your channels.\n",
            ),
            (
                Some("http://cued/#/runs/1"),
                "\n\nhttp://cued/#/runs/1\n\nA channel of your account has sent this. Your channels: \
                 http://cued/#/channels\n",
            ),
            (
                Some("http://cued/#/channels"),
                "\n\nhttp://cued/#/channels\n\nA channel of your account has sent this.\n",
            ),
        ] {
            let (title, text) = ("backup failed".to_owned(), String::new());
            let mail =
                StoredMail::Channel { title, text, link: link.map(str::to_owned), is_test: false };
            assert_eq!(mail.text("http://cued"), format!("backup failed{ending}"));
        }
    }
}
