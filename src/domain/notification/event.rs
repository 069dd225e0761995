//! Live events: what has changed, for a client that follows its account (contract §8.13).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::cue::tags::Tags;
use crate::domain::row_keys::UserKey;
use crate::domain::text::{one_line, word_enum};
use crate::domain::time::instant;

/// The length of an error message in an event, as of the message of an alert: it may be the text of a worker.
const MAX_MESSAGE_CHARS: usize = 500;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum EventType {
        ExecutionCreated = "execution.created",
        ExecutionStarted = "execution.started",
        ExecutionRetrying = "execution.retrying",
        ExecutionSucceeded = "execution.succeeded",
        ExecutionFailed = "execution.failed",
        ExecutionClaimed = "execution.claimed",
        ExecutionClaimLost = "execution.claim_lost",
        ExecutionOutcome = "execution.outcome",
        /// The verification state of its outcome was set after the report.
        ExecutionVerified = "execution.verified",
        ExecutionCancelled = "execution.cancelled",
        CueCreated = "cue.created",
        CueUpdated = "cue.updated",
        CuePaused = "cue.paused",
        CueResumed = "cue.resumed",
        CueCompleted = "cue.completed",
        CueFailed = "cue.failed",
        CueDeleted = "cue.deleted",
        MissedRecorded = "missed.recorded",
        AlertCreated = "alert.created",
        /// The first heartbeat of a worker, or the first after it was no longer active.
        WorkerSeen = "worker.seen",
        QuotaNear = "quota.near",
        QuotaExceeded = "quota.exceeded",
        ServerState = "server.state",
        /// Stands for events that were too many to be sent one by one.
        Burst = "burst",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ServerChange {
        Writable = "writable",
        Unwritable = "unwritable",
        Damaged = "damaged",
        Held = "held",
        Promoted = "promoted",
        /// The system's clock has jumped far ahead and is not believed.
        ClockAhead = "clock_ahead",
        ClockBehind = "clock_behind",
        ClockRight = "clock_right",
        ClockMoved = "clock_moved",
        Stopping = "stopping",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub event_type: EventType,
    /// `None` for the events of the server, which all users get.
    pub user_key: Option<UserKey>,
    pub cue_id: Option<String>,
    /// Those that its cue has at the event.
    pub tags: Tags,
    pub data: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingEvent {
    Event(Event),
    /// One that the user's share of single events has no room for.
    Counted {
        user_key: UserKey,
        event_type: EventType,
    },
}

/// Single events of a user in one commit, as many as a page of a list; further ones are counted in a `burst`.
pub const MAX_SINGLE_PER_COMMIT: u32 = 32;

/// The receiver of events. Its functions are called by the writer thread, and never wait.
pub trait EventSink: Send + Sync {
    fn is_watched(&self) -> bool;

    fn is_watched_by(&self, user_key: UserKey) -> bool;

    fn publish(&self, events: Vec<PendingEvent>);
}

impl Event {
    pub fn new(
        event_type: EventType,
        user_key: UserKey,
        cue_id: Option<String>,
        data: &impl Serialize,
    ) -> Self {
        Self {
            event_type,
            user_key: Some(user_key),
            cue_id,
            tags: Tags::default(),
            data: to_text(data),
        }
    }

    pub fn with_tags(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    pub fn server(change: ServerChange, at: Timestamp) -> Self {
        let data = to_text(&json!({"state": change.as_str(), "at": instant(at)}));
        let (event_type, tags) = (EventType::ServerState, Tags::default());
        Self { event_type, user_key: None, cue_id: None, tags, data }
    }
}

/// The data of all events of executions. Fields that do not apply are null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecutionEvent {
    pub execution_id: String,
    pub cue_id: String,
    pub cue_name: String,
    pub status: &'static str,
    pub triggered_by: &'static str,
    pub scheduled_for: String,
    pub attempt: u32,
    pub max_attempts: u32,
    pub worker_id: Option<String>,
    pub outcome_state: Option<&'static str>,
    pub cause: Option<String>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
    pub duration_ms: Option<i64>,
    pub late_ms: Option<i64>,
    pub next_retry: Option<String>,
    pub outcome_due_at: Option<String>,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CueEvent {
    pub cue_id: String,
    pub cue_name: String,
    pub status: &'static str,
    pub next_run: Option<String>,
    pub at: String,
}

pub fn message(text: &str) -> String {
    one_line(text, MAX_MESSAGE_CHARS)
}

/// The data of a `burst`: the number of events of each type, in `span_ms` milliseconds.
pub fn burst_data(span_ms: u64, counts: &BTreeMap<EventType, u64>) -> String {
    let counts: serde_json::Map<String, Value> = counts
        .iter()
        .map(|(event_type, count)| (event_type.as_str().to_owned(), (*count).into()))
        .collect();
    json!({"span_ms": span_ms, "counts": counts}).to_string()
}

/// The events that a stream carries. `burst` comes with each type that it counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    types: Option<Vec<EventType>>,
    cue_id: Option<String>,
    tags: Tags,
}

impl EventFilter {
    /// The filter for a comma-separated list of types and of their first words, and for the events of one cue.
    pub fn new(types: Option<&str>, cue_id: Option<String>) -> Result<Self, String> {
        let Some(list) = types else { return Ok(Self { cue_id, ..Self::default() }) };
        let mut selected = Vec::new();
        for word in list.split(',').map(str::trim) {
            let before = selected.len();
            selected.extend(
                EventType::ALL.into_iter().filter(|it| it.as_str() == word || it.group() == word),
            );
            if selected.len() == before {
                return Err(word.to_owned());
            }
        }
        Ok(Self { types: Some(selected), cue_id, ..Self::default() })
    }

    /// Narrows the filter to the events of cues that have all of the tags.
    pub fn with_tags(self, tags: Tags) -> Self {
        Self { tags, ..self }
    }

    pub fn has_type(&self, event_type: EventType) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(&event_type))
    }

    /// The events of the server belong to every cue.
    pub fn admits(&self, event: &Event) -> bool {
        let is_of_cue = self.cue_id.is_none() || event.cue_id == self.cue_id;
        let is_selected = event.user_key.is_none() || (is_of_cue && event.tags.has_all(&self.tags));
        is_selected && self.has_type(event.event_type)
    }
}

