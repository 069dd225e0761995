//! `cued run`: the runs of cues, which the API calls executions.

mod replay;
mod show;

use std::time::Duration;

use clap::Arg;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cli::client::command::{
    Call, Columns, Entry, Form, Lines, Part, View, Work, details, entry, flag, moment, number, of_cue, own,
    place, run_id, switch, table,
};
use crate::cli::client::context::Context;
use crate::cli::client::live_output::end_on_signals;
use crate::cli::error::{CliError, failed};
use crate::cli::output::table::{Cell, Shown, Style, last_line, parse_duration, status, text_of};
use crate::cli::output::{List, print};
use crate::cli::printable::{printable, printable_lines};
use crate::client::event_stream::{EventStream, StreamItem, request};
use crate::client::request::{Answer, ApiRequest, ClientError, segment};

const COLUMNS: Columns = &[
    ("ID", Form::Text("id"), Shown::Always),
    ("CUE", Form::Text("cue_name"), Shown::Shortened),
    ("STATUS", Form::Status("status"), Shown::Always),
    ("RESULT", Form::Cell(|_, run| result_of(run).into()), Shown::Shortened),
    ("SCHEDULED", Form::ShortTime("scheduled_for"), Shown::Always),
    ("LATE", Form::Millis("late_ms"), Shown::Wide),
    ("TOOK", Form::Millis("duration_ms"), Shown::Wide),
    ("ATTEMPTS", Form::Template("{attempts}/{max_attempts}"), Shown::Wide),
    ("TRIGGER", Form::Text("triggered_by"), Shown::Wide),
    ("WORKER", Form::Text("claimed_by_worker"), Shown::Wide),
    ("CUE ID", Form::Text("cue_id"), Shown::Wide),
    ("MESSAGE", Form::Text("error_message"), Shown::Wide),
];

/// Deliveries have no worker, and workers no HTTP status: the message needs the place. Attempts are seconds apart, so
/// their time is shown in full.
const ATTEMPTS: Columns = &[
    ("ATTEMPT", Form::Text("attempt"), Shown::Always),
    ("STARTED", Form::Time("started_at"), Shown::Always),
    ("TOOK", Form::Millis("duration_ms"), Shown::Always),
    ("RESULT", Form::Cell(|_, attempt| attempt_result(attempt)), Shown::Always),
    ("HTTP", Form::Text("http_status"), Shown::WithValue),
    ("WORKER", Form::Text("worker_id"), Shown::WithValue),
    ("MESSAGE", Form::Text("error_message"), Shown::Shortened),
    ("CAUSE", Form::Text("cause"), Shown::Wide),
    ("NEXT", Form::Time("next_retry"), Shown::Wide),
];

pub fn entries() -> Vec<Entry> {
    let attempt = number("attempt", u32::MAX, "Number of the attempt, from 1 [default: the latest]");
    let timeout = flag("timeout", "SPAN", "Give up after this time, such as 90s, 5m, 2h [default: never]");
    let replay_examples = "Examples:\n  cued run replay 0198c0de-7a10\n  cued run replay --failed --since 1h --cue nightly-backup";
    vec![
        list(),
        entry(
            "show",
            "Show a run: its state, why, its result",
            [run_id()],
            Work::Request("GET /v1/executions/{run}", View::Code(show::print_run)),
        ),
        entry(
            "attempts",
            "Show the attempts of a run, oldest first",
            [run_id(), own(switch("body", "Show what the receiver answered, too"))],
            Work::Request("GET /v1/executions/{run}/attempts", View::Code(print_attempts)),
        ),
        entry(
            "request",
            "Show the request that an attempt has sent\n\nThe server does not store requests: it builds this one again, \
             and says what may differ.",
            [run_id(), (attempt, Part::Query("attempt"))],
            Work::Request("GET /v1/executions/{run}/request", View::Code(print_request)),
        ),
        entry(
            "replay",
            "Run again what has ended, with the same payload\n\nEach replay is a new run and counts against the quota. \
             Runs that were cancelled are replayed by id only.",
            replay_arguments(),
            Work::Code(replay::replay),
        )
        .example(replay_examples),
        entry(
            "retry",
            "Send a waiting run now instead of later\n\nIts attempts and the rest of its retry policy stay. A run that \
             has ended is replayed instead: cued run replay.",
            [run_id()],
            Work::Request(
                "POST /v1/executions/{run}/retry",
                View::Sentence("id", "sending run {run} now; see `cued run show {run}`"),
            ),
        ),
        entry(
            "cancel",
            "End a waiting run without sending it\n\nIt becomes failed, but nobody is notified.",
            [run_id()],
            Work::Request(
                "POST /v1/executions/{run}/cancel",
                View::Sentence("id", "cancelled run {run} of {cue_name}"),
            ),
        ),
        verify_entry(),
        entry(
            "wait",
            "Wait for the end of a run\n\nExits with 0 if it succeeds, with 8 if it fails or is cancelled, and with 1 if \
             the time is over before.\n\nExample: cued run wait 018cc251-f400-7abc-8000-000000000000 --timeout 5m",
            [run_id(), own(timeout.value_parser(parse_duration))],
            Work::Code(wait),
        ),
    ]
}

