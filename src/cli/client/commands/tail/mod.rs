//! `cued tail`: what happens in the account, line by line, for as long as the command runs.

mod line;

use std::collections::HashSet;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::arguments::{fetch, find_maybe_id};
use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::tail::line::Printer;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::{end_on_signals, end_with_reader};
use crate::cli::error::CliError;
use crate::cli::output::table::{duration, parse_duration, text_of};
use crate::client::event_stream::{StreamEvent, StreamItem, request};
use crate::client::request::{ApiRequest, segment};

/// Rows that are read of a list of the past.
const MAX_LISTED: u64 = 1_000;

/// Runs that were created this long before the span are read too: more than the retries of most runs take.
const RETRY_SPAN: SignedDuration = SignedDuration::from_hours(1);

pub const HELP: &str = "Show what happens in the account, line by line, until Ctrl-C

A line of a run has the id of the run. Times are those of the server. The command goes on after a lost connection without a \
gap. Events that the server no longer has, such as those before its restart, are missing: a line `gap: …` says so. Without \
--types it shows the results of attempts, missed runs, alerts, quotas, and the state of the server.

With --json each line is an object with the `id` and the type of the `event`, and its `data`; the event of a gap is `reset`. \
What --since reads from the lists of runs and alerts has no id.

Example: cued tail --failed --since 1h --body";

#[derive(Debug, Args)]
pub struct Tail {
    /// Only what concerns this cue: its id or its name
    #[arg(long, value_name = "CUE")]
    pub cue: Option<String>,

    /// Only failures: failed attempts and runs, missed runs, alerts
    #[arg(long, conflicts_with = "types")]
    pub failed: bool,

    /// Only these types of events or groups of them, such as execution.failed,alert
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub types: Vec<String>,

    /// First the runs and alerts of the past, such as 90s, 10m, 2h, 1d
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    pub since: Option<SignedDuration>,

    /// Show the body of the response to each failed attempt
    #[arg(long)]
    pub body: bool,
}