impl EventType {
    pub fn group(self) -> &'static str {
        let word = self.as_str();
        word.split_once('.').map_or(word, |(group, _)| group)
    }
}

fn to_text(data: &impl Serialize) -> Box<str> {
    // Plain values have a JSON form; an object without fields would stand for a fault.
    serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: EventType, cue_id: Option<&str>) -> Event {
        Event::new(event_type, UserKey::new(1), cue_id.map(str::to_owned), &json!({}))
    }

    #[test]
    fn a_filter_takes_types_and_their_groups() {
        let filter = EventFilter::new(Some("execution, alert.created"), None).unwrap();
        for (event_type, admitted) in [
            (EventType::ExecutionFailed, true),
            (EventType::ExecutionCancelled, true),
            (EventType::AlertCreated, true),
            (EventType::CueFailed, false),
            (EventType::ServerState, false),
        ] {
            assert_eq!(filter.admits(&event(event_type, None)), admitted, "{event_type:?}");
        }
        assert!(EventFilter::default().admits(&event(EventType::QuotaNear, None)));
    }

    #[test]
    fn an_unknown_type_is_refused_by_its_name() {
        for (list, word) in
            [("execution,no", "no"), ("", ""), ("exec", "exec"), ("cue.", "cue."), ("cue,,", "")]
        {
            assert_eq!(EventFilter::new(Some(list), None), Err(word.to_owned()), "{list:?}");
        }
    }
}
