//! `cued run`: the runs of cues, which the API calls executions.

mod replay;
mod show;

use std::time::Duration;

use clap::Arg;
use jiff::SignedDuration;
use serde_json::Value;

use crate::cli::client::command::{
    Call, Entry, Part, TAG_HELP, View, cue_filter, flag, moment, number, own, place, row, run_id,
    switch, tag_filter, tag_flag,
};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, Lines, details, table};
use crate::cli::client::live_output::end_on_signals;
use crate::cli::client::words::{in_words, message_of};
use crate::cli::error::{CliError, Result, failed};
use crate::cli::output::table::{
    Cell, ColumnRule, Style, headers, last_line, parse_duration, status, text_of,
};
use crate::cli::output::{List, print, print_note};
use crate::cli::printable::{printable, printable_text};
use crate::client::event_stream::{EventStream, StreamItem, request};
use crate::client::request::{ApiRequest, ApiResponse, segment};
use crate::domain::execution::CANCELLED;

const COLUMNS: Columns = &[
    ("ID", Form::Id("id"), ColumnRule::Always),
    ("CUE", Form::Text("cue_name"), ColumnRule::Shortened),
    ("STATUS", Form::Status("status"), ColumnRule::Always),
    ("RESULT", Form::Of(result_or_wait), ColumnRule::Shortened),
    ("SCHEDULED", Form::Time("scheduled_for"), ColumnRule::Always),
    ("LATE", Form::Millis("late_ms"), ColumnRule::Wide),
    ("TOOK", Form::Millis("duration_ms"), ColumnRule::Wide),
    ("ATTEMPTS", Form::Template("{attempts}/{max_attempts}"), ColumnRule::Wide),
    ("TRIGGER", Form::Words("triggered_by"), ColumnRule::Wide),
    ("WORKER", Form::Text("claimed_by_worker"), ColumnRule::Wide),
    ("CUE ID", Form::Text("cue_id"), ColumnRule::Wide),
    ("MESSAGE", Form::Of(message_of), ColumnRule::Wide),
];

/// Deliveries have no worker, and workers no HTTP status: the message needs the place. Attempts are seconds apart, so
/// their time has seconds.
const ATTEMPTS: Columns = &[
    ("ATTEMPT", Form::Text("attempt"), ColumnRule::Always),
    ("STARTED", Form::Shown(started), ColumnRule::Always),
    ("TOOK", Form::Millis("duration_ms"), ColumnRule::Always),
    ("RESULT", Form::Cell(|_, attempt| attempt_result(attempt)), ColumnRule::Always),
    ("HTTP", Form::Text("http_status"), ColumnRule::WithValue),
    ("WORKER", Form::Text("worker_id"), ColumnRule::WithValue),
    ("MESSAGE", Form::Of(message_of), ColumnRule::Shortened),
    ("CAUSE", Form::Words("cause"), ColumnRule::Wide),
    ("NEXT", Form::ExactTime("next_retry"), ColumnRule::Wide),
];

pub fn entries() -> Vec<Entry> {
    let attempt =
        number("attempt", u32::MAX, "Number of the attempt, from 1 [default: the latest]");
    let timeout =
        flag("timeout", "SPAN", "Give up after this time, such as 90s, 5m, 2h [default: never]");
    vec![
        list(),
        row("show", "Show a run, its result and the reason")
            .request("GET /v1/executions/{run}?payload=json", View::Code(show::print_run)),
        row("attempts", "Show the attempts of a run, oldest first")
            .args([own(switch("body", "Show the responses of the receiver, too"))])
            .request("GET /v1/executions/{run}/attempts", View::Code(print_attempts)),
        row(
            "request",
            "Show the request that an attempt sent\n\nRequests are not stored: the server rebuilds this one, and says \
             what may differ.",
        )
        .args([(attempt, Part::Query("attempt"))])
        .request("GET /v1/executions/{run}/request", View::Code(print_request)),
        row(
            "replay",
            "Run finished runs again, with the same payload\n\nEach replay is a new run and counts against the quota. \
             Runs that were cancelled are replayed by id only.",
        )
        .args(replay_arguments())
        .code(replay::replay),
        row(
            "retry",
            "Send a waiting run now\n\nIts attempts and the rest of its retry policy stay. A run that \
             has ended is replayed instead: cued run replay.",
        )
        .request(
            "POST /v1/executions/{run}/retry",
            View::Sentence("id", "sending run {run} now; see `cued run show {run}`"),
        ),
        row(
            "cancel",
            "End a waiting run without sending it\n\nIt becomes failed, but nobody is notified.",
        )
        .request(
            "POST /v1/executions/{run}/cancel",
            View::Sentence("id", "cancelled run {run} of {cue_name}"),
        ),
        verify_entry(),
        row(
            "wait",
            "Wait for a run to finish\n\nExits with 0 if it succeeds, with 8 if it fails or is cancelled, and with 1 if \
             the time is over before.",
        )
        .args([run_id(), own(timeout.value_parser(parse_duration))])
        .code(wait),
    ]
}

