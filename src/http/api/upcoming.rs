//! `GET /v1/upcoming`: what runs when, of all cues of an account (contract §4.13).

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::domain::row_keys::UserKey;
use crate::domain::schedule::EARLIEST;
use crate::domain::schedule::planned::{
    HourSpan, MAX_HOURS, PlannedRuns, PlannedTimes, RunsToCome, plan,
};
use crate::domain::time::{JsonTimestamp, instant};
use crate::error::Result;
use crate::http::api::cues::BAD_FROM;
use crate::http::list::ListBody;
use crate::http::message::{Request, Response};
use crate::store::ReadTx;
use crate::store::cues::upcoming::{self, PlannedCue, WaitingExecution};

const DEFAULT_HOURS: u32 = 24;

#[derive(Serialize)]
struct CueEntry<'a> {
    cue_id: &'a str,
    name: &'a str,
    transport: &'static str,
    timezone: &'a str,
    count: u64,
    at: Option<Vec<JsonTimestamp>>,
    per_hour: Option<&'a [u64]>,
    expected_ms: Option<i64>,
}

/// `GET /v1/upcoming?hours&from`, computed and rendered on the thread for slow reads: the schedules of an account and
/// thousands of times take longer than a connection may block its thread.
pub async fn list(request: Request) -> Result<Response> {
    let (user_key, query) = (request.user_key()?, request.query());
    let hours = query.integer("hours", 1..=i64::from(MAX_HOURS)).unwrap_or(DEFAULT_HOURS);
    let from = query.instant("from");
    if from.is_some_and(|from| from < EARLIEST) {
        query.reject("from", BAD_FROM);
    }
    query.finish()?;
    let span = HourSpan { from: from.unwrap_or(request.now), hours };
    let (body, _turn) =
        request.read_list(true, move |read| read_plan(read, user_key, &span)).await?;
    Ok(body.into_response())
}

fn read_plan(read: &ReadTx<'_>, user_key: UserKey, span: &HourSpan) -> Result<ListBody> {
    let (rows, has_more) = upcoming::list_cues(read, user_key, span.until())?;
    // The scheduler ends a cue whose schedule has become invalid.
    let cues = rows.into_iter().filter_map(|cue| {
        let schedule = cue.schedule.read().ok()?;
        let runs = RunsToCome { schedule, next_run: cue.next_run };
        Some((cue, runs))
    });
    let (planned, is_cut) = plan(cues, span);
    let entries: Vec<CueEntry> = planned
        .iter()
        .map(|(cue, runs)| Ok(entry(cue, runs, upcoming::expected_duration_ms(read, cue.key)?)))
        .collect::<Result<_>>()?;
    let list = ListBody::new("cues", &entries)?;
    let is_cut = is_cut || list.count() < entries.len();
    let (waiting, is_waiting_cut) =
        upcoming::list_waiting(read, user_key, span.from, span.until())?;
    let waiting: Value = waiting.iter().map(render_waiting).collect();
    let text = |at: Timestamp| format!("\"{}\"", instant(at));
    Ok(list
        .with("from", &text(span.from))
        .with("until", &text(span.until()))
        .with("waiting", &waiting.to_string())
        .with("truncated", if has_more || is_cut || is_waiting_cut { "true" } else { "false" }))
}

fn render_waiting(execution: &WaitingExecution) -> Value {
    json!({
        "execution_id": execution.id.to_string(),
        "cue_id": execution.cue_id,
        "name": execution.name,
        "at": instant(execution.due_at),
        "attempts": execution.attempts,
    })
}

fn entry<'a>(cue: &'a PlannedCue, runs: &'a PlannedRuns, expected_ms: Option<i64>) -> CueEntry<'a> {
    let (at, per_hour) = match &runs.times {
        PlannedTimes::At(times) => (Some(times.iter().copied().map(JsonTimestamp).collect()), None),
        PlannedTimes::PerHour(counts) => (None, Some(&counts[..])),
    };
    CueEntry {
        cue_id: &cue.id,
        name: &cue.name,
        transport: cue.transport.as_str(),
        timezone: &cue.schedule.timezone,
        count: runs.count,
        at,
        per_hour,
        expected_ms,
    }
}