impl ClientAction for Tail {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let cue_id = find_maybe_id(context, self.cue.as_deref())?;
        let selection = Selection::new(&self.types, self.failed);
        let request = request(Some(&selection.words.join(",")), cue_id.as_deref());
        end_on_signals()?;
        let mut stream = context.open_stream(request, None)?;
        end_with_reader()?;
        let mut printer = Printer::new(context);
        let mut since = self.since;
        // The events that the lists have shown, until the stream repeats them.
        let mut listed = HashSet::new();
        while let Some(item) = stream.next_item()? {
            let mut events = Vec::new();
            match item {
                StreamItem::Lost(reason) => {
                    context.output.note(&format!("connection lost ({reason}); connecting again"))?;
                }
                StreamItem::Hello { hello, lost_for } => {
                    if let Some(lost_for) = lost_for {
                        let millis = i64::try_from(lost_for.as_millis()).unwrap_or(i64::MAX);
                        context.output.note(&format!("reconnected, {}", duration(millis)))?;
                    }
                    if hello["held"] == Value::Bool(true) {
                        let note = "the server is on hold and fires nothing; see `cued promote`";
                        context.output.note(note)?;
                    }
                    if let Some(since) = since.take() {
                        // The clock of this machine stands in for that of a server that does not state its time.
                        let now = text_of(&hello, "time").parse();
                        let now: Timestamp = now.unwrap_or_else(|_| context.client.clock().now());
                        let begin = now.checked_sub(since).unwrap_or(Timestamp::UNIX_EPOCH);
                        events = past(context, cue_id.as_deref(), &selection, begin)?;
                        // Pages shift while rows are created: a row may be on two.
                        events.retain(|event| event.key().is_none_or(|key| listed.insert(key)));
                    }
                }
                StreamItem::Event(event) => {
                    let event = TailEvent::streamed(event).filter(|event| selection.admits(event));
                    events.extend(event.filter(|event| !event.key().is_some_and(|key| listed.remove(&key))));
                }
            }
            for mut event in events {
                if self.body {
                    add_body(context, &mut event)?;
                }
                if !printer.print(&event)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads the body of the response to a failed attempt.
fn add_body(context: &Context, event: &mut TailEvent) -> Result<(), CliError> {
    if !event.is_failed_attempt() || event.data["http_status"].is_null() {
        return Ok(());
    }
    let path = format!("/v1/executions/{}/attempts", segment(&event.field("execution_id")));
    match context.look_up(&ApiRequest::get(path)).and_then(|answer| Ok(answer.value()?)) {
        Ok(answer) => {
            let is_this =
                |it: &&Value| it["attempt"] == event.data["attempt"] && it["result"] != json!("cut");
            let attempt = answer["attempts"].as_array().and_then(|attempts| attempts.iter().find(is_this));
            event.body = attempt.and_then(|attempt| attempt["response_body"].as_str()).map(str::to_owned);
            Ok(())
        }
        // The run was deleted.
        Err(error) if error.exit_code() == 3 => Ok(()),
        // The event is worth more than the body.
        Err(CliError::Client(error)) => {
            context.output.note(&format!("cannot read the body of a response: {error}"))
        }
        Err(error) => Err(error),
    }
}

/// The last events of the runs, and the alerts, since then, oldest first: what their lists have.
fn past(
    context: &Context,
    cue_id: Option<&str>,
    selection: &Selection,
    begin: Timestamp,
) -> Result<Vec<TailEvent>, CliError> {
    let mut events = Vec::new();
    let list = |path: &str, key: &'static str, since: Timestamp| {
        let request = ApiRequest::get(path).maybe_query("cue_id", cue_id).query("since", since.to_string());
        let list = fetch(|page| context.look_up(page), &request, key, MAX_LISTED)?;
        if list.has_more {
            context.output.note("some older events are not shown: there are too many")?;
        }
        list.values()
    };
    if selection.has_runs() {
        let created = begin.checked_sub(RETRY_SPAN).unwrap_or(Timestamp::UNIX_EPOCH);
        events.extend(list("/v1/executions", "executions", created)?.iter().filter_map(TailEvent::of_run));
    }
    if selection.has_type("alert.created") {
        let alerts = list("/v1/alerts", "alerts", begin)?;
        events.extend(alerts.into_iter().map(|alert| TailEvent::listed("alert.created", alert)));
    }
    events.retain(|event| event.at() >= Some(begin) && selection.has_type(&event.event));
    events.sort_by_key(TailEvent::at);
    Ok(events)
}

/// The events that are shown by default: results, and what needs attention.
const DEFAULT: &str = "execution.retrying,execution.succeeded,execution.failed,execution.cancelled,execution.claim_lost,\
                       execution.outcome,missed,alert,quota,cue.paused,cue.failed,server";

const FAILURES: &str = "execution.retrying,execution.failed,execution.claim_lost,execution.outcome,missed,alert,\
                        quota.exceeded,cue.failed";

#[derive(Debug, Clone, PartialEq)]
pub struct TailEvent {
    /// `None` if it comes from a list.
    pub id: Option<String>,
    pub event: String,
    pub data: Value,
    /// The data as the server sent it; for an event from a list as JSON of this program.
    text: String,
    /// The body of the response of a failed attempt, if it was read.
    pub body: Option<String>,
}

impl TailEvent {
    /// An event that is read from a list.
    pub fn listed(event: &str, data: Value) -> Self {
        Self { id: None, event: event.to_owned(), text: data.to_string(), data, body: None }
    }

    /// The last event of a run, by its list row; `None` of one that has not been attempted.
    pub fn of_run(run: &Value) -> Option<Self> {
        let event = match run["status"].as_str()? {
            "success" => "execution.succeeded",
            "failed" if run["error_message"] == "cancelled" => "execution.cancelled",
            "failed" => "execution.failed",
            "retrying" => "execution.retrying",
            _ => return None,
        };
        let mut data = run.clone();
        for (name, of_row) in [
            ("execution_id", "id"),
            ("attempt", "attempts"),
            ("at", "updated_at"),
            ("worker_id", "claimed_by_worker"),
        ] {
            data[name] = run[of_row].clone();
        }
        Some(Self::listed(event, data))
    }

    /// An event of a stream; `None` if its data is no JSON.
    pub fn streamed(event: StreamEvent) -> Option<Self> {
        let data = serde_json::from_str(&event.data).ok()?;
        Some(Self { id: Some(event.id), event: event.event, text: event.data, data, body: None })
    }

    /// The instant of the change.
    pub fn at(&self) -> Option<Timestamp> {
        let field = if self.event == "alert.created" { "created_at" } else { "at" };
        self.data[field].as_str()?.parse().ok()
    }

    pub fn number(&self, field: &str) -> Option<i64> {
        self.data[field].as_i64()
    }

    pub fn field(&self, field: &str) -> String {
        text_of(&self.data, field)
    }

    /// Identifies an event of a list in the stream; `None` of those that no list has.
    pub fn key(&self) -> Option<(String, String, i64)> {
        let id = if self.event == "alert.created" { "id" } else { "execution_id" };
        Some((self.event.clone(), self.data[id].as_str()?.to_owned(), self.number("attempt").unwrap_or(0)))
    }

    pub fn is_failed_attempt(&self) -> bool {
        matches!(self.event.as_str(), "execution.retrying" | "execution.failed")
    }

    pub fn is_failed_outcome(&self) -> bool {
        matches!(self.data["outcome_state"].as_str(), Some("reported_failure" | "verification_failed"))
    }

    /// A line of JSON. An alert has an id of its own: so the data stays an object in the object.
    pub fn json(&self) -> String {
        let (id, event) = (Value::from(self.id.clone()), Value::from(self.event.as_str()));
        let body = self.body.as_deref().map(|body| format!(",\"response_body\":{}", Value::from(body)));
        format!("{{\"id\":{id},\"event\":{event},\"data\":{}{}}}", self.text, body.unwrap_or_default())
    }
}

#[derive(Debug, Clone)]
pub struct Selection {
    /// Types of events, or their first words.
    pub words: Vec<String>,
    is_default: bool,
    only_failures: bool,
}

impl Selection {
    /// The events of `types`, if any are named.
    pub fn new(types: &[String], only_failures: bool) -> Self {
        let default = if only_failures { FAILURES } else { DEFAULT };
        let is_default = types.is_empty();
        let words = if is_default {
            default.split(',').map(str::to_owned).collect()
        } else {
            types.iter().map(|word| word.trim().to_owned()).collect()
        };
        Self { words, is_default, only_failures }
    }

    pub fn has_runs(&self) -> bool {
        self.words.iter().any(|word| word.split('.').next() == Some("execution"))
    }

    pub fn has_type(&self, event: &str) -> bool {
        let group = event.split('.').next();
        self.words.iter().any(|word| word == event || Some(word.as_str()) == group)
    }

    /// Whether an event is shown that has a selected type.
    pub fn admits(&self, event: &TailEvent) -> bool {
        // The result of a worker's run is its outcome, and is shown as that of the run.
        event.event != "execution.outcome"
            || !self.is_default
            || (event.data["worker_id"].is_null() && (event.is_failed_outcome() || !self.only_failures))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_and_their_first_words_select_events_and_outcomes_those_of_deliveries() {
        let selection = |types: &str, only_failures| {
            let types: Vec<String> = types.split_terminator(',').map(str::to_owned).collect();
            Selection::new(&types, only_failures)
        };
        let has = |selection: &Selection| {
            ["execution.created", "execution.failed", "execution.succeeded", "alert.created", "cue.updated"]
                .map(|word| selection.has_type(word))
        };
        assert_eq!(has(&selection("", false)), [false, true, true, true, false]);
        assert_eq!(has(&selection("", true)), [false, true, false, true, false]);
        assert_eq!(has(&selection("execution.created,cue", false)), [true, false, false, false, true]);
        assert!(!selection("alert", false).has_runs() && selection("execution", false).has_runs());
        let outcome = |worker: Option<&str>, state: &str| {
            TailEvent::listed("execution.outcome", json!({"worker_id": worker, "outcome_state": state}))
        };
        let failures = selection("", true);
        assert!(failures.admits(&outcome(None, "reported_failure")));
        assert!(!failures.admits(&outcome(None, "reported_success")));
        assert!(!failures.admits(&outcome(Some("w"), "reported_failure")));
        assert!(selection("execution", false).admits(&outcome(Some("w"), "reported_failure")));
    }
}