fn list() -> Entry {
    let states =
        "Only in these states: pending, delivering, retrying, success, failed; several with commas";
    let since = "Only created since then: a time span before now (2h), a date or a time";
    let trigger = "Only with this trigger: schedule, manual_fire ('fired by hand') or replay";
    let cause = "Only with this cause of the last failure, such as timeout, status_5xx or expired";
    let outcome = "Only with this state of the outcome, such as verification_pending or missing";
    let failed = switch("failed", "Only failed runs").conflicts_with("status");
    row("list", "List runs, newest first")
        .args([
            cue_filter(),
            tag_filter(),
            (flag("status", "STATUS", states), Part::Query("status__in")),
            (failed, Part::QuerySwitch("status__in", "failed")),
            (moment("since", since), Part::QueryMoment("since")),
            (moment("until", "Only created before then"), Part::QueryMoment("until")),
            (flag("trigger", "TRIGGER", trigger), Part::QueryWords("triggered_by")),
            (flag("cause", "CAUSE", cause), Part::QueryWords("cause")),
            (flag("worker", "ID", "Only claimed by this worker"), Part::Query("worker_id")),
            (flag("outcome", "STATE", outcome), Part::QueryWords("outcome_state")),
        ])
        .request("GET /v1/executions", View::Pages("id", "executions", COLUMNS))
}

fn verify_entry() -> Entry {
    let invalid = switch("invalid", "Reject the outcome instead of accepting it");
    let reopen = switch("reopen", "Withdraw the verdict; the outcome waits for another one");
    row("verify", "Accept or reject the outcome that a run reported")
        .args([
            run_id(),
            own(invalid),
            (flag("reason", "TEXT", "Reason of the verdict"), Part::Body("reason")),
            own(reopen.conflicts_with_all(["invalid", "reason"])),
        ])
        .code(verify)
}

fn replay_arguments() -> [(Arg, Part); 8] {
    let runs = "Ids of runs, or at least 8 characters of the beginning or end of each";
    let runs = place("runs", "RUN", runs).num_args(1..).required(false);
    let runs = runs.required_unless_present("failed").conflicts_with("failed");
    let failed = "Replay all failed runs that match the other flags, oldest first; cancelled ones are left out";
    let since = "Only created since then: a time span before now (1h), a date or a time";
    let cause = "Only with this cause of the failure, such as timeout or status_5xx";
    let dry_run = "Count the runs that would be replayed, and stop";
    let (cue, filters_by_cue) = cue_filter();
    let until = moment("until", "Only created before then").requires("failed");
    [
        own(runs),
        own(switch("failed", failed)),
        (cue.requires("failed"), filters_by_cue),
        (tag_flag(TAG_HELP).conflicts_with("runs"), Part::BodyList("tags")),
        (moment("since", since).requires("failed"), Part::QueryMoment("since")),
        (until, Part::QueryMoment("until")),
        (flag("cause", "CAUSE", cause).requires("failed"), Part::QueryWords("cause")),
        own(switch("dry-run", dry_run).requires("failed")),
    ]
}

fn started(context: &Context, attempt: &Value) -> String {
    let (output, at) = (&context.output, text_of(attempt, "started_at"));
    if output.is_short() {
        output.times.of_day(&at, context.client.server_time(), "%m-%d %H:%M:%S")
    } else {
        output.times.instant(&at)
    }
}

