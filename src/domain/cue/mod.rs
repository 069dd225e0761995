//! Cues: their fields and payloads, and the effect of creating, changing and ending on their state (contract §4).

mod change;
mod difference;
pub mod list;
pub mod retention;
pub mod slug;
pub mod tags;

pub use crate::domain::cue::difference::Difference;
pub use crate::domain::cue_fields::Transport;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, FieldError, Refusal, SchedulePart};
use crate::domain::cue::slug::Slug;
use crate::domain::cue::tags::Tags;
use crate::domain::cue_fields::{Policies, PoliciesPatch};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::outcome::VerificationMode;
use crate::domain::json::{JsonObject, JsonStr, JsonText, merged, read};
use crate::domain::schedule::interval::Interval;
use crate::domain::schedule::{
    Bounds, CatchUp, Schedule, ScheduleError, ScheduleRule, Zone, parse_instant,
};
use crate::domain::text::word_enum;
use crate::domain::webhook::callback::{Callback, DEFAULT_TIMEOUT_SECONDS, Method, authority_of};
use crate::domain::webhook::canonical_json::canonical;
use crate::domain::webhook::flow::FlowPatch;

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
    pub key: i64,
    pub id: String,
    pub user_key: i64,
    pub slug: Option<Slug>,
    pub name: String,
    pub description: Option<String>,
    pub tags: Tags,
    pub status: CueStatus,
    pub next_run: Option<Timestamp>,
    pub last_run: Option<Timestamp>,
    pub run_count: i64,
    pub missed_count: i64,
    pub schedule: StoredSchedule,
    pub transport: Transport,
    pub callback: Option<Callback>,
    pub payload_key: Option<i64>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    pub policies: Policies,
    /// A hint for the owner: unknown fields in the create request, or the reason of a failure.
    pub warning: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub failing: i64,
}

#[derive(Debug, Clone)]
pub struct NewCue {
    pub slug: Option<Slug>,
    pub name: String,
    pub description: Option<String>,
    pub tags: Tags,
    pub schedule: Schedule,
    pub transport: Transport,
    pub callback: Option<Callback>,
    pub payload: Option<Payload>,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    pub verification: VerificationMode,
    pub policies: Policies,
    pub warning: Option<String>,
}

