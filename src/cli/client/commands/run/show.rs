//! `cued run show`: a run on one screen, with a sentence that says why it is in its state.

use serde_json::Value;

use crate::cli::client::arguments::run_id::find_run;
use crate::cli::client::commands::run::cells::{duration_of, pretty, result_of};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::style::Style;
use crate::cli::output::table::Cell;
use crate::cli::output::times::{Times, duration};
use crate::client::error::ClientError;
use crate::client::request::{ApiRequest, segment};
use crate::domain::execution::queue_change::CANCELLED;

/// Characters of a message in the sentence that says why; all of it is shown below.
const MAX_REASON: usize = 100;

/// Fields of the evidence, and their names on the screen.
const EVIDENCE: [(&str, &str); 6] = [
    ("external_id", "external id"),
    ("result_url", "result URL"),
    ("result_ref", "result ref"),
    ("result_type", "result type"),
    ("summary", "summary"),
    ("artifacts", "artifacts"),
];

pub fn show(context: &Context, run: &str) -> Result<(), CliError> {
    let id = find_run(context, run)?;
    let answer = context.send(&ApiRequest::get(format!("/v1/executions/{id}")))?;
    let is_for_people = !context.output.format.is_for_programs();
    let run = if is_for_people { answer.value()? } else { Value::Null };
    let is_worker = run["status"] == "pending" && is_worker_cue(context, &text_of(&run, "cue_id"))?;
    context.output.object(&answer, "id", |run| {
        let times = &context.output.times;
        let mut lines = state_lines(run, times, is_worker);
        lines.extend(attempt_lines(run, times));
        lines.extend(outcome_lines(run, times));
        lines.extend(origin_lines(run, times));
        lines
    })
}