fn list() -> Entry {
    let states = "Only in these states: pending, delivering, retrying, success, failed; several with commas";
    let since = "Only created since then: a duration before now (2h), a date or an instant";
    let trigger = "Only begun by this: schedule, manual_fire or replay";
    let cause = "Only with this cause of the last failure, such as timeout or status_5xx";
    let outcome = "Only with this state of the outcome, such as verification_pending";
    entry(
        "list",
        "List runs, newest first",
        [
            of_cue(),
            (flag("status", "STATUS", states), Part::Query("status__in")),
            (
                switch("failed", "Only failed ones").conflicts_with("status"),
                Part::QuerySwitch("status__in", "failed"),
            ),
            (moment("since", since), Part::QueryMoment("since")),
            (moment("until", "Only created before then"), Part::QueryMoment("until")),
            (flag("trigger", "TRIGGER", trigger), Part::Query("triggered_by")),
            (flag("cause", "CAUSE", cause), Part::Query("cause")),
            (flag("worker", "ID", "Only claimed by this worker"), Part::Query("worker_id")),
            (flag("outcome", "STATE", outcome), Part::Query("outcome_state")),
        ],
        Work::Request("GET /v1/executions", View::Pages("id", "executions", COLUMNS)),
    )
    .example("Example:\n  cued run list --cue nightly-backup --failed --since 1d")
}

fn verify_entry() -> Entry {
    let invalid = switch("invalid", "Reject the outcome instead of accepting it");
    let reopen = switch("reopen", "Withdraw the verdict; the outcome waits for another one");
    entry(
        "verify",
        "Accept or reject the outcome that a run reported",
        [
            run_id(),
            own(invalid),
            own(flag("reason", "TEXT", "Reason of the verdict")),
            own(reopen.conflicts_with_all(["invalid", "reason"])),
        ],
        Work::Code(verify),
    )
}

fn replay_arguments() -> [(Arg, Part); 7] {
    let runs = place("runs", "RUN", "Ids of runs, or at least 8 characters of the beginning of each");
    let failed =
        "Replay all failed runs that match the other flags, oldest first; cancelled ones are left out";
    let since = "Only created since then: a duration before now (1h), a date or an instant";
    let cause = "Only with this cause of the failure, such as timeout or status_5xx";
    let runs = runs.required(false).num_args(1..).required_unless_present("failed").conflicts_with("failed");
    [
        runs,
        switch("failed", failed),
        flag("cue", "CUE", "Only of this cue: its id or its name").requires("failed"),
        moment("since", since).requires("failed"),
        moment("until", "Only created before then").requires("failed"),
        flag("cause", "CAUSE", cause).requires("failed"),
        switch("dry-run", "Only count the runs that would be replayed").requires("failed"),
    ]
    .map(own)
}

fn attempt_result(attempt: &Value) -> Cell {
    match attempt["result"].as_str() {
        None => "running".into(),
        Some(word @ ("claim_lost" | "cut")) => Cell::new(word, Style::Warning),
        Some(word) => status(word),
    }
}

/// The result in a word or two: the status that the receiver returned, else the cause of the failure, else its message.
fn result_of(object: &Value) -> String {
    let fields = ["http_status", "cause", "error_message"];
    let text = fields.iter().map(|field| text_of(object, field)).find(|text| !text.is_empty());
    last_line(&text.unwrap_or_default())
}

