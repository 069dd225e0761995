//! `cued tail`: what happens in the account, line by line, for as long as the command runs.

use std::io::{self, IsTerminal as _};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::arguments::{fetch, find_maybe_id};
use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::{end_on_signals, end_with_reader};
use crate::cli::client::words::{event_of_words, in_words, message_of};
use crate::cli::error::{CliError, Result};
use crate::cli::output::table::{
    Style, Times, duration, fitted, indented, last_line, parse_duration, span, text_of,
};
use crate::cli::output::{Format, Output, SHORT_ID, print_note, print_part, yaml};
use crate::cli::printable::{printable, printable_lines};
use crate::cli::width::cut;
use crate::client::event_stream::{StreamEvent, StreamItem, request};
use crate::client::request::{ApiRequest, segment};

/// Rows that are read of the runs of the past.
const MAX_LISTED: u64 = 1_000;

/// Lines of the body of a response that are shown.
const MAX_BODY_LINES: usize = 10;

/// Show events of the account as they happen, until Ctrl-C
///
/// The line of a run has its id. Times are those of the server. After a lost connection the command goes on without
/// a gap. If the server no longer has some events, for instance after its restart, a line `gap: …` says so. Without
/// --types it shows results of attempts, missed runs, alerts, quotas and the state of the server.
///
/// With --json each line is an object with the `id` and the type of the `event`, and its `data`; a gap is the event
/// `reset`. Runs that --since reads from the list have no id.
#[derive(Debug, Args)]
pub struct Tail {
    /// Only events of this cue, by id or name
    #[arg(long, value_name = "CUE")]
    cue: Option<String>,

    /// Only events of cues with this tag; repeat to require several tags
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Only failures: failed attempts and runs, missed runs, alerts
    #[arg(long, conflicts_with = "types")]
    failed: bool,

    /// Only these types of events or groups of them, such as failed,alert
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    types: Vec<String>,

    /// Begin with the runs of the past 90s, 10m, 2h, 1d or the like
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    since: Option<SignedDuration>,

    /// Show the body of the response to each failed attempt
    #[arg(long)]
    body: bool,
}

