//! The JSON of a cue.

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::domain::cue::{Cue, OnFailure, ScheduleSpec, StoredSchedule};
use crate::domain::webhook::callback::{Callback, Method};
use crate::http::response::{JsonTimestamp, instant_with_offset};
use crate::store::cues::recent_runs::RecentRuns;

/// The fields of a cue (contract §4.1) without its payload, whose stored text is added to the serialized view.
/// Serialized directly, without building a `serde_json::Value` first, because every create and every read returns it.
#[derive(Debug, Serialize)]
pub struct CueView<'a> {
    id: &'a str,
    name: &'a str,
    description: Option<&'a str>,
    status: &'static str,
    next_run: Option<String>,
    last_run: Option<JsonTimestamp>,
    schedule: ScheduleView<'a>,
    callback: CallbackView<'a>,
    transport: &'static str,
    retry: RetryView<'a>,
    on_failure: &'a OnFailure,
    verification: VerificationView,
    claim_within_minutes: Option<u32>,
    run_count: i64,
    fired_count: i64,
    missed_count: i64,
    failing: i64,
    warning: Option<&'a str>,
    created_at: JsonTimestamp,
    updated_at: JsonTimestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    recent: Option<RecentView<'a>>,
}

/// The latest runs of a cue, in lists that ask for them.
#[derive(Debug, Serialize)]
struct RecentView<'a> {
    statuses: &'a str,
    last: Option<LastRunView<'a>>,
}

#[derive(Debug, Serialize)]
struct LastRunView<'a> {
    execution_id: String,
    status: &'static str,
    at: JsonTimestamp,
    cause: Option<&'a str>,
    duration_ms: Option<i64>,
}

#[derive(Debug, Serialize)]
struct ScheduleView<'a> {
    r#type: &'static str,
    cron: Option<&'a str>,
    at: Option<JsonTimestamp>,
    timezone: &'a str,
    catch_up: &'static str,
}

#[derive(Debug, Serialize)]
struct RetryView<'a> {
    max_attempts: u32,
    #[serde(serialize_with = "minutes")]
    backoff_minutes: &'a [f64],
}

#[derive(Debug, Serialize)]
struct VerificationView {
    mode: &'static str,
}

#[derive(Debug)]
struct CallbackView<'a>(Option<&'a Callback>);

impl<'a> From<&'a Cue> for CueView<'a> {
    fn from(cue: &'a Cue) -> Self {
        let (r#type, cron, at) = match &cue.schedule.when {
            ScheduleSpec::Recurring(cron) => ("recurring", Some(cron.as_str()), None),
            ScheduleSpec::Once(at) => ("once", None, Some(JsonTimestamp(*at))),
        };
        let StoredSchedule { timezone, catch_up, .. } = &cue.schedule;
        Self {
            id: &cue.id,
            name: &cue.name,
            description: cue.description.as_deref(),
            status: cue.status.as_str(),
            next_run: cue.next_run.map(instant_with_offset),
            last_run: cue.last_run.map(JsonTimestamp),
            schedule: ScheduleView { r#type, cron, at, timezone, catch_up: catch_up.as_str() },
            callback: CallbackView(cue.callback.as_ref()),
            transport: cue.transport.as_str(),
            retry: RetryView {
                max_attempts: cue.retry.max_attempts,
                backoff_minutes: &cue.retry.backoff_minutes,
            },
            on_failure: &cue.on_failure,
            verification: VerificationView { mode: cue.verification.as_str() },
            claim_within_minutes: cue.claim_within_minutes,
            run_count: cue.run_count,
            fired_count: cue.run_count,
            missed_count: cue.missed_count,
            failing: cue.failing,
            warning: cue.warning.as_deref(),
            created_at: JsonTimestamp(cue.created_at),
            updated_at: JsonTimestamp(cue.updated_at),
            recent: None,
        }
    }
}

impl<'a> CueView<'a> {
    /// The view with the latest runs of the cue, if they were read.
    pub fn with_recent(mut self, runs: Option<&'a RecentRuns>) -> Self {
        self.recent = runs.map(|runs| RecentView {
            statuses: &runs.letters,
            last: runs.last.as_ref().map(|last| LastRunView {
                execution_id: last.execution_id.to_string(),
                status: last.status.as_str(),
                at: JsonTimestamp(last.at),
                cause: last.cause.as_deref(),
                duration_ms: last.duration_ms,
            }),
        });
        self
    }
}

impl Serialize for CallbackView<'_> {
    /// A worker cue has no callback; its `url` is `null`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (url, method) =
            self.0.map_or((None, Method::default()), |callback| (Some(&callback.url), callback.method));
        let headers = self.0.map_or(&[][..], |callback| &callback.headers);
        let outcome_from_response = self.0.is_some_and(|callback| callback.outcome_from_response);
        let mut object = serializer.serialize_struct("callback", 4)?;
        object.serialize_field("url", &url)?;
        object.serialize_field("method", method.as_str())?;
        object.serialize_field("headers", &HeadersView(headers))?;
        object.serialize_field("outcome_from_response", &outcome_from_response)?;
        object.end()
    }
}

struct HeadersView<'a>(&'a [(String, String)]);

impl Serialize for HeadersView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

/// Serializes whole numbers as integers (contract §4.6).
fn minutes<S: Serializer>(minutes: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(minutes.len()))?;
    for minutes in minutes {
        // At most the minutes of a year (see `MAX_BACKOFF_MINUTES`), so the integer cannot overflow.
        if minutes.fract() == 0.0 {
            list.serialize_element(&(*minutes as i64))?;
        } else {
            list.serialize_element(minutes)?;
        }
    }
    list.end()
}
