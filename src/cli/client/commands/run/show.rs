//! `cued run show`: a run on one screen, with a sentence that says why it is in its state.

use serde_json::Value;

use crate::cli::client::command::Call;
use crate::cli::client::commands::run::{result_of, wait_of};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Form, Lines, details};
use crate::cli::client::words::{in_words, message_of};
use crate::cli::error::Result;
use crate::cli::output::table::{
    Cell, Style, Times, details as as_text, duration, status, text_of,
};
use crate::cli::output::{count, print};
use crate::cli::width::cut;
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::account::plan::{LIMIT_EXCEEDED, NO_LIMIT};
use crate::domain::execution::CANCELLED;

/// Characters of a message in the sentence that says why; all of it is shown below.
const MAX_REASON: usize = 200;

const LINES: Lines = &[
    ("run", Form::Text("id")),
    ("cue", Form::Template("{cue_name} ({cue_id})")),
    ("status", Form::Status("status")),
    ("why", Form::Cell(why_cell)),
    ("scheduled for", Form::Time("scheduled_for")),
    ("late", Form::Millis("late_ms")),
    ("attempts", Form::Template("{attempts} of {max_attempts}")),
    ("first attempt", Form::Time("started_at")),
    ("last attempt", Form::Time("last_attempt_at")),
    ("took", Form::Millis("duration_ms")),
    ("next attempt", Form::Time("next_retry")),
    ("gives up at", Form::Time("expires_at")),
    ("claimed by", Form::Template("{claimed_by_worker}, since {claimed_at:at}")),
    ("lease until", Form::Time("lease_expires_at")),
    ("HTTP status", Form::Text("http_status")),
    ("cause", Form::Words("cause")),
    ("error", Form::Of(message_of)),
    ("answer", Form::Text("response_body")),
    ("delivered", Form::Time("delivered_at")),
    ("result due", Form::Time("outcome_due_at")),
    ("outcome", Form::Cell(outcome)),
    ("reported", Form::Time("outcome.recorded_at")),
    ("result", Form::Text("outcome.result")),
    ("metadata", Form::Json("outcome.metadata")),
    ("reported error", Form::Of(reported_error)),
    ("external id", Form::Json("evidence.external_id")),
    ("result URL", Form::Json("evidence.result_url")),
    ("result ref", Form::Json("evidence.result_ref")),
    ("result type", Form::Json("evidence.result_type")),
    ("summary", Form::Json("evidence.summary")),
    ("artifacts", Form::Json("evidence.artifacts")),
    ("verdict", Form::Of(verdict)),
    ("verified", Form::Time("verdict.verified_at")),
    ("trigger", Form::Words("triggered_by")),
    ("replay of", Form::Text("replayed_from")),
    ("payload", Form::Json("payload")),
    ("created", Form::Time("created_at")),
    ("updated", Form::Time("updated_at")),
];

pub fn print_run(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let output = &call.context.output;
    if output.format.is_for_programs() {
        return output.object(answer, "id", |_| Vec::new());
    }
    let mut run = answer.value()?;
    if run["status"] == "pending" {
        run["transport"] = transport_of(call.context, &text_of(&run, "cue_id"))?;
    } else if run["error_message"] == LIMIT_EXCEEDED {
        run["account"] = call.context.fetch(&ApiRequest::get("/v1/auth/me"))?.value()?;
    }
    print(&as_text(&details(LINES, call.context, &run), &output.styles))
}

/// A run does not say how it reaches its handler; its cue does. The cue may be deleted.
fn transport_of(context: &Context, cue: &str) -> Result<Value> {
    let request =
        ApiRequest::get(format!("/v1/cues/{}", segment(cue))).query("execution_limit", "1");
    match context.fetch(&request) {
        Ok(answer) => Ok(answer.value()?["transport"].take()),
        Err(error) if error.status() == Some(404) => Ok(Value::Null),
        Err(error) => Err(error),
    }
}

fn why_cell(context: &Context, run: &Value) -> Cell {
    let style = match run["status"].as_str() {
        Some("failed") => Style::Bad,
        Some("retrying") => Style::Warning,
        _ if run["outcome_state"] == "missing" => Style::Bad,
        _ => Style::Plain,
    };
    Cell::new(failure_reason(run, &context.output.times), style)
}

fn outcome(_: &Context, run: &Value) -> Cell {
    let state = text_of(run, "outcome_state");
    Cell::new(in_words(&state), status(&state).style)
}

/// An error of up to 2,000 characters is that of the run, and shown above.
fn reported_error(run: &Value) -> String {
    let error = text_of(run, "outcome.error");
    if error == text_of(run, "error_message") { String::new() } else { error }
}

fn verdict(run: &Value) -> String {
    let word = match run["verdict"]["valid"].as_bool() {
        Some(true) => "valid",
        Some(false) => "not valid",
        None => "",
    };
    match text_of(run, "verdict.reason") {
        reason if reason.is_empty() => word.to_owned(),
        reason => format!("{word}: {reason}"),
    }
}