/// A run does not say how it reaches its handler; its cue does. The cue may be deleted.
fn is_worker_cue(context: &Context, cue: &str) -> Result<bool, CliError> {
    let request = ApiRequest::get(format!("/v1/cues/{}", segment(cue))).query("execution_limit", "1");
    match context.look_up(&request) {
        Ok(answer) => Ok(answer.value()?["transport"] == "worker"),
        Err(CliError::Client(ClientError::Refused(refused))) if refused.status == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

fn state_lines(run: &Value, times: &Times, is_worker: bool) -> Vec<(&'static str, Cell)> {
    let style = match run["status"].as_str() {
        Some("failed") => Style::Bad,
        Some("retrying") => Style::Warning,
        _ => Style::Plain,
    };
    let cue = format!("{} ({})", text_of(run, "cue_name"), text_of(run, "cue_id"));
    vec![
        ("run", text_of(run, "id").into()),
        ("cue", cue.into()),
        ("status", status(&text_of(run, "status"))),
        ("why", Cell::new(why(run, times, is_worker), style)),
        ("scheduled for", times.instant(&text_of(run, "scheduled_for")).into()),
        ("late", duration_of(run, "late_ms").into()),
    ]
}

fn attempt_lines(run: &Value, times: &Times) -> Vec<(&'static str, Cell)> {
    let at = |field: &str| Cell::from(times.instant(&text_of(run, field)));
    let attempts = format!("{} of {}", text_of(run, "attempts"), text_of(run, "max_attempts"));
    let claim = match (run["claimed_by_worker"].as_str(), run["claimed_at"].as_str()) {
        (Some(worker), Some(since)) => format!("{worker}, since {}", times.instant(since)),
        _ => String::new(),
    };
    vec![
        ("attempts", attempts.into()),
        ("first attempt", at("started_at")),
        ("last attempt", at("last_attempt_at")),
        ("took", duration_of(run, "duration_ms").into()),
        ("next attempt", at("next_retry")),
        ("claimed by", claim.into()),
        ("lease until", at("lease_expires_at")),
        ("HTTP status", text_of(run, "http_status").into()),
        ("cause", text_of(run, "cause").into()),
        ("error", text_of(run, "error_message").into()),
        ("answer", text_of(run, "response_body").into()),
        ("delivered", at("delivered_at")),
    ]
}

fn outcome_lines(run: &Value, times: &Times) -> Vec<(&'static str, Cell)> {
    let (outcome, verdict) = (&run["outcome"], &run["verdict"]);
    let mut lines = vec![
        ("outcome", outcome_cell(&text_of(run, "outcome_state"))),
        ("reported", times.instant(&text_of(outcome, "recorded_at")).into()),
        ("result", text_of(outcome, "result").into()),
        ("metadata", pretty(&outcome["metadata"]).into()),
    ];
    // An error of up to 2,000 characters is that of the run, and shown above.
    let error = text_of(outcome, "error");
    if error != text_of(run, "error_message") {
        lines.push(("reported error", error.into()));
    }
    lines.extend(EVIDENCE.map(|(field, name)| (name, Cell::from(pretty(&run["evidence"][field])))));
    let word = match verdict["valid"].as_bool() {
        Some(true) => "valid",
        Some(false) => "not valid",
        None => "",
    };
    let reason = text_of(verdict, "reason");
    let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
    lines.push(("verdict", format!("{word}{reason}").into()));
    lines.push(("verified", times.instant(&text_of(verdict, "verified_at")).into()));
    lines
}

fn origin_lines(run: &Value, times: &Times) -> Vec<(&'static str, Cell)> {
    vec![
        ("trigger", text_of(run, "triggered_by").into()),
        ("replay of", text_of(run, "replayed_from").into()),
        ("created", times.instant(&text_of(run, "created_at")).into()),
        ("updated", times.instant(&text_of(run, "updated_at")).into()),
    ]
}

fn outcome_cell(state: &str) -> Cell {
    let style = match state {
        "reported_success" | "verified_success" => Style::Good,
        "reported_failure" | "verification_failed" => Style::Bad,
        "verification_pending" => Style::Warning,
        _ => Style::Plain,
    };
    Cell::new(state, style)
}

/// The reason for the state of a run, and its next step. Empty for a success.
fn why(run: &Value, times: &Times, is_worker: bool) -> String {
    let attempts = run["attempts"].as_i64().unwrap_or(0);
    let result = if run["http_status"].is_null() { reason_of(run) } else { result_of(run) };
    let worker = text_of(run, "claimed_by_worker");
    match run["status"].as_str() {
        Some("pending") if is_worker && attempts > 0 => {
            format!("worker {worker} lost its claim; no other has claimed the run yet (cued worker list)")
        }
        Some("pending") if is_worker => "no worker has claimed it yet (cued worker list)".to_owned(),
        Some("pending") => "it waits for its time, or for other deliveries to end".to_owned(),
        Some("delivering") if !worker.is_empty() => {
            format!("worker {worker} has claimed it and not reported yet")
        }
        Some("delivering") => format!("attempt {} is running", attempts + 1),
        Some("retrying") => {
            let next = times.instant(&text_of(run, "next_retry"));
            format!("attempt {attempts} failed ({result}); the next one is at {next}")
        }
        Some("failed") if is_cancelled(run) => "it was cancelled".to_owned(),
        Some("failed") if run["outcome"]["success"] == Value::Bool(false) => {
            format!("{} reported a failure", if worker.is_empty() { "its handler" } else { &worker })
        }
        Some("failed") if attempts > 0 => {
            let which = if attempts == 1 {
                "its only attempt failed".to_owned()
            } else {
                format!("{attempts} attempts failed, the last one")
            };
            let took = run["duration_ms"].as_i64().map(|millis| format!(" after {}", duration(millis)));
            format!("{which}{} ({result})", took.unwrap_or_default())
        }
        Some("failed") => format!("it was never sent ({result})"),
        _ => String::new(),
    }
}

/// The beginning of the message of the failure, which says more than its cause.
fn reason_of(run: &Value) -> String {
    let message = text_of(run, "error_message");
    let line = message.lines().next().unwrap_or_default();
    if line.is_empty() { text_of(run, "cause") } else { line.chars().take(MAX_REASON).collect() }
}

fn is_cancelled(run: &Value) -> bool {
    run["error_message"] == CANCELLED && run["outcome_state"].is_null()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why_of(run: &Value, is_worker: bool) -> String {
        why(run, &Times::new(true, None).unwrap(), is_worker)
    }

    #[test]
    fn a_sentence_says_why_a_run_is_in_its_state() {
        let mut run = json!({"status": "pending", "attempts": 0, "max_attempts": 3});
        assert!(why_of(&run, true).starts_with("no worker has claimed it yet"));
        assert!(why_of(&run, false).starts_with("it waits for its time"));
        run["claimed_by_worker"] = "pi-1".into();
        run["attempts"] = 1.into();
        assert!(why_of(&run, true).starts_with("worker pi-1 lost its claim"));
        run["status"] = "delivering".into();
        assert_eq!(why_of(&run, false), "worker pi-1 has claimed it and not reported yet");
        run["claimed_by_worker"] = Value::Null;
        assert_eq!(why_of(&run, false), "attempt 2 is running");
        run["status"] = "retrying".into();
        run["http_status"] = 503.into();
        run["next_retry"] = "2030-01-01T00:01:00Z".into();
        assert_eq!(
            why_of(&run, false),
            "attempt 1 failed (503); the next one is at 2030-01-01 00:01:00+00:00"
        );
        run["status"] = "failed".into();
        run["duration_ms"] = 30_000.into();
        assert_eq!(why_of(&run, false), "its only attempt failed after 30.0 s (503)");
        run["outcome"] = json!({"success": false});
        assert_eq!(why_of(&run, false), "its handler reported a failure");
        let cancelled = json!({"status": "failed", "attempts": 1, "error_message": "cancelled"});
        assert_eq!(why_of(&cancelled, false), "it was cancelled");
        let refused = json!({"status": "failed", "attempts": 0, "error_message": "over the quota"});
        assert_eq!(why_of(&refused, false), "it was never sent (over the quota)");
        assert_eq!(why_of(&json!({"status": "success", "attempts": 1}), false), "");
    }
}
