//! The cue in answers of the API (contract §4.1), and the result of a PUT (contract §4.17).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::domain::cue::slug::Slug;
use crate::domain::cue::{Cue, ScheduleSpec, StoredSchedule};
use crate::domain::time::{JsonTimestamp, instant_with_offset};
use crate::domain::webhook::callback::{Callback, DEFAULT_TIMEOUT_SECONDS, Method};
use crate::domain::webhook::flow::Flow;

/// The fields of a cue (contract §4.1) without its payload, whose stored text is added to the serialized view.
/// Serialized directly, without building a `serde_json::Value` first, because every create and every read returns it.
#[derive(Debug)]
pub struct CueView<'a> {
    cue: &'a Cue,
    recent: Option<RecentView<'a>>,
    put: Option<PutView<'a>>,
}

/// What a PUT did, or would do, beside the fields of the cue.
#[derive(Debug, Clone, Copy)]
pub struct PutView<'a> {
    /// `created`, `updated` or `unchanged`.
    pub action: &'static str,
    /// With dots, such as `schedule.cron`.
    pub changed: &'a [&'static str],
    pub next_run_before: Option<Timestamp>,
}

impl<'a> CueView<'a> {
    pub fn new(cue: &'a Cue, recent: Option<RecentView<'a>>) -> Self {
        Self { cue, recent, put: None }
    }

    pub fn with_put(self, put: PutView<'a>) -> Self {
        Self { put: Some(put), ..self }
    }
}

impl Serialize for CueView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let it = self.cue;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &it.id)?;
        object.serialize_entry("name", &it.fields.name)?;
        object.serialize_entry("slug", &it.fields.slug.as_ref().map(Slug::as_str))?;
        object.serialize_entry("description", &it.fields.description)?;
        object.serialize_entry("tags", &it.fields.tags)?;
        object.serialize_entry("status", it.status.as_str())?;
        object.serialize_entry("next_run", &it.next_run.map(instant_with_offset))?;
        object.serialize_entry("last_run", &it.last_run.map(JsonTimestamp))?;
        object.serialize_entry("schedule", &ScheduleView::from(&it.fields.schedule))?;
        object.serialize_entry("callback", &CallbackView::from(it.fields.callback.as_ref()))?;
        object.serialize_entry("transport", it.fields.transport.as_str())?;
        object.serialize_entry("retry", &it.fields.retry)?;
        object.serialize_entry("on_failure", &it.fields.on_failure)?;
        let verification = BTreeMap::from([("mode", it.fields.verification.as_str())]);
        object.serialize_entry("verification", &verification)?;
        it.fields.policies.serialize_into(&mut object)?;
        object.serialize_entry("run_count", &it.run_count)?;
        object.serialize_entry("fired_count", &it.run_count)?;
        object.serialize_entry("missed_count", &it.missed_count)?;
        object.serialize_entry("failing", &it.failing)?;
        object.serialize_entry("warning", &it.warning)?;
        object.serialize_entry("created_at", &JsonTimestamp(it.created_at))?;
        object.serialize_entry("updated_at", &JsonTimestamp(it.updated_at))?;
        if let Some(recent) = &self.recent {
            object.serialize_entry("recent", recent)?;
            let words = it.fields.schedule.read().ok().map(|schedule| schedule.describe());
            object.serialize_entry("schedule_words", &words)?;
            object.serialize_entry("task", &recent.task)?;
        }
        if let Some(PutView { action, changed, next_run_before }) = &self.put {
            object.serialize_entry("action", action)?;
            object.serialize_entry("changed", changed)?;
            object.serialize_entry("next_run_before", &next_run_before.map(instant_with_offset))?;
        }
        object.end()
    }
}

#[derive(Debug, Serialize)]
pub struct RecentView<'a> {
    pub statuses: &'a str,
    pub last: Option<LastRunView<'a>>,
    /// Beside `recent` in the JSON, not in it.
    #[serde(skip)]
    pub task: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct LastRunView<'a> {
    pub execution_id: String,
    pub status: &'static str,
    pub at: JsonTimestamp,
    pub cause: Option<&'a str>,
    pub duration_ms: Option<i64>,
}

#[derive(Debug, Serialize)]
struct ScheduleView<'a> {
    r#type: &'static str,
    cron: Option<&'a str>,
    every: Option<&'a str>,
    at: Option<JsonTimestamp>,
    timezone: &'a str,
    catch_up: &'static str,
    start: Option<JsonTimestamp>,
    end: Option<JsonTimestamp>,
    jitter_seconds: u32,
}

/// A worker cue has no callback; its `url` is `null`.
#[derive(Debug, Serialize)]
struct CallbackView<'a> {
    url: Option<&'a str>,
    method: &'static str,
    #[serde(serialize_with = "headers")]
    headers: &'a [(String, String)],
    outcome_from_response: bool,
    timeout_seconds: u32,
    flow: Option<&'a Flow>,
}

impl<'a> From<&'a StoredSchedule> for ScheduleView<'a> {
    fn from(schedule: &'a StoredSchedule) -> Self {
        let (r#type, cron, every, at) = match &schedule.when {
            ScheduleSpec::Recurring(cron) => ("recurring", Some(cron.as_str()), None, None),
            ScheduleSpec::Every(every, _) => ("recurring", None, Some(every.as_str()), None),
            ScheduleSpec::Once(at) => ("once", None, None, Some(JsonTimestamp(*at))),
        };
        Self {
            r#type,
            cron,
            every,
            at,
            timezone: &schedule.timezone,
            catch_up: schedule.catch_up.as_str(),
            start: schedule.bounds.start.map(JsonTimestamp),
            end: schedule.bounds.end.map(JsonTimestamp),
            jitter_seconds: schedule.bounds.jitter_seconds,
        }
    }
}

impl<'a> From<Option<&'a Callback>> for CallbackView<'a> {
    fn from(callback: Option<&'a Callback>) -> Self {
        Self {
            url: callback.map(|callback| callback.url.as_str()),
            method: callback.map_or(Method::default(), |callback| callback.method).as_str(),
            headers: callback.map_or(&[], |callback| callback.headers.expose()),
            outcome_from_response: callback.is_some_and(|callback| callback.outcome_from_response),
            timeout_seconds: callback
                .map_or(DEFAULT_TIMEOUT_SECONDS, |callback| callback.timeout_seconds),
            flow: callback.and_then(|callback| callback.flow.as_ref()),
        }
    }
}

fn headers<S: Serializer>(headers: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(headers.iter().map(|(name, value)| (name, value)))
}
