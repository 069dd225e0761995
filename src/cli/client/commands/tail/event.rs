//! An event as a stream sends it, or as the lists tell it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::output::cells::text_of;
use crate::client::event_stream::StreamEvent;

/// Events that happen once for an attempt of a run.
const OF_ATTEMPT: [&str; 4] =
    ["execution.retrying", "execution.succeeded", "execution.failed", "execution.cancelled"];

#[derive(Debug, Clone, PartialEq)]
pub struct TailEvent {
    /// `None` if it comes from a list.
    pub id: Option<String>,
    pub event: String,
    pub data: Value,
    /// The data as the server sent it.
    text: String,
    /// The body of the response of a failed attempt, if it was read.
    pub body: Option<String>,
}

impl TailEvent {
    /// An event that a list tells.
    #[must_use]
    pub fn listed(event: &str, data: Value) -> Self {
        Self { id: None, event: event.to_owned(), text: data.to_string(), data, body: None }
    }

    /// An event of a stream; `None` if its data is no JSON.
    #[must_use]
    pub fn streamed(event: StreamEvent) -> Option<Self> {
        let data = serde_json::from_str(&event.data).ok()?;
        Some(Self { id: Some(event.id), event: event.event, text: event.data, data, body: None })
    }

    /// The instant of the change.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        let field = if self.event == "alert.created" { "created_at" } else { "at" };
        self.data[field].as_str()?.parse().ok()
    }

    #[must_use]
    pub fn number(&self, field: &str) -> Option<i64> {
        self.data[field].as_i64()
    }

    #[must_use]
    pub fn field(&self, field: &str) -> String {
        text_of(&self.data, field)
    }

    /// By which the same event of a list and of a stream are known; `None` for those that no list tells.
    #[must_use]
    pub fn key(&self) -> Option<u64> {
        let id = match self.event.as_str() {
            "alert.created" => &self.data["id"],
            word if OF_ATTEMPT.contains(&word) => &self.data["execution_id"],
            _ => return None,
        };
        let mut hasher = DefaultHasher::new();
        (&self.event, id.as_str()?, self.number("attempt")).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// By which the end of a run is known; of its end and of what comes before an end, `None` of other events.
    #[must_use]
    pub fn end_key(&self) -> Option<u64> {
        if !self.is_end() && !self.is_beginning() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        ("end", self.data["execution_id"].as_str()?).hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The run has ended.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self.event.as_str(), "execution.succeeded" | "execution.failed" | "execution.cancelled")
    }

    /// The run begins, or an attempt of it. No list tells these.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        matches!(self.event.as_str(), "execution.created" | "execution.started" | "execution.claimed")
    }

    #[must_use]
    pub fn is_failed_attempt(&self) -> bool {
        matches!(self.event.as_str(), "execution.retrying" | "execution.failed")
    }

    #[must_use]
    pub fn is_failed_outcome(&self) -> bool {
        matches!(self.data["outcome_state"].as_str(), Some("reported_failure" | "verification_failed"))
    }

    /// A line of JSON. An alert has an id of its own: so the data stays an object in the object.
    #[must_use]
    pub fn json(&self) -> String {
        let id = Value::from(self.id.clone());
        let body =
            self.body.as_ref().map(|body| format!(",\"response_body\":{}", Value::from(body.as_str())));
        let data = if serde_json::from_str::<&RawValue>(&self.text).is_ok() { &self.text } else { "null" };
        let event = Value::from(self.event.as_str());
        format!("{{\"id\":{id},\"event\":{event},\"data\":{data}{}}}", body.unwrap_or_default())
    }
}
