//! `cued tail`: what happens in the account, line by line, for as long as the command runs.

mod event;
mod line;

use std::collections::HashSet;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::arguments::find_maybe_id;
use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::tail::event::{Selection, TailEvent};
use crate::cli::client::commands::tail::line::Printer;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::{end_on_signals, end_with_reader};
use crate::cli::error::CliError;
use crate::cli::output::table::{duration, parse_duration, text_of};
use crate::client::event_stream::{StreamItem, request};
use crate::client::request::{ApiRequest, segment};

/// Pages of 100 that are read of a list of the past.
const MAX_PAGES: u64 = 10;
const PAGE: u64 = 100;

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
        // What the lists have shown, until the stream repeats it.
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
                        let now: Option<Timestamp> = text_of(&hello, "time").parse().ok();
                        let now = now.unwrap_or_else(|| context.client.clock().now());
                        let begin = now.checked_sub(since).unwrap_or(Timestamp::UNIX_EPOCH);
                        events = past(context, cue_id.as_deref(), &selection, begin)?;
                        listed.extend(events.iter().filter_map(TailEvent::key));
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
    let list = |path: &str, key: &str, since: Timestamp| {
        let request = ApiRequest::get(path).maybe_query("cue_id", cue_id).query("since", since.to_string());
        items(context, &request, key)
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

/// The items of a list, by pages.
fn items(context: &Context, request: &ApiRequest, key: &str) -> Result<Vec<Value>, CliError> {
    let (mut items, mut ids) = (Vec::new(), HashSet::new());
    for page in 0..MAX_PAGES {
        let request = request.clone().query("limit", PAGE.to_string());
        let answer = context.look_up(&request.query("offset", (page * PAGE).to_string()))?.value()?;
        // Pages shift while rows are created: a row may be on two.
        let is_new = |item: &&Value| ids.insert(text_of(item, "id"));
        items.extend(answer[key].as_array().into_iter().flatten().filter(is_new).cloned());
        if answer["has_more"] != Value::Bool(true) {
            return Ok(items);
        }
    }
    context.output.note("some older events are not shown: there are too many")?;
    Ok(items)
}