fn verify(call: &Call<'_>) -> Result<(), CliError> {
    let id = call.place("run");
    let request = if call.is_set("reopen") {
        ApiRequest::post(format!("/v1/executions/{id}/verification-pending"))
    } else {
        let mut body = json!({"valid": !call.is_set("invalid")});
        if let Some(reason) = call.text("reason") {
            body["reason"] = reason.into();
        }
        ApiRequest::post(format!("/v1/executions/{id}/verify")).json(body)
    };
    let answer = call.context.send(&request)?;
    let sentence = |verdict: &Value| format!("run {id} is {}", text_of(verdict, "outcome_state"));
    call.context.output.done(&answer, "execution_id", sentence)
}

fn print_attempts(call: &Call<'_>, answer: &Answer) -> Result<(), CliError> {
    let (context, list) = (call.context, List::of(answer, "attempts")?);
    context.output.list(&list, "attempt", |attempts| table(ATTEMPTS, context, attempts))?;
    if !call.is_set("body") || context.output.format.is_for_programs() {
        return Ok(());
    }
    let mut text = String::new();
    for attempt in list.values()? {
        let (headers, body) = (headers(&attempt["response_headers"]), text_of(&attempt, "response_body"));
        if headers.is_empty() && body.is_empty() {
            continue;
        }
        let title = format!("attempt {}: {}", text_of(&attempt, "attempt"), printable(&result_of(&attempt)));
        let title = context.output.styles.paint(&title, Style::Title);
        let gap = if headers.is_empty() || body.is_empty() { "" } else { "\n" };
        let cut = if attempt["response_truncated"] == true { "(the rest is not kept)\n" } else { "" };
        text.push_str(&format!("\n{title}\n{headers}{gap}{}{cut}", lines_of(&body)));
    }
    print(&text)
}

/// Prints a request in the form of HTTP.
fn print_request(call: &Call<'_>, answer: &Answer) -> Result<(), CliError> {
    let output = &call.context.output;
    if output.format.is_for_programs() {
        return output.object(answer, "url", |_| Vec::new());
    }
    let sent = answer.value()?;
    let first = lines_of(&format!("{} {}", text_of(&sent, "method"), text_of(&sent, "url")));
    let first = output.styles.paint(first.trim_end(), Style::Title);
    let body = sent["body"].as_str().map(|body| format!("\n{}", lines_of(body))).unwrap_or_default();
    print(&format!("{first}\n{}{body}", headers(&sent["headers"])))?;
    match text_of(&sent, "why") {
        why if why.is_empty() => Ok(()),
        why => output.note(&format!("not exact: {}", lines_of(&why).trim_end())),
    }
}

/// Pairs of a name and a value, a line each.
fn headers(pairs: &Value) -> String {
    let text = |pair: &Value, index: usize| pair[index].as_str().unwrap_or_default().to_owned();
    let pairs = pairs.as_array().into_iter().flatten();
    pairs.map(|pair| lines_of(&format!("{}: {}", text(pair, 0), text(pair, 1)))).collect()
}

fn lines_of(text: &str) -> String {
    printable_lines(text).map(|line| line + "\n").collect()
}

/// The events after which a run may have ended, or be gone.
const TYPES: &str = "execution.succeeded,execution.failed,execution.cancelled,cue.deleted";

/// The pause between two reads of a run, for want of a stream: an account has few of them.
const READ_INTERVAL: Duration = Duration::from_secs(5);

const LINES: Lines = &[
    ("id", Form::Text("id")),
    ("cue", Form::Text("cue_name")),
    ("status", Form::Status("status")),
    ("attempts", Form::Template("{attempts} of {max_attempts}")),
    ("http status", Form::Text("http_status")),
    ("error", Form::Text("error_message")),
    ("duration", Form::Millis("duration_ms")),
];

pub fn wait(call: &Call<'_>) -> Result<(), CliError> {
    let (context, id) = (call.context, call.place("run"));
    end_on_signals()?;
    let deadline = deadline(context, call.get("timeout"));
    let mut answer = context.send(&run_request(id))?;
    let run = answer.value()?;
    if !has_ended(&run) {
        answer = RunWatch::open(context, &text_of(&run, "cue_id"), deadline)?.until_ended(id)?;
    }
    print_end(context, &answer)
}

