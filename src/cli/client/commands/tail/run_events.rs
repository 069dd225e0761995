//! The events of a run, told by its list row and its attempts.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::commands::tail::event::TailEvent;
use crate::cli::output::cells::text_of;

/// The run has ended.
#[must_use]
pub fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("success" | "failed"))
}

/// The row does not tell the attempts before the last.
#[must_use]
pub fn has_earlier_attempts(run: &Value) -> bool {
    run["attempts"].as_i64() > Some(1)
}

/// The events of a run, oldest first. `attempts` is its list of attempts; without it the row tells the last.
#[must_use]
pub fn events_of(run: &Value, attempts: Option<&Value>) -> Vec<TailEvent> {
    let attempts = attempts.and_then(|answer| answer["attempts"].as_array());
    let mut events: Vec<TailEvent> =
        attempts.into_iter().flatten().filter_map(|attempt| of_attempt(run, attempt)).collect();
    let is_told = |events: &[TailEvent], word: &str| events.iter().any(|event| event.event == word);
    let last = match run["status"].as_str() {
        Some("success") => Some("execution.succeeded"),
        Some("failed") if run["error_message"] == "cancelled" => Some("execution.cancelled"),
        Some("failed") => Some("execution.failed"),
        Some("retrying") if events.is_empty() => Some("execution.retrying"),
        _ => None,
    };
    events.extend(last.filter(|word| !is_told(&events, word)).map(|word| {
        let at = if word == "execution.cancelled" { None } else { end_of_attempt(run) };
        let at = at.map_or_else(|| text_of(run, "updated_at"), |at| at.to_string());
        listed(word, run, run, &at, run["attempts"].clone())
    }));
    events
}

fn of_attempt(run: &Value, attempt: &Value) -> Option<TailEvent> {
    let word = match attempt["result"].as_str()? {
        "success" => "execution.succeeded",
        "failed" => "execution.failed",
        "retrying" => "execution.retrying",
        "claim_lost" => "execution.claim_lost",
        _ => return None,
    };
    Some(listed(word, run, attempt, &text_of(attempt, "ended_at"), attempt["attempt"].clone()))
}

/// The end of the last attempt: its begin and its duration.
fn end_of_attempt(run: &Value) -> Option<Timestamp> {
    let begin = run["claimed_at"].as_str().or_else(|| run["last_attempt_at"].as_str())?;
    let duration = SignedDuration::from_millis(run["duration_ms"].as_i64().unwrap_or(0));
    begin.parse::<Timestamp>().ok()?.checked_add(duration).ok()
}

/// An event with the fields that a stream's has. `latest` is the row of the run or of the attempt.
fn listed(word: &str, run: &Value, latest: &Value, at: &str, attempt: Value) -> TailEvent {
    let status = match word {
        "execution.succeeded" => "success",
        "execution.retrying" => "retrying",
        "execution.claim_lost" => "pending",
        _ => "failed",
    };
    let mut event = TailEvent::listed(
        word,
        json!({
            "execution_id": run["id"], "cue_id": run["cue_id"], "cue_name": run["cue_name"], "status": status,
            "triggered_by": run["triggered_by"], "scheduled_for": run["scheduled_for"], "attempt": attempt,
            "max_attempts": run["max_attempts"], "worker_id": run["claimed_by_worker"],
            "outcome_state": run["outcome_state"], "cause": latest["cause"], "http_status": latest["http_status"],
            "error_message": latest["error_message"], "duration_ms": latest["duration_ms"],
            "late_ms": run["late_ms"], "next_retry": latest["next_retry"], "at": at,
        }),
    );
    event.body = latest["response_body"].as_str().map(str::to_owned);
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(run: &Value, attempts: Option<&Value>) -> Vec<(String, i64, String)> {
        let events = events_of(run, attempts);
        events
            .iter()
            .map(|event| (event.event.clone(), event.number("attempt").unwrap(), event.field("at")))
            .collect()
    }

    fn text(event: &str, attempt: i64, at: &str) -> (String, i64, String) {
        (event.to_owned(), attempt, at.to_owned())
    }

    #[test]
    fn the_row_tells_the_last_attempt() {
        let run = json!({
            "status": "success", "attempts": 1, "last_attempt_at": "2030-01-01T00:00:01Z", "duration_ms": 250,
            "updated_at": "2031-01-01T00:00:00Z",
        });
        assert_eq!(told(&run, None), [text("execution.succeeded", 1, "2030-01-01T00:00:01.25Z")]);
        let retrying =
            json!({"status": "retrying", "attempts": 1, "last_attempt_at": "2030-01-01T00:00:01Z"});
        assert_eq!(told(&retrying, None), [text("execution.retrying", 1, "2030-01-01T00:00:01Z")]);
        assert_eq!(told(&json!({"status": "delivering", "attempts": 1}), None), []);
        let over_quota = json!({"status": "failed", "attempts": 0, "updated_at": "2030-01-01T00:00:00Z"});
        assert_eq!(told(&over_quota, None), [text("execution.failed", 0, "2030-01-01T00:00:00Z")]);
    }

    #[test]
    fn the_attempts_tell_what_was_before() {
        let attempt = |number: i64, result: &str| json!({"attempt": number, "result": result, "ended_at": format!("t{number}")});
        let attempts = json!({"attempts": [attempt(1, "cut"), attempt(1, "retrying"), attempt(2, "failed")]});
        let run = json!({"status": "failed", "attempts": 2, "updated_at": "later"});
        assert_eq!(
            told(&run, Some(&attempts)),
            [text("execution.retrying", 1, "t1"), text("execution.failed", 2, "t2")]
        );
        let cancelled =
            json!({"status": "failed", "error_message": "cancelled", "attempts": 1, "updated_at": "u"});
        let attempts = json!({"attempts": [attempt(1, "retrying")]});
        assert_eq!(
            told(&cancelled, Some(&attempts)),
            [text("execution.retrying", 1, "t1"), text("execution.cancelled", 1, "u")]
        );
    }
}