fn attempt_result(attempt: &Value) -> Cell {
    attempt["result"].as_str().map_or_else(|| "running".into(), status)
}

/// The result of a run, or what it waits for.
pub fn result_or_wait(run: &Value) -> String {
    match wait_of(run) {
        wait if !wait.is_empty() => wait,
        _ if run["outcome_state"] == "missing" => format!("{}, no result in time", result_of(run)),
        _ if !run["outcome_due_at"].is_null() => format!("{}, no result yet", result_of(run)),
        _ if run["cause"] == "expired" => "expired".to_owned(),
        _ => result_of(run),
    }
}

/// What holds up a run that is due; empty if nothing does.
fn wait_of(run: &Value) -> String {
    match run["waits_for"]["reason"].as_str() {
        None => String::new(),
        Some("flow") => format!("waits for its turn (flow {})", text_of(run, "waits_for.key")),
        Some(_) => "waits for the earlier run".to_owned(),
    }
}

/// The result in a word or two: the status that the receiver returned, else the cause of the failure, else its message.
fn result_of(object: &Value) -> String {
    let (status, message) = (text_of(object, "http_status"), message_of(object));
    // A worker's success has neither a status nor a cause nor a message.
    let [cause, outcome] =
        ["cause", "outcome_state"].map(|field| in_words(&text_of(object, field)));
    let text = [status, cause, message, outcome].into_iter().find(|text| !text.is_empty());
    last_line(&text.unwrap_or_default())
}

fn verify(call: &Call<'_>) -> Result {
    let id = call.place("run");
    let request = if call.is_set("reopen") {
        ApiRequest::post(format!("/v1/executions/{id}/verification-pending"))
    } else {
        let mut body = call.fields()?;
        body["valid"] = (!call.is_set("invalid")).into();
        ApiRequest::post(format!("/v1/executions/{id}/verify")).json(body)
    };
    let answer = call.context.send(&request)?;
    call.say(&answer, "execution_id", "run {run}: {outcome_state:words}")
}

fn print_attempts(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let (context, list) = (call.context, List::from_response(answer, "attempts")?);
    context.output.list(&list, "attempt", |attempts| table(ATTEMPTS, context, attempts))?;
    if !call.is_set("body") || context.output.format.is_for_programs() {
        return Ok(());
    }
    let mut text = String::new();
    for attempt in list.items {
        let (headers, body) = (
            printable_text(&headers(&attempt["response_headers"])),
            text_of(&attempt, "response_body"),
        );
        if headers.is_empty() && body.is_empty() {
            continue;
        }
        let title = format!(
            "attempt {}: {}",
            text_of(&attempt, "attempt"),
            printable(&result_of(&attempt))
        );
        let title = context.output.styles.paint(&title, Style::Title);
        let gap = if headers.is_empty() || body.is_empty() { "" } else { "\n" };
        let cut =
            if attempt["response_truncated"] == true { "(the rest is not kept)\n" } else { "" };
        text.push_str(&format!("\n{title}\n{headers}{gap}{}{cut}", printable_text(&body)));
    }
    print(&text)
}

/// Prints a request in the form of HTTP.
fn print_request(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let output = &call.context.output;
    if output.format.is_for_programs() {
        return output.object(answer, "url", |_| Vec::new());
    }
    let sent = answer.value()?;
    let first = printable_text(&format!("{} {}", text_of(&sent, "method"), text_of(&sent, "url")));
    let first = output.styles.paint(first.trim_end(), Style::Title);
    let body =
        sent["body"].as_str().map(|body| format!("\n{}", printable_text(body))).unwrap_or_default();
    print(&format!("{first}\n{}{body}", printable_text(&headers(&sent["headers"]))))?;
    match text_of(&sent, "why") {
        why if why.is_empty() => Ok(()),
        why => print_note(&format!("{}.", printable_text(&why).trim_end())),
    }
}

/// The events after which a run may have ended, or be gone.
const END_TYPES: &str = "execution.succeeded,execution.failed,execution.cancelled,cue.deleted";

