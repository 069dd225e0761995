//! `cued tail`: what happens in the account, line by line, for as long as the command runs.

mod event;
mod line;
mod past;

use std::collections::HashSet;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::arguments::find_maybe_id;
use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::tail::event::{Selection, TailEvent};
use crate::cli::client::commands::tail::line::Printer;
use crate::cli::client::commands::tail::past::{attempts, read_past};
use crate::cli::client::context::Context;
use crate::cli::client::live_output::{end_on_signals, end_with_reader};
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::times::{duration, parse_duration};
use crate::client::event_stream::{StreamItem, request};

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
        let request = request(Some(&selection.wire()), cue_id.as_deref());
        end_on_signals()?;
        let mut stream = context.open_stream(request, None)?;
        end_with_reader()?;
        let mut printer = Printer::new(context);
        // What the lists have shown, until the stream repeats it.
        let mut listed = HashSet::new();
        let mut is_first = true;
        while let Some(item) = stream.next_item()? {
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
                    let since = self.since.filter(|_| is_first);
                    is_first = false;
                    let Some(since) = since else { continue };
                    let now: Option<Timestamp> = text_of(&hello, "time").parse().ok();
                    let now = now.unwrap_or_else(|| context.client.clock().now());
                    let begin = now.checked_sub(since).unwrap_or(Timestamp::UNIX_EPOCH);
                    let past = read_past(context, cue_id.as_deref(), &selection, begin, self.body)?;
                    for event in past.events {
                        listed.extend(event.key());
                        if !printer.print(&event)? {
                            return Ok(());
                        }
                    }
                    if past.is_cut {
                        context.output.note("some older events are not shown: there are too many")?;
                    }
                }
                StreamItem::Event(event) => {
                    let Some(mut event) = TailEvent::streamed(event) else { continue };
                    if !selection.admits(&event) || event.key().is_some_and(|key| listed.remove(&key)) {
                        continue;
                    }
                    if self.body {
                        add_body(context, &mut event)?;
                    }
                    if !printer.print(&event)? {
                        return Ok(());
                    }
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
    match attempts(context, &event.field("execution_id")) {
        Ok(attempts) => {
            let is_this =
                |it: &&Value| it["attempt"] == event.data["attempt"] && it["result"] != json!("cut");
            let attempt = attempts.iter().find(is_this);
            event.body = attempt.and_then(|attempt| attempt["response_body"].as_str()).map(str::to_owned);
            Ok(())
        }
        // The event is worth more than the body.
        Err(CliError::Client(error)) => {
            context.output.note(&format!("cannot read the body of a response: {error}"))
        }
        Err(error) => Err(error),
    }
}
