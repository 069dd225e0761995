//! Cues: their fields and payloads, and the effect of creating, changing and ending on their state (contract §4).

mod change;
pub mod list;
pub mod retention;
pub mod slug;
pub mod tags;

pub use crate::domain::cue_fields::Transport;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::slug::Slug;
use crate::domain::cue::tags::Tags;
use crate::domain::cue_fields::Policies;
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::json::{JsonObject, JsonStr, JsonText, merged, read};
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::{Bounds, CatchUp, Schedule, ScheduleError, ScheduleRule, Zone};
use crate::domain::text::word_enum;
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::canonical_json::canonical;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CueStatus {
        Active = "active",
        Paused = "paused",
        Completed = "completed",
        /// The only run failed, or the next instant cannot be computed.
        Failed = "failed",
    }
}

/// A stored cue without its payload, which has a row of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Cue {
    pub key: CueKey,
    pub id: String,
    pub user_key: UserKey,
    pub status: CueStatus,
    pub next_run: Option<Timestamp>,
    pub last_run: Option<Timestamp>,
    pub run_count: i64,
    pub missed_count: i64,
    pub payload_key: Option<i64>,
    pub fields: CueFields,
    /// A hint for the owner: unknown fields in the create request, or the reason of a failure.
    pub warning: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub failing: i64,
}

/// What users say of a cue, beside its payload and its status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CueFields {
    pub slug: Option<Slug>,
    pub name: String,
    pub description: Option<String>,
    pub tags: Tags,
    pub schedule: StoredSchedule,
    pub transport: Transport,
    pub callback: Option<Callback>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    pub policies: Policies,
}

/// What a request makes of a cue, or the cue that it creates.
#[derive(Debug, Clone, Default)]
pub struct CueRequest {
    /// All of them: a PATCH repeats those of the cue that it does not name.
    pub fields: CueFields,
    /// `None` if it is not named.
    pub payload: Option<Option<Payload>>,
    pub status: Option<RequestedStatus>,
    pub warning: Option<String>,
    /// That of the fields as it was read, if it was.
    pub schedule: Option<Schedule>,
    /// What is left out has its default, and is not as it was.
    pub is_whole: bool,
    pub names_schedule: bool,
    /// The file that a PUT comes from.
    pub origin: Option<FileOrigin>,
}

/// The file that a PUT comes from.
#[derive(Debug, Clone)]
pub struct FileOrigin {
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// It takes over a cue that is not its own.
    pub adopts: bool,
}

impl CueRequest {
    /// A cue that changes in nothing but its status.
    pub fn of_status(cue: &Cue, status: RequestedStatus) -> Self {
        Self { fields: cue.fields.clone(), status: Some(status), ..Self::default() }
    }

    /// The payload that it gives a cue.
    pub fn new_payload(&self) -> Option<&Payload> {
        self.payload.as_ref().and_then(Option::as_ref)
    }

    /// The active cue created at `now`, without its payload. The row key is set by the store.
    pub fn into_cue(self, id: String, user_key: UserKey, now: Timestamp) -> Result<Cue, Refusal> {
        let mut fields = self.fields;
        let mut schedule = self.schedule.map_or_else(|| fields.schedule.read(), Ok)?;
        schedule.begin(now);
        schedule.bounds.delay_seconds = Some(jitter_delay(&id, schedule.bounds.jitter_seconds));
        let next_run = schedule.first_run(now)?;
        fields.schedule = StoredSchedule::from(&schedule);
        let is_paused = self.status == Some(RequestedStatus::Paused);
        Ok(Cue {
            key: CueKey::default(),
            id,
            user_key,
            status: if is_paused { CueStatus::Paused } else { CueStatus::Active },
            next_run: (!is_paused).then_some(next_run),
            last_run: None,
            run_count: 0,
            missed_count: 0,
            payload_key: None,
            fields,
            warning: self.warning,
            created_at: now,
            updated_at: now,
            failing: 0,
        })
    }
}

const MAX_DELAY: SignedDuration = SignedDuration::from_hours(1);

/// The status of a `once` cue after a scheduled run; `None` if it was given another instant since.
pub fn after_only_run(
    at: Timestamp,
    is_due: bool,
    scheduled_for: Timestamp,
    success: bool,
) -> Option<CueStatus> {
    // Jitter delays a run by at most an hour. It may have changed since the run was created.
    let delay = scheduled_for.duration_since(at);
    let is_current_run = (SignedDuration::ZERO..=MAX_DELAY).contains(&delay) && !is_due;
    is_current_run.then_some(if success { CueStatus::Completed } else { CueStatus::Failed })
}

/// The reactions to an execution's final failure (contract §6). Serializes to the contract's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFailure {
    pub email: bool,
    pub webhook: Option<String>,
    pub pause: bool,
}

