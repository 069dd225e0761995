//! The events before a stream: the runs and the alerts of the past, read from their lists.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::commands::tail::event::{Selection, TailEvent};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::{ApiRequest, segment};

/// Pages of 100 that are read of a list.
const MAX_PAGES: u64 = 10;
const PAGE: u64 = 100;

/// Runs that were created this long before the span are read too: more than the retries of most runs take.
const RETRY_SPAN: SignedDuration = SignedDuration::from_hours(1);

/// Runs whose attempts are read: each is a request.
const MAX_ATTEMPT_LISTS: usize = 100;

/// Events of the past.
pub struct Past {
    /// Oldest first.
    pub events: Vec<TailEvent>,
    /// There were more than the lists were read for.
    pub is_cut: bool,
}

/// Reads the events of runs and the alerts since then, of an account or of one of its cues.
pub fn read_past(
    context: &Context,
    cue_id: Option<&str>,
    selection: &Selection,
    begin: Timestamp,
    has_bodies: bool,
) -> Result<Past, CliError> {
    let mut past = Past { events: Vec::new(), is_cut: false };
    let list = |path: &str, since: Timestamp| {
        let request = ApiRequest::get(path).maybe_query("cue_id", cue_id).query("limit", PAGE.to_string());
        request.query("since", since.to_string())
    };
    if selection.has_runs() {
        let created = begin.checked_sub(RETRY_SPAN).unwrap_or(Timestamp::UNIX_EPOCH);
        let mut reads = 0;
        for run in pages(context, &list("/v1/executions", created), "executions", &mut past.is_cut)? {
            // The row has the last attempt, without the body of its response.
            let count = run["attempts"].as_i64().unwrap_or(0);
            let mut of_attempts = Vec::new();
            if count > 1 || (has_bodies && count > 0 && run["status"] != "success") {
                reads += 1;
                if reads <= MAX_ATTEMPT_LISTS {
                    of_attempts = attempts(context, &text_of(&run, "id"))?;
                } else {
                    past.is_cut = true;
                }
            }
            past.events.extend(events_of(&run, &of_attempts, has_bodies));
        }
    }
    if selection.has_type("alert.created") {
        let alerts = pages(context, &list("/v1/alerts", begin), "alerts", &mut past.is_cut)?;
        past.events.extend(alerts.into_iter().map(|alert| TailEvent::listed("alert.created", alert)));
    }
    let is_shown = |event: &TailEvent| event.at() >= Some(begin) && selection.has_type(&event.event);
    past.events.retain(is_shown);
    past.events.sort_by_key(TailEvent::at);
    Ok(past)
}

/// The items of a list. Sets `is_cut` if there are more.
fn pages(
    context: &Context,
    request: &ApiRequest,
    key: &str,
    is_cut: &mut bool,
) -> Result<Vec<Value>, CliError> {
    let (mut items, mut ids) = (Vec::new(), HashSet::new());
    for page in 0..MAX_PAGES {
        let request = request.clone().query("offset", (page * PAGE).to_string());
        let answer = context.look_up(&request)?.value()?;
        // Pages shift while rows are created: a row may be on two.
        let is_new = |item: &&Value| ids.insert(text_of(item, "id"));
        items.extend(answer[key].as_array().into_iter().flatten().filter(is_new).cloned());
        if answer["has_more"] != Value::Bool(true) {
            return Ok(items);
        }
    }
    *is_cut = true;
    Ok(items)
}

/// The attempts of a run; none if it was deleted.
pub fn attempts(context: &Context, id: &str) -> Result<Vec<Value>, CliError> {
    match context.look_up(&ApiRequest::get(format!("/v1/executions/{}/attempts", segment(id)))) {
        Ok(answer) => Ok(answer.value()?["attempts"].as_array().cloned().unwrap_or_default()),
        Err(error) if error.exit_code() == 3 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The events of a run: those of its attempts, and what only its row has.
fn events_of(run: &Value, attempts: &[Value], has_bodies: bool) -> Vec<TailEvent> {
    let mut events: Vec<TailEvent> = Vec::new();
    for attempt in attempts {
        let word = match attempt["result"].as_str() {
            Some("success") => "execution.succeeded",
            Some("failed") => "execution.failed",
            Some("retrying") => "execution.retrying",
            Some("claim_lost") => "execution.claim_lost",
            _ => continue,
        };
        let mut event = listed(word, run, attempt, &text_of(attempt, "ended_at"), &attempt["attempt"]);
        let has_body = has_bodies && event.is_failed_attempt();
        event.body = attempt["response_body"].as_str().filter(|_| has_body).map(str::to_owned);
        events.push(event);
    }
    let last = match run["status"].as_str() {
        Some("success") => "execution.succeeded",
        Some("failed") if run["error_message"] == "cancelled" => "execution.cancelled",
        Some("failed") => "execution.failed",
        Some("retrying") if events.is_empty() => "execution.retrying",
        _ => return events,
    };
    if events.iter().all(|event| event.event != last) {
        // The end of the last attempt, if there was one.
        let begin = run["claimed_at"].as_str().or_else(|| run["last_attempt_at"].as_str());
        let begin = begin.and_then(|begin| begin.parse::<Timestamp>().ok());
        let took = SignedDuration::from_millis(run["duration_ms"].as_i64().unwrap_or(0));
        let end =
            begin.and_then(|begin| begin.checked_add(took).ok()).filter(|_| last != "execution.cancelled");
        let end = end.map_or_else(|| text_of(run, "updated_at"), |end| end.to_string());
        events.push(listed(last, run, run, &end, &run["attempts"]));
    }
    events
}

/// An event with the fields that one of the stream has. `latest` is the row of the run or of the attempt.
fn listed(word: &str, run: &Value, latest: &Value, at: &str, attempt: &Value) -> TailEvent {
    let status = match word {
        "execution.succeeded" => "success",
        "execution.retrying" => "retrying",
        "execution.claim_lost" => "pending",
        _ => "failed",
    };
    TailEvent::listed(
        word,
        json!({
            "execution_id": run["id"], "cue_id": run["cue_id"], "cue_name": run["cue_name"], "status": status,
            "triggered_by": run["triggered_by"], "scheduled_for": run["scheduled_for"], "attempt": attempt,
            "max_attempts": run["max_attempts"], "worker_id": run["claimed_by_worker"],
            "outcome_state": run["outcome_state"], "cause": latest["cause"], "http_status": latest["http_status"],
            "error_message": latest["error_message"], "duration_ms": latest["duration_ms"],
            "late_ms": run["late_ms"], "next_retry": latest["next_retry"], "at": at,
        }),
    )
}