/// The pause between two reads of a run where the server has no stream for it: an account has few of them.
const READ_INTERVAL: Duration = Duration::from_secs(5);

const LINES: Lines = &[
    ("id", Form::Id("id")),
    ("cue", Form::Text("cue_name")),
    ("status", Form::Status("status")),
    ("attempts", Form::Template("{attempts} of {max_attempts}")),
    ("HTTP status", Form::Text("http_status")),
    ("error", Form::Of(message_of)),
    ("took", Form::Millis("duration_ms")),
];

pub fn wait(call: &Call<'_>) -> Result {
    let context = call.context;
    let mut answer = context.send(&run_request(call.place("run")))?;
    let run = answer.value()?;
    if !has_ended(&run) {
        answer = until_ended(context, &run, "id", call.get("timeout"))?;
    }
    print_end(context, &answer)
}

/// Waits for the end of a run with its id in the field `id`, and returns the run.
/// Errors: if the run or its cue is deleted, or the time is over.
pub fn until_ended(
    context: &Context,
    run: &Value,
    id: &str,
    timeout: Option<&SignedDuration>,
) -> Result<ApiResponse> {
    end_on_signals()?;
    let (id, cue_id) = (text_of(run, id), text_of(run, "cue_id"));
    let clock = context.client.clock();
    let deadline = timeout.map(|timeout| clock.monotonic().saturating_add(timeout.unsigned_abs()));
    let mut stream = match context.open_stream(request(Some(END_TYPES), Some(&cue_id)), deadline) {
        Err(error) if error.code() == "too_many_streams" => None,
        stream => Some(stream?),
    };
    loop {
        match context.fetch(&run_request(&id)) {
            Ok(answer) if has_ended(&answer.value()?) => return Ok(answer),
            Ok(_) => {}
            // The server may come back.
            Err(CliError::Client(error)) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        let may_go_on = match &mut stream {
            Some(stream) => next_end(stream, &id)?,
            None => {
                let left =
                    deadline.map_or(READ_INTERVAL, |at| at.saturating_sub(clock.monotonic()));
                context.client.pause(left.min(READ_INTERVAL));
                !left.is_zero()
            }
        };
        if !may_go_on {
            let id = context.output.id(&id);
            return Err(failed(format!("stopped waiting; the run continues: cued run wait {id}")));
        }
    }
}

/// Waits until the run may have ended. Returns whether that was before the deadline of the stream.
fn next_end(stream: &mut EventStream<'_>, id: &str) -> Result<bool> {
    while let Some(item) = stream.next_item()? {
        match item {
            // Without a position after a lost connection, its events are lost too.
            StreamItem::Hello { .. } => return Ok(true),
            StreamItem::Lost(reason) => {
                print_note(&format!("connection lost ({reason}); connecting again"))?;
            }
            // A burst stands for events of any run, as a reset does.
            StreamItem::Event(event)
                if matches!(&*event.event, "burst" | "cue.deleted" | "reset") =>
            {
                return Ok(true);
            }
            StreamItem::Event(event) => {
                if serde_json::from_str::<Value>(&event.data)
                    .is_ok_and(|data| data["execution_id"] == *id)
                {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Errors: [`CliError::WaitedFailed`] if it has failed.
pub fn print_end(context: &Context, answer: &ApiResponse) -> Result {
    let run = answer.value()?;
    context.output.object(answer, "id", |run| details(LINES, context, run))?;
    if run["status"] == "success" {
        return Ok(());
    }
    let reason = message_of(&run);
    let word = match reason.as_str() {
        CANCELLED => "was cancelled".to_owned(),
        // The lines above have the reason.
        _ if !context.output.format.is_for_programs() => "failed".to_owned(),
        "" => format!("failed: {}", in_words(&text_of(&run, "cause"))),
        _ => format!("failed: {reason}"),
    };
    Err(CliError::WaitedFailed(format!(
        "the run {} {word}",
        context.output.id(&text_of(&run, "id"))
    )))
}

fn run_request(id: &str) -> ApiRequest {
    ApiRequest::get(format!("/v1/executions/{}", segment(id)))
}

fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("success" | "failed"))
}