impl Default for OnFailure {
    fn default() -> Self {
        Self { email: true, webhook: None, pause: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoredSchedule {
    pub when: ScheduleSpec,
    pub timezone: String,
    pub catch_up: CatchUp,
    pub bounds: Bounds,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ScheduleSpec {
    Recurring(String),
    /// An interval as its user wrote it, and the instant from which its runs are counted.
    Every(String, Timestamp),
    Once(Timestamp),
}

impl Default for ScheduleSpec {
    fn default() -> Self {
        Self::Once(Timestamp::UNIX_EPOCH)
    }
}

impl StoredSchedule {
    /// The parsed schedule.
    /// Errors: the zone or the cron expression is unknown, which an upgrade of the zone database can cause.
    pub fn read(&self) -> Result<Schedule, ScheduleError> {
        let rule = match &self.when {
            ScheduleSpec::Recurring(cron) => ScheduleRule::cron(cron)?,
            ScheduleSpec::Every(every, from) => ScheduleRule::every(every, *from)?,
            ScheduleSpec::Once(at) => ScheduleRule::Once(*at),
        };
        let schedule = Schedule::new(rule, Zone::find(&self.timezone)?, self.catch_up);
        Ok(Schedule { bounds: self.bounds, ..schedule })
    }
}

impl From<&Schedule> for StoredSchedule {
    fn from(schedule: &Schedule) -> Self {
        let when = match &schedule.rule {
            ScheduleRule::Recurring(cron) => ScheduleSpec::Recurring(cron.text().to_owned()),
            ScheduleRule::Every(interval) => {
                ScheduleSpec::Every(interval.text().to_owned(), interval.from())
            }
            ScheduleRule::Once(at) => ScheduleSpec::Once(*at),
        };
        let Schedule { zone, catch_up, bounds, .. } = schedule;
        Self { when, timezone: zone.name().to_owned(), catch_up: *catch_up, bounds: *bounds }
    }
}

/// By how many seconds the runs of this cue come later: the same from 0 to `jitter_seconds` whenever it is computed.
pub(in crate::domain::cue) fn jitter_delay(id: &str, jitter_seconds: u32) -> u32 {
    // FNV-1a. The high half: its bits depend on all characters.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    ((hash >> 32) as u32) % (jitter_seconds + 1)
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestedStatus {
        Active = "active",
        Paused = "paused",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ScheduleKind {
        Recurring = "recurring",
        Once = "once",
    }
}

/// The fields of bounds that contradict other parts of the schedule, and why.
pub fn bounds_errors(schedule: &Schedule) -> Vec<(&'static str, &'static str)> {
    let Bounds { start, end, jitter_seconds, .. } = schedule.bounds;
    let mut errors = Vec::new();
    if start.zip(end).is_some_and(|(start, end)| end <= start) {
        errors.push(("end", "must be after start"));
    }
    let jitter = SignedDuration::from_secs(jitter_seconds.into());
    if jitter_seconds > 0 && schedule.shortest_distance().is_some_and(|distance| jitter > distance)
    {
        errors.push(("jitter_seconds", "must be at most the time between two runs"));
    }
    errors
}

/// The largest payload, in bytes of compact UTF-8 (contract §4.6).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Characters of a `task` or `agent`, which every execution and an index repeat; longer ones match nothing (contract
/// §7.1).
pub const MAX_FILTER_CHARS: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The canonical JSON: the body of a delivery.
    pub body: String,
    pub task: Option<String>,
    pub agent: Option<String>,
}

impl Payload {
    pub fn new(json: JsonStr<'_>) -> Result<Self, Refusal> {
        let size = json.as_str().len();
        if size <= MAX_PAYLOAD {
            return Ok(Self::from_json(json));
        }
        let message = format!(
            "The payload has {size} bytes as compact JSON; at most {MAX_PAYLOAD} are allowed"
        );
        Err(Refusal::new(ErrorCode::InvalidPayloadSize, message))
    }

    /// The stored payload `own` with the top-level entries of `over` (`merge_strategy`, contract §4.11).
    pub fn merged(own: &str, over: JsonStr<'_>) -> Result<Self, Refusal> {
        let own = read(own.as_bytes())?;
        Self::new(merged(own.get(), over).get())
    }

    fn from_json(json: JsonStr<'_>) -> Self {
        let fields = JsonObject::from_text(json);
        let word = |name: &str| {
            let text = fields.as_ref()?.get(name)?.as_text()?;
            (text.chars().count() <= MAX_FILTER_CHARS).then(|| text.into_owned())
        };
        Self { body: canonical(json), task: word("task"), agent: word("agent") }
    }
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self::from_json(JsonText::from(&value).get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn task_and_agent_are_filters_up_to_255_characters() {
        for (length, is_filter) in [(0, true), (255, true), (256, false)] {
            let word = "ä".repeat(length);
            let payload = Payload::from(json!({"task": word, "agent": word}));
            let expected = is_filter.then_some(word);
            assert_eq!((payload.task, payload.agent), (expected.clone(), expected), "{length}");
        }
        let payload = Payload::from(json!({"task": 5, "agent": null}));
        assert_eq!((payload.task, payload.agent), (None, None));
    }

    #[test]
    fn an_override_replaces_entries_of_the_stored_payload() {
        let over = json!({"b": null, "\u{e9}\n": [2], "task": "new"});
        let merged = Payload::merged(
            r#"{"a": {"x": 1}, "b": 2, "task": "old", "\u00e9\n": 1}"#,
            JsonText::from(&over).get(),
        );
        let expected = json!({"a": {"x": 1}, "b": null, "task": "new", "\u{e9}\n": [2]});
        assert_eq!(merged.unwrap(), Payload::from(expected));
    }

    #[test]
    fn a_payload_is_measured_in_its_compact_form() {
        let of_size = |size: usize| JsonText::from(&json!({"é": "é".repeat((size - 9) / 2)}));
        assert_eq!(of_size(MAX_PAYLOAD + 1).as_str().len(), MAX_PAYLOAD + 1);
        assert!(Payload::new(of_size(MAX_PAYLOAD - 1).get()).is_ok());
        let refusal = Payload::new(of_size(MAX_PAYLOAD + 1).get()).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidPayloadSize);
        assert!(refusal.message.contains("1048577"), "{}", refusal.message);
    }
}