/// The end of a wait that begins now, on the clock of the client.
pub fn deadline(context: &Context, timeout: Option<&SignedDuration>) -> Option<Duration> {
    let now = context.client.clock().monotonic();
    timeout.map(|timeout| now.saturating_add(timeout.unsigned_abs()))
}

/// Prints a run that has ended.
/// Errors: [`CliError::WaitedFailed`] if it has failed.
pub fn print_end(context: &Context, answer: &Answer) -> Result<(), CliError> {
    let run = answer.value()?;
    context.output.object(answer, "id", |run| details(LINES, context, run))?;
    if run["status"] == "success" {
        return Ok(());
    }
    let reason = text_of(&run, "error_message");
    let reason = if reason.is_empty() { text_of(&run, "cause") } else { reason };
    let word = if reason == "cancelled" { "was cancelled".to_owned() } else { format!("failed: {reason}") };
    Err(CliError::WaitedFailed(format!("the run {} {word}", text_of(&run, "id"))))
}

/// Watches the runs of a cue. No end is missed from the moment at which it is opened.
pub struct RunWatch<'a> {
    context: &'a Context,
    /// `None` if the server has no stream for it.
    stream: Option<EventStream<'a>>,
    deadline: Option<Duration>,
}

impl<'a> RunWatch<'a> {
    /// Begins. A run that is created later is watched from its beginning.
    pub fn open(context: &'a Context, cue_id: &str, deadline: Option<Duration>) -> Result<Self, CliError> {
        let stream = match context.open_stream(request(Some(TYPES), Some(cue_id)), deadline) {
            Err(CliError::Client(ClientError::Refused(refused)))
                if matches!(refused.code.as_str(), "too_many_streams" | "not_found") =>
            {
                let seconds = READ_INTERVAL.as_secs();
                let note = format!("{}. The run is read every {seconds} s instead", refused.message);
                context.output.note(&note)?;
                None
            }
            stream => Some(stream?),
        };
        Ok(Self { context, stream, deadline })
    }

    /// Waits for the end of a run of the cue, and returns the run.
    /// Errors: if the run or its cue is deleted, or the time is over.
    pub fn until_ended(mut self, id: &str) -> Result<Answer, CliError> {
        let mut must_read = true;
        loop {
            if must_read {
                match self.context.look_up(&run_request(id)) {
                    Ok(answer) if has_ended(&answer.value()?) => return Ok(answer),
                    Ok(_) => must_read = false,
                    // The server may come back: the stream reports it.
                    Err(CliError::Client(error)) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
            }
            must_read |= self.next_may_have_ended(id)?;
        }
    }

    /// Waits for the next news. Returns whether the run may have ended.
    fn next_may_have_ended(&mut self, id: &str) -> Result<bool, CliError> {
        let time_is_over = || failed(format!("the time is over, and the run {id} has not ended; it goes on"));
        let Some(stream) = &mut self.stream else {
            let now = self.context.client.clock().monotonic();
            let left = self.deadline.map_or(READ_INTERVAL, |deadline| deadline.saturating_sub(now));
            if left.is_zero() {
                return Err(time_is_over());
            }
            self.context.client.pause(left.min(READ_INTERVAL));
            return Ok(true);
        };
        match stream.next_item()?.ok_or_else(time_is_over)? {
            StreamItem::Hello { .. } => Ok(true),
            // A burst stands for events of any run, as a reset does.
            StreamItem::Event(event) => Ok(matches!(event.event.as_str(), "burst" | "cue.deleted" | "reset")
                || serde_json::from_str::<Value>(&event.data).is_ok_and(|data| data["execution_id"] == id)),
            StreamItem::Lost(reason) => {
                let note = format!("connection lost ({reason}); connecting again");
                self.context.output.note(&note).map(|()| false)
            }
        }
    }
}

fn run_request(id: &str) -> ApiRequest {
    ApiRequest::get(format!("/v1/executions/{}", segment(id)))
}

fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("success" | "failed"))
}
