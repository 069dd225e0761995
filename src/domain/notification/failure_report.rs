//! The report of an execution's final failure, and the rate limit of the mails about it.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::json::JsonText;
use crate::domain::time::saturating_add;
use crate::domain::webhook::canonical_json::canonical;

/// Failure mails per user in [`RATE_WINDOW`] (contract §6).
pub const MAX_MAILS: usize = 10;

pub const RATE_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Characters of an error in a POST.
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

    /// The JSON that is signed and sent.
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
