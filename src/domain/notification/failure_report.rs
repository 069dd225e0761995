//! The report of an execution's final failure, as POST and as mail, and the rate limit of the mails.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::json::JsonText;
use crate::domain::notification::stored_mail::StoredMail;
use crate::domain::text::one_line;
use crate::domain::time::saturating_add;
use crate::domain::webhook::canonical_json::canonical;

/// Failure mails per user in [`RATE_WINDOW`] (contract §6).
pub const MAX_MAILS: usize = 10;

pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Characters of an error in a POST. A mail gets fewer, because it has one line for the error.
const MAX_POSTED: usize = 2_000;
const MAX_MAILED: usize = 500;

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

    /// The JSON that is signed and sent.
    pub fn body(&self) -> String {
        canonical(JsonText::from(&json!(self)).get())
    }
}

/// A failure mail as stored in the outbox, before its recipient is looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureMail {
    pub failure: FailureReport,
    /// Failures since the previous mail that were not mailed, because of the rate limit. Earlier versions stored the
    /// same JSON keys, so they stay.
    #[serde(rename = "held")]
    pub suppressed: u32,
    /// Set on the last mail within the rate limit: the end of the silence.
    #[serde(rename = "held_until")]
    pub suppressed_until: Option<String>,
}

impl StoredMail for FailureMail {}

impl FailureMail {
    pub fn subject(&self) -> String {
        format!("Cue {} failed", one_line(&self.failure.cue_name, 100))
    }

    /// The URL of the execution on the server at `base`.
    pub fn link(&self, base: &str) -> String {
        format!("{base}/v1/executions/{}", self.failure.execution_id)
    }

    pub fn text(&self, base: &str) -> String {
        let FailureReport { cue_id, cue_name, execution_id, attempts, failed_at, .. } = &self.failure;
        let error = self.failure.last_error.as_deref().unwrap_or("none");
        let http_status =
            self.failure.last_http_status.map_or("none".to_owned(), |status| status.to_string());
        let link = self.link(base);
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
        if self.suppressed > 0 {
            text +=
                &format!("\nFailures since the previous mail that were not mailed: {}\n", self.suppressed);
        }
        if let Some(until) = &self.suppressed_until {
            text += &format!(
                "\nThe limit of {MAX_MAILS} mails an hour is reached: failures before {until} are not mailed.\n\
                 All of them are at {base}/v1/executions?status=failed\n"
            );
        }
        text + "\nTo stop mails about this cue, PATCH it with {\"on_failure\": {\"email\": false}}\n"
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

    fn failure() -> FailureReport {
        FailureReport {
            event: FailureReport::EVENT.to_owned(),
            cue_id: "cue_abcdefghijkl".to_owned(),
            cue_name: "nightly\r\nBcc: x@example.com".to_owned(),
            execution_id: "0190a5c0-0000-7000-8000-000000000001".to_owned(),
            attempts: 4,
            last_http_status: Some(500),
            last_error: None,
            failed_at: "2026-01-01T10:00:00Z".to_owned(),
        }
    }

    fn mail(suppressed: u32, suppressed_until: Option<&str>) -> FailureMail {
        FailureMail { failure: failure(), suppressed, suppressed_until: suppressed_until.map(str::to_owned) }
    }

    #[test]
    fn the_eleventh_mail_waits_until_the_first_is_an_hour_old() {
        let (first, until) = (Some(at("2026-01-01T10:00:00Z")), at("2026-01-01T11:00:00Z"));
        assert_eq!(suppressed_until(None, until), None);
        assert_eq!(suppressed_until(first, at("2026-01-01T10:00:00Z")), Some(until));
        assert_eq!(suppressed_until(first, at("2026-01-01T10:59:59.999Z")), Some(until));
        assert_eq!(suppressed_until(first, until), None);
    }

    #[test]
    fn a_mail_names_suppressed_failures_and_the_end_of_the_silence() {
        let text = mail(0, None).text("http://cued");
        assert!(!text.contains("not mailed"), "{text}");
        let text = mail(2, Some("2026-01-01T11:00:00Z")).text("http://cued");
        assert!(text.contains("failures before 2026-01-01T11:00:00Z are not mailed"), "{text}");
        assert!(text.contains("that were not mailed: 2\n"), "{text}");
    }

    #[test]
    fn a_name_cannot_break_a_header_or_a_line() {
        let mail = mail(0, None);
        assert_eq!(mail.subject(), "Cue nightly Bcc: x@example.com failed");
        assert!(!mail.text("http://cued").contains("\nBcc"));
    }

    #[test]
    fn a_stored_mail_is_read_back() {
        let mail = mail(3, Some("2026-01-01T11:00:00Z"));
        let stored: serde_json::Value = serde_json::from_str(&mail.body()).unwrap();
        assert_eq!((&stored["held"], &stored["held_until"]), (&json!(3), &json!("2026-01-01T11:00:00Z")));
        assert_eq!(FailureMail::read(&mail.body()), Some(mail));
        assert_eq!(FailureMail::read("{}"), None);
    }
}
