//! `cued tail`: what happens in the account, line by line, for as long as the command runs.

mod event;
mod glyphs;
mod line;
mod lists;
mod printer;
mod run_events;
mod seen;
mod selection;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cli::client::arguments::cue_name::find_maybe_id;
use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::tail::event::TailEvent;
use crate::cli::client::commands::tail::lists::{Lists, before};
use crate::cli::client::commands::tail::printer::Printer;
use crate::cli::client::commands::tail::seen::{OpenRuns, Seen};
use crate::cli::client::commands::tail::selection::Selection;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::{end_on_signals, end_with_reader};
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::times::{duration, parse_duration};
use crate::client::error::ClientError;
use crate::client::event_stream::{StreamItem, request};
use crate::client::retry::Failure;

/// The time by which the lists reach back before the last event: the instant of an event is a little before that of its commit.
const OVERLAP: SignedDuration = SignedDuration::from_secs(5);

/// Runs that were created so long before a gap are in its lists too; older ones are looked up if they were under way.
const CREATED_BEFORE_GAP: SignedDuration = SignedDuration::from_mins(1);

/// The same for `--since`, where it is not known which were under way: more than the retries of most runs take.
const CREATED_BEFORE_SINCE: SignedDuration = SignedDuration::from_hours(1);

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
        let lists = Lists { context, cue_id: cue_id.as_deref(), selection: &selection };
        let mut follower = Follower {
            context,
            options: &self,
            lists,
            printer: Printer::new(context),
            seen: Seen::default(),
            open: OpenRuns::default(),
            span: None,
            gap: None,
            is_closed: false,
        };
        while let Some(item) = stream.next_item()? {
            follower.take(item)?;
            if follower.is_closed {
                break;
            }
        }
        Ok(())
    }
}

/// The instants that bound what is shown.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin: Timestamp,
    /// The latest instant known.
    last: Timestamp,
}

struct Follower<'a> {
    context: &'a Context,
    options: &'a Tail,
    lists: Lists<'a>,
    printer: Printer<'a>,
    seen: Seen,
    open: OpenRuns,
    /// `None` before the first `hello`.
    span: Option<Span>,
    /// The reason for which the lists must be read.
    gap: Option<String>,
    /// Nobody reads the output.
    is_closed: bool,
}

impl Follower<'_> {
    fn take(&mut self, item: StreamItem) -> Result<(), CliError> {
        match item {
            StreamItem::Lost(reason) => {
                self.note(&format!("connection lost ({reason}); connecting again"))?
            }
            StreamItem::Reset(reason) => self.gap = Some(reason),
            StreamItem::Hello { hello, lost_for } => {
                if let Some(lost_for) = lost_for {
                    let millis = i64::try_from(lost_for.as_millis()).unwrap_or(i64::MAX);
                    self.note(&format!("reconnected, {}", duration(millis)))?;
                }
                if hello["held"] == Value::Bool(true) {
                    self.note("the server is on hold and fires nothing; see `cued promote`")?;
                }
                if self.span.is_none() {
                    self.begin(&hello)?;
                }
            }
            StreamItem::Event(event) => {
                if let Some(event) = TailEvent::streamed(event) {
                    self.event(event)?;
                }
            }
        }
        self.close_gap()
    }

    fn begin(&mut self, hello: &Value) -> Result<(), CliError> {
        let now = text_of(hello, "time").parse().unwrap_or_else(|_| self.context.client.clock().now());
        self.span = Some(Span { begin: now, last: now });
        // Read also with `--since`: a run that was created long ago may be under way.
        self.lists.find_open(&mut self.open)?;
        let Some(since) = self.options.since else { return Ok(()) };
        let begin = before(now, since);
        self.span = Some(Span { begin, last: now });
        self.show_since(begin, before(begin, CREATED_BEFORE_SINCE)).and_then(|is_cut| {
            if is_cut { self.note("some older events are not shown: there are too many") } else { Ok(()) }
        })
    }

    fn event(&mut self, mut event: TailEvent) -> Result<(), CliError> {
        let execution_id = event.field("execution_id");
        if !execution_id.is_empty() {
            self.open.record(&event.event, &execution_id);
        }
        if let (Some(span), Some(at)) = (&mut self.span, event.at()) {
            span.last = span.last.max(at);
        }
        // A list that was read meanwhile has told the end of the run.
        if event.is_beginning() && self.seen.contains(event.end_key()) {
            return Ok(());
        }
        if self.seen.insert(event.key()) && self.lists.selection.admits(&event) {
            self.add_body(&mut event)?;
            self.show(&event)?;
        }
        Ok(())
    }

    /// Reads the lists if events were missed. If that fails, it is tried again after the next item.
    fn close_gap(&mut self) -> Result<(), CliError> {
        let (Some(reason), Some(span)) = (&self.gap, self.span) else { return Ok(()) };
        let floor = before(span.last, OVERLAP).max(span.begin);
        let reason = reason.clone();
        match self.show_since(floor, before(floor, CREATED_BEFORE_GAP)) {
            Ok(false) => {
                self.note(&format!("read what was missed from the lists of runs and alerts ({reason})"))?
            }
            Ok(true) => self.note(&format!("some events were missed ({reason})"))?,
            Err(CliError::Client(error)) if Failure::of(&error).is_some() => {
                return self.note(&format!("cannot read what was missed yet: {error}"));
            }
            Err(error) => return Err(error),
        }
        self.gap = None;
        Ok(())
    }

    /// Shows what the lists tell and was not shown yet. Returns whether there was more.
    fn show_since(&mut self, floor: Timestamp, created: Timestamp) -> Result<bool, CliError> {
        let told = self.lists.since(floor, created, &mut self.open)?;
        for mut event in told.events {
            if !self.options.body || !event.is_failed_attempt() {
                event.body = None;
            }
            if self.seen.insert(event.key()) {
                self.show(&event)?;
            }
            if event.is_end() {
                self.seen.insert(event.end_key());
            }
        }
        Ok(told.is_cut)
    }

    /// Reads the body of the response to a failed attempt.
    fn add_body(&self, event: &mut TailEvent) -> Result<(), CliError> {
        if !self.options.body || !event.is_failed_attempt() || event.data["http_status"].is_null() {
            return Ok(());
        }
        let attempts = match self.lists.attempts(&event.field("execution_id")) {
            Ok(attempts) => attempts.unwrap_or_default(),
            // The event is worth more than the body.
            Err(CliError::Client(error)) if !matches!(error, ClientError::NotSignedIn) => {
                return self.note(&format!("cannot read the body of a response: {error}"));
            }
            Err(error) => return Err(error),
        };
        let is_this =
            |attempt: &&Value| attempt["attempt"] == event.data["attempt"] && attempt["result"] != "cut";
        let attempt = attempts["attempts"].as_array().into_iter().flatten().find(is_this);
        event.body = attempt.and_then(|attempt| attempt["response_body"].as_str()).map(str::to_owned);
        Ok(())
    }

    fn show(&mut self, event: &TailEvent) -> Result<(), CliError> {
        if !self.is_closed {
            self.is_closed = !self.printer.print(event)?;
        }
        Ok(())
    }

    fn note(&self, text: &str) -> Result<(), CliError> {
        self.context.output.note(text)
    }
}