impl NewCue {
    /// The active cue created at `now`, and its payload. The row key is set by the store.
    pub fn into_cue(
        self,
        id: String,
        user_key: i64,
        now: Timestamp,
    ) -> Result<(Cue, Option<Payload>), Refusal> {
        let mut schedule = self.schedule;
        schedule.begin(now);
        schedule.bounds.delay_seconds = Some(jitter_delay(&id, schedule.bounds.jitter_seconds));
        let next_run = schedule.first_run(now)?;
        let cue = Cue {
            key: 0,
            id,
            user_key,
            slug: self.slug,
            name: self.name,
            description: self.description,
            tags: self.tags,
            status: CueStatus::Active,
            next_run: Some(next_run),
            last_run: None,
            run_count: 0,
            missed_count: 0,
            schedule: StoredSchedule::from_schedule(&schedule),
            transport: self.transport,
            callback: self.callback,
            payload_key: None,
            retry: self.retry,
            on_failure: self.on_failure,
            verification: self.verification,
            policies: self.policies,
            warning: self.warning,
            created_at: now,
            updated_at: now,
            failing: 0,
        };
        Ok((cue, self.payload))
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

impl StoredSchedule {
    /// The parsed schedule.
    /// Errors: the zone or the cron expression is unknown, which an upgrade of the zone database can cause.
    pub fn read(&self) -> Result<Schedule, ScheduleError> {
        let schedule = match &self.when {
            ScheduleSpec::Recurring(cron) => {
                Schedule::recurring(cron, &self.timezone, self.catch_up)?
            }
            ScheduleSpec::Every(every, from) => {
                let rule = ScheduleRule::Every(Interval::parse(every, *from)?);
                Schedule::new(rule, Zone::find(&self.timezone)?, self.catch_up)
            }
            ScheduleSpec::Once(at) => {
                Schedule::new(ScheduleRule::Once(*at), Zone::find(&self.timezone)?, self.catch_up)
            }
        };
        Ok(Schedule { bounds: self.bounds, ..schedule })
    }

    pub fn from_schedule(schedule: &Schedule) -> Self {
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

/// Changes to a cue. `None` and empty parts leave the field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CuePatch {
    pub status: Option<RequestedStatus>,
    pub slug: Option<Option<Slug>>,
    pub name: Option<String>,
    pub description: Option<Option<String>>,
    pub tags: Option<Tags>,
    pub schedule: SchedulePatch,
    pub callback: CallbackPatch,
    pub payload: Option<Option<Payload>>,
    pub retry: RetryPatch,
    pub on_failure: OnFailurePatch,
    pub verification: Option<VerificationMode>,
    pub policies: PoliciesPatch,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ScheduleKind {
        Recurring = "recurring",
        Once = "once",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulePatch {
    pub kind: Option<ScheduleKind>,
    pub cron: Option<String>,
    /// The text of an interval; never together with `cron`.
    pub every: Option<String>,
    /// As the caller wrote it; without an offset it is a local time of the zone.
    pub at: Option<String>,
    pub timezone: Option<String>,
    pub catch_up: Option<CatchUp>,
    /// As `at`; an inner `None` removes the bound.
    pub start: Option<Option<String>>,
    pub end: Option<Option<String>>,
    pub jitter_seconds: Option<u32>,
}

impl SchedulePatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn schedule(&self, kind: ScheduleKind) -> Result<Schedule, Refusal> {
        self.resolve(kind, None)
    }

    /// `current` with the given parts replaced. An expression, an interval or an instant alone implies the type.
    pub fn applied_to(&self, current: &StoredSchedule) -> Result<Schedule, Refusal> {
        let recurs = self.cron.is_some() || self.every.is_some();
        if self.kind.is_none() && recurs && self.at.is_some() {
            return Err(incomplete(
                "type",
                "schedule.at is set beside schedule.cron or schedule.every; set schedule.type, or only one of them",
            ));
        }
        let kind = self.kind.unwrap_or(match (&self.at, &current.when) {
            _ if recurs => ScheduleKind::Recurring,
            (Some(_), _) | (None, ScheduleSpec::Once(_)) => ScheduleKind::Once,
            (None, _) => ScheduleKind::Recurring,
        });
        self.resolve(kind, Some(current))
    }

    fn resolve(
        &self,
        kind: ScheduleKind,
        current: Option<&StoredSchedule>,
    ) -> Result<Schedule, Refusal> {
        let zone =
            self.timezone.as_deref().or(current.map(|it| it.timezone.as_str())).unwrap_or("UTC");
        let catch_up = self.catch_up.or(current.map(|it| it.catch_up)).unwrap_or_default();
        let find_zone = || Zone::find(zone).map_err(ScheduleError::from);
        let interval = |text: &str, from| -> Result<Schedule, ScheduleError> {
            Ok(Schedule::new(
                ScheduleRule::Every(Interval::parse(text, from)?),
                find_zone()?,
                catch_up,
            ))
        };
        let once = |at, zone| Schedule::new(ScheduleRule::Once(at), zone, catch_up);
        let schedule = match (kind, &self.cron, &self.every, &self.at, current.map(|it| &it.when)) {
            (ScheduleKind::Recurring, Some(cron), ..)
            | (ScheduleKind::Recurring, None, None, _, Some(ScheduleSpec::Recurring(cron))) => {
                Schedule::recurring(cron, zone, catch_up)?
            }
            (ScheduleKind::Recurring, None, Some(every), _, Some(ScheduleSpec::Every(_, from))) => {
                interval(every, *from)?
            }
            (ScheduleKind::Recurring, None, Some(every), ..) => {
                interval(every, Timestamp::UNIX_EPOCH)?
            }
            (ScheduleKind::Recurring, None, None, _, Some(ScheduleSpec::Every(every, from))) => {
                interval(every, *from)?
            }
            (ScheduleKind::Once, _, _, Some(at), _) => {
                let zone = find_zone()?;
                once(parse_instant(at, &zone)?, zone)
            }
            (ScheduleKind::Once, _, _, None, Some(ScheduleSpec::Once(at))) => {
                once(*at, find_zone()?)
            }
            (ScheduleKind::Recurring, ..) => {
                return Err(incomplete(
                    "expression",
                    "A recurring schedule needs schedule.cron, such as \"0 9 * * *\", or schedule.every, such as \"5m\"",
                ));
            }
            (ScheduleKind::Once, ..) => {
                return Err(incomplete(
                    "at",
                    "at: is missing; a once schedule needs it, such as \"2030-01-31T09:00:00Z\"",
                ));
            }
        };
        let bounds = self.bounds(kind, &schedule.zone, current)?;
        let schedule = Schedule { bounds, ..schedule };
        let errors = bounds_errors(&schedule);
        if current.is_some() && !errors.is_empty() {
            let errors = errors.into_iter().map(|(field, message)| match field {
                "end" if self.end.is_none() => invalid_bound("start", "should be before end"),
                "jitter_seconds" if self.jitter_seconds.is_none() => {
                    let field = if self.every.is_some() { "every" } else { "cron" };
                    invalid_bound(
                        field,
                        "the time between two runs should be at least jitter_seconds",
                    )
                }
                _ => invalid_bound(field, message),
            });
            return Err(Refusal::invalid(errors.collect()));
        }
        Ok(schedule)
    }

    fn bounds(
        &self,
        kind: ScheduleKind,
        zone: &Zone,
        current: Option<&StoredSchedule>,
    ) -> Result<Bounds, Refusal> {
        let before = current.map(|it| it.bounds).unwrap_or_default();
        let jitter_seconds = self.jitter_seconds.unwrap_or(before.jitter_seconds);
        if kind == ScheduleKind::Once {
            return Ok(Bounds { jitter_seconds, ..Bounds::default() });
        }
        let bound = |field, change: &Option<Option<String>>, before| match change {
            None => Ok(before),
            Some(None) => Ok(None),
            Some(Some(text)) => parse_instant(text, zone)
                .map(Some)
                .map_err(|error| Refusal::invalid(vec![invalid_bound(field, &error.to_string())])),
        };
        let (start, end) =
            (bound("start", &self.start, before.start)?, bound("end", &self.end, before.end)?);
        Ok(Bounds { start, end, jitter_seconds, delay_seconds: None })
    }
}

/// The fields of bounds that contradict other parts of the schedule, and why.
pub(in crate::domain::cue) fn bounds_errors(
    schedule: &Schedule,
) -> Vec<(&'static str, &'static str)> {
    let Bounds { start, end, jitter_seconds, .. } = schedule.bounds;
    let mut errors = Vec::new();
    if start.zip(end).is_some_and(|(start, end)| end <= start) {
        errors.push(("end", "should be after start"));
    }
    let jitter = SignedDuration::from_secs(jitter_seconds.into());
    if jitter_seconds > 0 && schedule.shortest_distance().is_some_and(|distance| jitter > distance)
    {
        errors.push(("jitter_seconds", "should be at most the time between two runs"));
    }
    errors
}

fn invalid_bound(field: &'static str, message: &str) -> FieldError {
    FieldError {
        kind: "value_error",
        loc: vec!["body".into(), "schedule".into(), field.into()],
        msg: format!("Value error, {message}"),
        input: Value::Null,
    }
}

fn incomplete(field: &'static str, message: &'static str) -> Refusal {
    Refusal {
        schedule_part: SchedulePart::of(field),
        ..Refusal::new(ErrorCode::InvalidSchedule, message)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallbackPatch {
    pub url: Option<String>,
    pub method: Option<Method>,
    pub headers: Option<Vec<(String, String)>>,
    pub outcome_from_response: Option<bool>,
    pub timeout_seconds: Option<u32>,
    /// An inner `None` removes it.
    pub flow: Option<Option<FlowPatch>>,
}

impl CallbackPatch {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn callback(self) -> Option<Callback> {
        let method = self.method.unwrap_or(Method::Post);
        self.url.map(|url| Callback {
            flow: self.flow.flatten().map(|flow| flow.for_authority(&authority_of(&url))),
            url,
            method,
            headers: self.headers.unwrap_or_default(),
            outcome_from_response: self.outcome_from_response.unwrap_or_default(),
            timeout_seconds: self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS),
        })
    }

    pub fn apply_to(&self, callback: &mut Callback) {
        let before = authority_of(&callback.url);
        set(&mut callback.url, &self.url);
        let authority = authority_of(&callback.url);
        // A key that was the host and port follows them, also if the client sends it back.
        let follows = callback.flow.as_ref().is_some_and(|flow| flow.key == before);
        if let Some(flow) = &self.flow {
            callback.flow = flow.as_ref().map(|flow| flow.for_authority(&authority));
        }
        if let Some(flow) = callback.flow.as_mut().filter(|flow| follows && flow.key == before) {
            flow.key = authority;
        }
        set(&mut callback.method, &self.method);
        set(&mut callback.headers, &self.headers);
        set(&mut callback.outcome_from_response, &self.outcome_from_response);
        set(&mut callback.timeout_seconds, &self.timeout_seconds);
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RetryPatch {
    pub max_attempts: Option<u32>,
    pub backoff_minutes: Option<Vec<f64>>,
    /// An inner `None` returns to the minutes.
    pub backoff_seconds: Option<Option<Vec<u32>>>,
}

impl RetryPatch {
    pub fn apply_to(&self, retry: &mut RetryPolicy) {
        set(&mut retry.max_attempts, &self.max_attempts);
        // A client that does not know the seconds sends back the minutes that it has read: it does not change them.
        if let Some(minutes) =
            self.backoff_minutes.as_ref().filter(|minutes| **minutes != retry.backoff_minutes)
        {
            retry.backoff_minutes.clone_from(minutes);
            retry.backoff_seconds = None;
        }
        if let Some(seconds) = &self.backoff_seconds {
            retry.set_backoff_seconds(seconds.clone());
        }
    }
}

pub(in crate::domain::cue) fn set<T: Clone>(field: &mut T, change: &Option<T>) {
    if let Some(value) = change {
        field.clone_from(value);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnFailurePatch {
    pub email: Option<bool>,
    pub webhook: Option<Option<String>>,
    pub pause: Option<bool>,
}

impl OnFailurePatch {
    pub fn apply_to(&self, on_failure: &mut OnFailure) {
        set(&mut on_failure.email, &self.email);
        set(&mut on_failure.webhook, &self.webhook);
        set(&mut on_failure.pause, &self.pause);
    }
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