/// The reason for the state of a run, and its next step. Empty for a success that is complete.
fn failure_reason(run: &Value, times: &Times) -> String {
    let attempts = run["attempts"].as_i64().unwrap_or(0);
    let result = if run["http_status"].is_null() { reason_of(run) } else { result_of(run) };
    let worker = text_of(run, "claimed_by_worker");
    let wait = wait_of(run);
    let at = |field: &str| times.instant(&text_of(run, field));
    match run["status"].as_str() {
        Some("pending") if !wait.is_empty() => format!("it {wait}"),
        Some("pending") if run["transport"] != "worker" => {
            "it waits for its time, or for other deliveries to end".to_owned()
        }
        Some("pending") if attempts > 0 => {
            format!(
                "worker {worker} lost its claim; no other has claimed the run yet (cued worker list)"
            )
        }
        Some("pending") => "no worker has claimed it yet (cued worker list)".to_owned(),
        Some("delivering") if !worker.is_empty() => {
            format!("worker {worker} has claimed it and not reported yet")
        }
        Some("delivering") => format!("attempt {} is running", attempts + 1),
        Some("retrying") if !wait.is_empty() => {
            format!("attempt {attempts} failed ({result}); the next one {wait}")
        }
        Some("retrying") => {
            format!("attempt {attempts} failed ({result}); the next one is at {}", at("next_retry"))
        }
        Some("failed") if run["error_message"] == CANCELLED && run["outcome_state"].is_null() => {
            "it was cancelled".to_owned()
        }
        Some("failed") if run["outcome"]["success"] == false => {
            let who = if worker.is_empty() { "its handler" } else { &worker };
            format!("{who} reported a failure")
        }
        Some("failed") if run["cause"] == "expired" => {
            format!("it reached its maximum age after {}", count(attempts, "attempt"))
        }
        Some("failed") if attempts > 0 => {
            let which = match attempts {
                1 => "its only attempt failed".to_owned(),
                _ => format!("{attempts} attempts failed, the last one"),
            };
            let took =
                run["duration_ms"].as_i64().map(|millis| format!(" after {}", duration(millis)));
            format!("{which}{} ({result})", took.unwrap_or_default())
        }
        Some("failed") if run["error_message"] == LIMIT_EXCEEDED => over_limit(run),
        Some("failed") => format!("it was never sent ({result})"),
        Some("success") if run["outcome_state"] == "missing" => {
            "it was delivered, but nobody reported its result in time".to_owned()
        }
        Some("success") if !run["outcome_due_at"].is_null() => {
            format!("delivered; no result yet, due at {}", at("outcome_due_at"))
        }
        _ => String::new(),
    }
}

/// A run that was not sent because those of the plan were used up, and how the reader lifts the limit.
fn over_limit(run: &Value) -> String {
    let account = &run["account"];
    let limit =
        account["monthly_execution_limit"].as_u64().filter(|limit| *limit < NO_LIMIT.into());
    let runs = limit.map(|limit| format!("{limit} ")).unwrap_or_default();
    let remedy = match limit {
        // Without a limit by now there is nothing to lift.
        None => "",
        Some(_) if account["is_operator"] == true => "; start the server with --limits off",
        Some(_) => "; cued account usage shows them",
    };
    format!("not sent: the plan's {runs}runs of the month were used up{remedy}")
}

/// The beginning of the message of the failure, which says more than its cause.
fn reason_of(run: &Value) -> String {
    let message = message_of(run);
    let line = message.lines().next().unwrap_or_default();
    if line.is_empty() { in_words(&text_of(run, "cause")) } else { cut(line, MAX_REASON) }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sentence_says_why_a_run_is_in_its_state() {
        for (run, expected) in [
            (json!({"status": "delivering", "attempts": 1}), "attempt 2 is running"),
            (
                json!({"status": "failed", "attempts": 1, "http_status": 503, "duration_ms": 30_000}),
                "its only attempt failed after 30.0 s (503)",
            ),
            (
                json!({"status": "failed", "outcome": {"success": false}}),
                "its handler reported a failure",
            ),
            (
                json!({"status": "failed", "error_message": "over the quota"}),
                "it was never sent (over the quota)",
            ),
            (
                json!({"status": "failed", "error_message": LIMIT_EXCEEDED,
                       "account": {"monthly_execution_limit": 3, "is_operator": true}}),
                "not sent: the plan's 3 runs of the month were used up; start the server with --limits off",
            ),
            (
                json!({"status": "failed", "error_message": LIMIT_EXCEEDED,
                       "account": {"monthly_execution_limit": NO_LIMIT, "is_operator": true}}),
                "not sent: the plan's runs of the month were used up",
            ),
            (json!({"status": "success", "attempts": 1}), ""),
            (
                json!({"status": "success", "outcome_due_at": "2030-01-01T00:00:00Z"}),
                "delivered; no result yet, due at 2030-01-01 00:00:00+00:00",
            ),
            (
                json!({"status": "success", "outcome_state": "missing"}),
                "it was delivered, but nobody reported its result in time",
            ),
            (
                json!({"status": "pending", "waits_for": {"reason": "overlap"}}),
                "it waits for the earlier run",
            ),
            (
                json!({"status": "retrying", "attempts": 1, "http_status": 503,
                       "waits_for": {"reason": "flow", "key": "nas:80"}}),
                "attempt 1 failed (503); the next one waits for its turn (flow nas:80)",
            ),
            (
                json!({"status": "failed", "attempts": 2, "http_status": 503, "cause": "expired"}),
                "it reached its maximum age after 2 attempts",
            ),
        ] {
            assert_eq!(failure_reason(&run, &Times::in_zone(TimeZone::UTC)), expected);
        }
    }
}
