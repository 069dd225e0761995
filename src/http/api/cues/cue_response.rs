//! A cue as answers write it.

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::actions::cues::CueWithPayload;
use crate::domain::cue::{Cue, OnFailure, ScheduleSpec, StoredSchedule};
use crate::domain::webhook::callback::{Callback, Method};
use crate::http::api::executions::execution_response::ExecutionView;
use crate::http::response::{JsonTimestamp, instant_with_offset};

/// A cue with all its fields (contract §4). Written from a struct and not by way of a tree of values: it is the answer to
/// every create and every look.
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
    run_count: i64,
    fired_count: i64,
    missed_count: i64,
    warning: Option<&'a str>,
    created_at: JsonTimestamp,
    updated_at: JsonTimestamp,
    /// Every answer but the list shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Option<&'a Value>>,
    #[serde(flatten)]
    history: Option<HistoryView<'a>>,
}

/// The newest executions of a cue, a page of them.
#[derive(Debug, Serialize)]
pub struct HistoryView<'a> {
    pub executions: Vec<ExecutionView<'a>>,
    pub execution_total: i64,
    pub execution_limit: i64,
    pub execution_offset: i64,
}

/// A page of a list of cues.
#[derive(Debug, Serialize)]
pub struct CueListView<'a> {
    pub cues: Vec<CueView<'a>>,
    pub total: i64,
    pub limit: i64,
    pub offset: i64,
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

impl<'a> CueView<'a> {
    /// A cue as a list shows it: without its payload.
    #[must_use]
    pub fn listed(cue: &'a Cue) -> Self {
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
            run_count: cue.run_count,
            fired_count: cue.run_count,
            missed_count: cue.missed_count,
            warning: cue.warning.as_deref(),
            created_at: JsonTimestamp(cue.created_at),
            updated_at: JsonTimestamp(cue.updated_at),
            payload: None,
            history: None,
        }
    }

    /// A cue with its payload.
    #[must_use]
    pub fn whole(shown: &'a CueWithPayload) -> Self {
        Self { payload: Some(shown.payload.as_ref()), ..Self::listed(&shown.cue) }
    }

    /// The same with a page of its executions.
    #[must_use]
    pub fn with_history(self, history: HistoryView<'a>) -> Self {
        Self { history: Some(history), ..self }
    }
}

impl Serialize for CallbackView<'_> {
    /// Of a worker cue the shape without a URL.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (url, method) =
            self.0.map_or((None, Method::default()), |callback| (Some(&callback.url), callback.method));
        let headers = self.0.map_or(&[][..], |callback| &callback.headers);
        let mut shown = serializer.serialize_struct("callback", 3)?;
        shown.serialize_field("url", &url)?;
        shown.serialize_field("method", method.as_str())?;
        shown.serialize_field("headers", &HeadersView(headers))?;
        shown.end()
    }
}

struct HeadersView<'a>(&'a [(String, String)]);

impl Serialize for HeadersView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            shown.serialize_entry(name, value)?;
        }
        shown.end()
    }
}

/// A whole number as an integer (contract §4).
fn minutes<S: Serializer>(minutes: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    let mut shown = serializer.serialize_seq(Some(minutes.len()))?;
    for minutes in minutes {
        // Bounded by a year when it was read, so that the integer holds it.
        if minutes.fract() == 0.0 {
            shown.serialize_element(&(*minutes as i64))?;
        } else {
            shown.serialize_element(minutes)?;
        }
    }
    shown.end()
}
