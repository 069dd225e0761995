//! An event as a stream or a list has it, and the selection of events.

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::output::table::text_of;
use crate::client::event_stream::StreamEvent;

/// The events that are shown by default: results, and what needs attention.
const DEFAULT: &str = "execution.retrying,execution.succeeded,execution.failed,execution.cancelled,execution.claim_lost,\
                       execution.outcome,missed,alert,quota,cue.paused,cue.failed,server";

const FAILURES: &str = "execution.retrying,execution.failed,execution.claim_lost,execution.outcome,missed,alert,\
                        quota.exceeded,cue.failed";

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
    /// An event that is read from a list.
    pub fn listed(event: &str, data: Value) -> Self {
        Self { id: None, event: event.to_owned(), text: data.to_string(), data, body: None }
    }

    /// The last event of a run, by its list row; `None` of one that has not been attempted.
    pub fn of_run(run: &Value) -> Option<Self> {
        let event = match run["status"].as_str()? {
            "success" => "execution.succeeded",
            "failed" if run["error_message"] == "cancelled" => "execution.cancelled",
            "failed" => "execution.failed",
            "retrying" => "execution.retrying",
            _ => return None,
        };
        let mut data = run.clone();
        for (name, of_row) in [
            ("execution_id", "id"),
            ("attempt", "attempts"),
            ("at", "updated_at"),
            ("worker_id", "claimed_by_worker"),
        ] {
            data[name] = run[of_row].clone();
        }
        Some(Self::listed(event, data))
    }

    /// An event of a stream; `None` if its data is no JSON.
    pub fn streamed(event: StreamEvent) -> Option<Self> {
        let data = serde_json::from_str(&event.data).ok()?;
        Some(Self { id: Some(event.id), event: event.event, text: event.data, data, body: None })
    }

    /// The instant of the change.
    pub fn at(&self) -> Option<Timestamp> {
        let field = if self.event == "alert.created" { "created_at" } else { "at" };
        self.data[field].as_str()?.parse().ok()
    }

    pub fn number(&self, field: &str) -> Option<i64> {
        self.data[field].as_i64()
    }

    pub fn field(&self, field: &str) -> String {
        text_of(&self.data, field)
    }

    /// The key under which the same event of a list and of a stream are known; `None` of those that no list has.
    pub fn key(&self) -> Option<(String, String, i64)> {
        let id = if self.event == "alert.created" { "id" } else { "execution_id" };
        Some((self.event.clone(), self.data[id].as_str()?.to_owned(), self.number("attempt").unwrap_or(0)))
    }

    pub fn is_failed_attempt(&self) -> bool {
        matches!(self.event.as_str(), "execution.retrying" | "execution.failed")
    }

    pub fn is_failed_outcome(&self) -> bool {
        matches!(self.data["outcome_state"].as_str(), Some("reported_failure" | "verification_failed"))
    }

    /// A line of JSON. An alert has an id of its own: so the data stays an object in the object.
    pub fn json(&self) -> String {
        let (id, event) = (Value::from(self.id.clone()), Value::from(self.event.as_str()));
        let body = self.body.as_deref().map(|body| format!(",\"response_body\":{}", Value::from(body)));
        format!("{{\"id\":{id},\"event\":{event},\"data\":{}{}}}", self.text, body.unwrap_or_default())
    }
}

#[derive(Debug, Clone)]
pub struct Selection {
    /// Types of events, or their first words.
    pub words: Vec<String>,
    is_default: bool,
    only_failures: bool,
}

impl Selection {
    /// The events of `types`, if any are named.
    pub fn new(types: &[String], only_failures: bool) -> Self {
        let default = if only_failures { FAILURES } else { DEFAULT };
        let is_default = types.is_empty();
        let words = if is_default {
            default.split(',').map(str::to_owned).collect()
        } else {
            types.iter().map(|word| word.trim().to_owned()).collect()
        };
        Self { words, is_default, only_failures }
    }

    pub fn has_runs(&self) -> bool {
        self.words.iter().any(|word| word.split('.').next() == Some("execution"))
    }

    pub fn has_type(&self, event: &str) -> bool {
        let group = event.split('.').next();
        self.words.iter().any(|word| word == event || Some(word.as_str()) == group)
    }

    /// Whether an event is shown that has a selected type.
    pub fn admits(&self, event: &TailEvent) -> bool {
        // The result of a worker's run is its outcome, and is shown as that of the run.
        event.event != "execution.outcome"
            || !self.is_default
            || (event.data["worker_id"].is_null() && (event.is_failed_outcome() || !self.only_failures))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_and_their_first_words_select_events_and_outcomes_those_of_deliveries() {
        let selection = |types: &str, only_failures| {
            let types: Vec<String> = types.split_terminator(',').map(str::to_owned).collect();
            Selection::new(&types, only_failures)
        };
        let has = |selection: &Selection| {
            ["execution.created", "execution.failed", "execution.succeeded", "alert.created", "cue.updated"]
                .map(|word| selection.has_type(word))
        };
        assert_eq!(has(&selection("", false)), [false, true, true, true, false]);
        assert_eq!(has(&selection("", true)), [false, true, false, true, false]);
        assert_eq!(has(&selection("execution.created,cue", false)), [true, false, false, false, true]);
        assert!(!selection("alert", false).has_runs() && selection("execution", false).has_runs());
        let outcome = |worker: Option<&str>, state: &str| {
            TailEvent::listed("execution.outcome", json!({"worker_id": worker, "outcome_state": state}))
        };
        let failures = selection("", true);
        assert!(failures.admits(&outcome(None, "reported_failure")));
        assert!(!failures.admits(&outcome(None, "reported_success")));
        assert!(!failures.admits(&outcome(Some("w"), "reported_failure")));
        assert!(selection("execution", false).admits(&outcome(Some("w"), "reported_failure")));
    }
}