impl ClientAction for Tail {
    fn run(self, context: &Context) -> Result {
        let cue_id = find_maybe_id(context, self.cue.as_deref())?;
        let selection = Selection::new(&self.types, self.failed);
        let request = request(Some(&selection.words.join(",")), cue_id.as_deref());
        let request = with_tags(request, &self.tags);
        end_on_signals()?;
        let mut stream = context.open_stream(request, None)?;
        end_with_reader()?;
        let mut since = self.since;
        while let Some(item) = stream.next_item()? {
            let mut events = Vec::new();
            match item {
                StreamItem::Lost(reason) => {
                    print_note(&format!("connection lost ({reason}); connecting again"))?;
                }
                StreamItem::Hello { hello, is_again } => {
                    if is_again {
                        print_note("reconnected")?;
                    } else if context.output.is_short() && io::stderr().is_terminal() {
                        print_note("Waiting for events; Ctrl-C ends")?;
                    }
                    if hello["held"] == Value::Bool(true) {
                        let note = "the server is on hold and fires nothing; see `cued promote`";
                        print_note(note)?;
                    }
                    if let Some(since) = since.take() {
                        // The clock of this machine stands in for that of a server that does not state its time.
                        let now = text_of(&hello, "time").parse();
                        let now: Timestamp = now.unwrap_or_else(|_| context.client.clock().now());
                        let begin = now.checked_sub(since).unwrap_or_default();
                        events = past(context, cue_id.as_deref(), &self.tags, begin)?;
                    }
                }
                StreamItem::Event(event) => events.extend(TailEvent::streamed(event)),
            }
            for mut event in events.into_iter().filter(|event| selection.admits(event)) {
                if self.body {
                    event.body = body(context, &event)?;
                }
                if !print(context, &event)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn with_tags(request: ApiRequest, tags: &[String]) -> ApiRequest {
    tags.iter().fold(request, |request, tag| request.query("tag", tag))
}

/// The last events of the runs that were created since then, oldest first: what their list has.
fn past(
    context: &Context,
    cue_id: Option<&str>,
    tags: &[String],
    begin: Timestamp,
) -> Result<Vec<TailEvent>> {
    let request = ApiRequest::get("/v1/executions").maybe_query("cue_id", cue_id);
    let request = with_tags(request, tags).query("since", begin.to_string());
    let list = fetch(|page| context.fetch(page), &request, "executions", MAX_LISTED)?;
    if list.has_more {
        print_note("some older runs are not shown: there are too many")?;
    }
    let mut events: Vec<TailEvent> = list.items.iter().filter_map(TailEvent::from_run).collect();
    events.sort_by_key(|event| event.instant("at"));
    Ok(events)
}

/// The body of the response to a failed attempt.
fn body(context: &Context, event: &TailEvent) -> Result<Option<String>> {
    if !event.is_failed_attempt() || event.data["http_status"].is_null() {
        return Ok(None);
    }
    let path = format!("/v1/executions/{}/attempts", segment(&event.field("execution_id")));
    let answer = match context.fetch(&ApiRequest::get(path)).and_then(|answer| Ok(answer.value()?))
    {
        // The event is worth more than the body. A run that is not there was deleted.
        Err(CliError::Client(error)) => {
            if error.exit_code() != 3 {
                print_note(&format!("cannot read the body of a response: {error}"))?;
            }
            return Ok(None);
        }
        answer => answer?,
    };
    let is_this =
        |it: &&Value| it["attempt"] == event.data["attempt"] && it["result"] != json!("cut");
    let attempt = answer["attempts"].as_array().and_then(|attempts| attempts.iter().find(is_this));
    Ok(attempt.and_then(|attempt| attempt["response_body"].as_str()).map(str::to_owned))
}

/// Prints an event in the form of `--output`. Returns false if the reader has closed the pipe.
fn print(context: &Context, event: &TailEvent) -> Result<bool> {
    let output = &context.output;
    let text = match output.format {
        Format::Json | Format::Jsonl => format!("{}\n", event.json()),
        Format::Yaml => format!("---\n{}", yaml::document(&event.json())?),
        Format::Id => {
            let ids = ["execution_id", "cue_id", "id"].map(|field| event.field(field));
            if event.event == "reset" {
                print_note(&printable(&sentence(event, &output.times)))?;
            }
            ids.iter().find(|id| !id.is_empty()).map(|id| printable(id) + "\n").unwrap_or_default()
        }
        Format::Table | Format::Wide => lines(output, event, context.client.server_time()),
    };
    print_part(&text)
}

fn lines(output: &Output, event: &TailEvent, now: Timestamp) -> String {
    let (sign, style) = sign(event);
    let first = |fields: [&str; 2]| {
        fields
            .into_iter()
            .map(|name| event.field(name))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    };
    let (at, name, run) = (
        first(["at", "created_at"]),
        first(["cue_name", "worker_id"]),
        event.field("execution_id"),
    );
    let words = if event.event.starts_with("execution.") {
        (result(event), style)
    } else {
        (sentence(event, &output.times), Style::Plain)
    };
    let width = output.styles.width.filter(|_| output.is_short());
    let sign = (sign.to_owned(), style);
    let mut parts = match width {
        Some(width) => {
            let time = format!("{:1$}", output.times.of_day(&at, now, "%m-%d %H:%M"), LOG_TIME);
            let name = padded(&printable(&name), (width / 5).clamp(MIN_NAME, MAX_NAME));
            let run = padded(&output.id(&run), SHORT_ID);
            vec![(time, Style::Faint), sign, (run, Style::Faint), (name, Style::Plain), words]
        }
        None => {
            let time = output.times.instant(&at);
            vec![(time, Style::Faint), sign, (name, Style::Plain), words, (run, Style::Faint)]
        }
    };
    parts.extend([detail(event), message(event)].map(|text| (text, Style::Plain)));
    parts.iter_mut().for_each(|(text, _)| *text = printable(text));
    let [before @ .., (quoted, _)] = parts.as_slice() else { return String::new() };
    let used: usize =
        before.iter().filter(|part| !part.0.is_empty()).map(|part| part.0.width() + 2).sum();
    if width.is_some_and(|width| used + quoted.width().min(MIN_QUOTE) > width) {
        parts.pop();
    }
    let line = fitted(&parts, width.unwrap_or(usize::MAX), &output.styles);
    format!("{}\n{}", line.trim_end(), body_lines(output, event))
}

/// Columns of a time of today in a line that must be short, and the fewest and the most of a name.
const LOG_TIME: usize = 8;
const MIN_NAME: usize = 12;
const MAX_NAME: usize = 30;

/// A message cut to fewer columns says nothing.
const MIN_QUOTE: usize = 15;

/// The text in so many columns.
fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    format!("{text}{:missing$}", "", missing = columns.saturating_sub(text.width()))
}

fn sign(event: &TailEvent) -> (&'static str, Style) {
    match event.event.as_str() {
        "execution.outcome" if event.is_failed_outcome() => ("✕", Style::Bad),
        "execution.succeeded" | "execution.outcome" => ("●", Style::Good),
        "execution.retrying" => ("↻", Style::Warning),
        "execution.failed" | "missed.recorded" | "cue.failed" => ("✕", Style::Bad),
        "alert.created" | "execution.claim_lost" | "quota.near" | "quota.exceeded" | "reset" => {
            ("!", Style::Warning)
        }
        _ => ("·", Style::Faint),
    }
}

fn body_lines(output: &Output, event: &TailEvent) -> String {
    let body = event.body.as_deref().unwrap_or_default();
    let mut text =
        indented(printable_lines(body).take(MAX_BODY_LINES), Style::Faint, &output.styles);
    let more = body.lines().count().saturating_sub(MAX_BODY_LINES);
    if more > 0 {
        text += &format!("  ({more} more; --json shows all)\n");
    }
    text
}

/// The result of an attempt, its status and its duration.
fn result(event: &TailEvent) -> String {
    let attempt = event.number("attempt").filter(|attempt| *attempt > 0);
    let of = |word: &str| match attempt {
        Some(attempt) => format!("{word} {attempt}/{}", event.field("max_attempts")),
        None => word.to_owned(),
    };
    let word = match event.event.as_str() {
        "execution.retrying" => of("attempt"),
        // A worker's report ends a run, whatever attempts are left.
        "execution.failed" if !event.field("worker_id").is_empty() => "failed".to_owned(),
        "execution.failed" => of("failed"),
        "execution.succeeded" if attempt > Some(1) => of("success"),
        "execution.succeeded" => "success".to_owned(),
        "execution.outcome" => return outcome(event),
        other => return other.trim_start_matches("execution.").replace('_', " "),
    };
    let status = if event.data["http_status"].is_null() {
        in_words(&event.field("cause"))
    } else {
        event.field("http_status")
    };
    let took = event.number("duration_ms").map(duration).unwrap_or_default();
    let parts = [word, status, took];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
}

fn outcome(event: &TailEvent) -> String {
    in_words(&event.field("outcome_state"))
}

/// The rest about an attempt: its lateness, the next step, its worker.
fn detail(event: &TailEvent) -> String {
    match event.event.as_str() {
        "execution.retrying" => match (event.instant("next_retry"), event.instant("at")) {
            (Some(next), Some(at)) => {
                let wait = i64::try_from(next.duration_since(at).as_millis()).unwrap_or(i64::MAX);
                format!("next in {}", span(wait.max(0)))
            }
            _ => String::new(),
        },
        "execution.succeeded" if event.number("attempt") == Some(1) => {
            event.number("late_ms").map(|late| format!("+{}", duration(late))).unwrap_or_default()
        }
        "execution.created" => in_words(&event.field("triggered_by")),
        _ => String::new(),
    }
}

fn message(event: &TailEvent) -> String {
    let message = message_of(&event.data);
    if message.is_empty() || !event.is_failed_attempt() {
        return String::new();
    }
    format!("\"{}\"", last_line(&message))
}

/// An event that is no attempt, in words.
fn sentence(event: &TailEvent, times: &Times) -> String {
    let field = |name: &str| event.field(name);
    let words = event.event.replace('.', " ");
    match event.event.as_str() {
        "reset" => {
            format!("gap: some events were missed ({}); --since shows the past", field("reason"))
        }
        "alert.created" => format!("alert {}: {}", field("alert_type"), field("message")),
        "missed.recorded" => {
            let (first, last) = (times.instant(&field("first")), times.instant(&field("last")));
            let span = if first == last { first } else { format!("{first} to {last}") };
            format!("missed {} ({}): {span}", field("count"), field("reason").replace('_', " "))
        }
        "quota.near" | "quota.exceeded" => {
            format!("{words}: {} of {} runs", field("used"), field("limit"))
        }
        "server.state" => format!("server {}", field("state").replace('_', " ")),
        "worker.seen" => words,
        "burst" => {
            let counts = event.data["counts"].as_object().into_iter().flatten();
            let counts: Vec<String> =
                counts.map(|(word, count)| format!("{count} {word}")).collect();
            let span = duration(event.number("span_ms").unwrap_or(0));
            format!("too many to show in {span}: {}", counts.join(", "))
        }
        word if word.starts_with("cue.") => match event.data["next_run"].as_str() {
            Some(next) => format!("{words}, next run {}", times.instant(next)),
            None => words,
        },
        word => format!("{word} {}", event.data),
    }
}

/// The events that are shown by default: results, and what needs attention.
const DEFAULT: &str = "execution.retrying,execution.succeeded,execution.failed,execution.cancelled,execution.claim_lost,\
                       execution.outcome,missed,alert,quota,cue.paused,cue.failed,server";

const FAILURES: &str = "execution.retrying,execution.failed,execution.claim_lost,execution.outcome,missed,alert,\
                        quota.exceeded,cue.failed";

#[derive(Debug, Clone)]
struct TailEvent {
    /// `None` if it comes from a list.
    id: Option<String>,
    event: String,
    data: Value,
    /// The data as the server sent it; for an event from a list as JSON of this program.
    text: String,
    /// The body of the response to a failed attempt, if it was read.
    body: Option<String>,
}

impl TailEvent {
    fn listed(event: &str, data: Value) -> Self {
        Self { id: None, event: event.to_owned(), text: data.to_string(), data, body: None }
    }

    /// The last event of a run, by its list row; `None` of one that has not been attempted.
    fn from_run(run: &Value) -> Option<Self> {
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

    fn streamed(event: StreamEvent) -> Option<Self> {
        let data = serde_json::from_str(&event.data).ok()?;
        Some(Self { id: Some(event.id), event: event.event, text: event.data, data, body: None })
    }

    fn instant(&self, field: &str) -> Option<Timestamp> {
        self.data[field].as_str()?.parse().ok()
    }

    fn number(&self, field: &str) -> Option<i64> {
        self.data[field].as_i64()
    }

    fn field(&self, field: &str) -> String {
        text_of(&self.data, field)
    }

    fn is_failed_attempt(&self) -> bool {
        matches!(self.event.as_str(), "execution.retrying" | "execution.failed")
    }

    fn is_failed_outcome(&self) -> bool {
        let failures = ["reported_failure", "verification_failed", "missing"];
        self.data["outcome_state"].as_str().is_some_and(|state| failures.contains(&state))
    }

    /// A line of JSON. An alert has an id of its own: so the data stays an object in the object.
    fn json(&self) -> String {
        let (id, event) = (Value::from(self.id.clone()), Value::from(self.event.as_str()));
        let body =
            self.body.as_deref().map(|body| format!(",\"response_body\":{}", Value::from(body)));
        format!(
            "{{\"id\":{id},\"event\":{event},\"data\":{}{}}}",
            self.text,
            body.unwrap_or_default()
        )
    }
}

struct Selection {
    /// Types of events, or their first words.
    words: Vec<String>,
    is_default: bool,
    only_failures: bool,
}

impl Selection {
    fn new(types: &[String], only_failures: bool) -> Self {
        let default = if only_failures { FAILURES } else { DEFAULT };
        let words: Vec<String> =
            types.iter().map(|word| event_of_words(word.trim()).to_owned()).collect();
        let is_default = words.is_empty();
        let words =
            if is_default { default.split(',').map(str::to_owned).collect() } else { words };
        Self { words, is_default, only_failures }
    }

    /// Whether an event is shown. The server selects by type too, but a list has all runs.
    fn admits(&self, event: &TailEvent) -> bool {
        let is_listed = event.id.is_none();
        let group = event.event.split('.').next();
        let has_type =
            self.words.iter().any(|word| *word == event.event || Some(word.as_str()) == group);
        // The result of a worker's run is its outcome, and is shown as that of the run.
        let is_shown = event.event != "execution.outcome"
            || !self.is_default
            || (event.data["worker_id"].is_null()
                && (event.is_failed_outcome() || !self.only_failures));
        is_shown && (has_type || !is_listed)
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::cli::output::table::Styles;

    const ID: &str = "018cc251-f400-7abc-8000-000000000000";

    #[test]
    fn an_event_is_a_line_in_words_with_the_id_of_its_run() {
        let output = |width| {
            let (styles, times) =
                (Styles { has_colour: false, width }, Times::in_zone(TimeZone::UTC));
            Output { format: Format::Table, styles, times }
        };
        let now = "2030-01-01T13:00:00Z".parse().unwrap();
        let run = json!({
            "execution_id": ID, "cue_name": "sync", "attempt": 1, "max_attempts": 4, "http_status": 503, "late_ms": 2,
            "cause": "status_5xx", "duration_ms": 87, "next_retry": "2030-01-01T12:01:30Z", "error_message": "no\u{1b}[2J",
            "at": "2030-01-01T12:00:30.001Z",
        });
        let time = "2030-01-01 12:00:30.001+00:00";
        let missed = json!({"cue_name": "n", "count": 2, "reason": "server_down", "first": "x", "last": "y"});
        let reported = json!({"cue_name": "backup", "attempt": 1, "max_attempts": 4, "worker_id": "nas",
                              "error_message": "no disk"});
        let burst = json!({"span_ms": 1_000, "counts": {"execution.failed": 2}});
        for (event, data, expected) in [
            (
                "execution.succeeded",
                &run,
                format!("{time}  ●  sync  success  503  87 ms  {ID}  +2 ms"),
            ),
            (
                "execution.retrying",
                &run,
                format!(
                    "{time}  ↻  sync  attempt 1/4  503  87 ms  {ID}  next in 60 s  \"no\u{fffd}[2J\""
                ),
            ),
            (
                "reset",
                &json!({"reason": "x"}),
                "!  gap: some events were missed (x); --since shows the past".to_owned(),
            ),
            ("execution.failed", &reported, "✕  backup  failed  \"no disk\"".to_owned()),
            ("burst", &burst, "·  too many to show in 1.0 s: 2 execution.failed".to_owned()),
            ("server.state", &json!({"state": "clock_moved"}), "·  server clock moved".to_owned()),
            ("missed.recorded", &missed, "✕  n  missed 2 (server down): x to y".to_owned()),
            ("new.kind", &json!({"a": 1}), "·  new.kind {\"a\":1}".to_owned()),
        ] {
            let event = TailEvent::listed(event, data.clone());
            assert_eq!(lines(&output(None), &event, now), format!("{expected}\n"));
        }
        for (event, data, expected) in [
            (
                "execution.retrying",
                &run,
                "12:00:30  ↻  00000000  sync              attempt 1/4  503  87 ms  next in 60 s"
                    .to_owned(),
            ),
            (
                "missed.recorded",
                &missed,
                format!("{:10}✕{:12}{:16}  missed 2 (server down): x to y", "", "", "n"),
            ),
        ] {
            let event = TailEvent::listed(event, data.clone());
            assert_eq!(lines(&output(Some(80)), &event, now), format!("{expected}\n"));
        }
    }

    #[test]
    fn types_and_their_first_words_select_runs_and_outcomes_those_of_deliveries() {
        let created = TailEvent::listed("execution.created", json!({}));
        let outcome = |worker: Option<&str>, state: &str| {
            TailEvent::listed(
                "execution.outcome",
                json!({"worker_id": worker, "outcome_state": state}),
            )
        };
        let (failure, success) =
            (outcome(None, "reported_failure"), outcome(None, "reported_success"));
        let of_worker = outcome(Some("w"), "reported_failure");
        for (types, only_failures, expected) in [
            ("", false, [false, true, true, false]),
            ("", true, [false, true, false, false]),
            ("execution.created,cue", false, [true, false, false, false]),
            ("execution", false, [true; 4]),
        ] {
            let types: Vec<String> = types.split_terminator(',').map(str::to_owned).collect();
            let selection = Selection::new(&types, only_failures);
            let admitted =
                [&created, &failure, &success, &of_worker].map(|event| selection.admits(event));
            assert_eq!(admitted, expected, "{types:?} {only_failures}");
        }
    }
}
