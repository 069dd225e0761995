//! `cued preview` and `cued cue next`: the runs of a schedule; and the fault of a refused cron expression.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::command::{Call, ClientAction, Columns, Form, table};
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::output::table::{Cell, ColumnRule, Style, text_of};
use crate::cli::output::{Format, count, print, print_line};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ApiResponse, ClientError};

/// The local time of the schedule, and that of the output.
const RUNS: Columns = &[
    ("RUN", Form::Cell(|_, run| local(&text_of(run, "local")).into()), ColumnRule::Always),
    ("OFFSET", Form::Text("offset"), ColumnRule::Always),
    ("YOUR TIME", Form::Time("at"), ColumnRule::Wide),
    ("NOTE", Form::Cell(|_, run| Cell::new(text_of(run, "note"), Style::Warning)), ColumnRule::Shortened),
];
const RUNS_IN_TWO_ZONES: Columns =
    &[RUNS[0], RUNS[1], ("YOUR TIME", Form::Time("at"), ColumnRule::Always), RUNS[3]];

pub const ZONE: &str = "Time zone of the schedule, such as Europe/Berlin [default: UTC]";

#[derive(Debug, Args)]
pub struct Preview {
    /// Cron expression, in quotes: minute, hour, day of month, month, day of week
    #[arg(value_name = "CRON", group = "schedule", required_unless_present_any = ["at", "every"])]
    cron: Option<String>,

    /// The instant of a schedule with one run; without an offset in the time zone of the schedule
    #[arg(long, value_name = "TIME", group = "schedule")]
    at: Option<String>,

    /// Runs at intervals of elapsed time, such as 90s, 5m, 1h30m or 2d
    #[arg(long, value_name = "TIME", group = "schedule")]
    every: Option<String>,

    /// No run is before this instant; intervals are counted from it
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    start: Option<String>,

    /// No run is at or after this instant
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    end: Option<String>,

    /// Runs come later by up to so many seconds; the cue decides by how many, so they are shown without it
    #[arg(long, value_name = "SECONDS")]
    jitter: Option<u32>,

    /// Runs that are shown
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    count: u8,

    /// Show the runs from this date or time on, in the time zone of the schedule [default: now]
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
}

impl ClientAction for Preview {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let zone = context.zone.as_deref().unwrap_or("UTC");
        let Self { cron, at, every, start, end, jitter, .. } = &self;
        let mut schedule = json!({
            "type": if at.is_some() { "once" } else { "recurring" }, "timezone": zone, "cron": cron, "at": at,
            "every": every, "start": start, "end": end, "jitter_seconds": jitter,
        });
        if let Some(fields) = schedule.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let mut body = json!({"limit": self.count, "schedule": schedule});
        if let Some(from) = &self.from {
            let utc = TimeZone::UTC;
            let zone = context.zone.as_ref().map_or(&utc, |_| context.output.times.zone());
            body["from"] = instant(from, zone)?.to_string().into();
        }
        let answer = context
            .send(&ApiRequest::post("/v1/schedule/preview").json(&body))
            .map_err(|error| with_caret(error, self.cron.as_deref()))?;
        print_runs(context, &answer, RUNS)
    }
}

/// Prints the runs of a cue. If the command line names a zone, there is the time in that zone too.
pub fn print_next(call: &Call<'_>, answer: &ApiResponse) -> Result<(), CliError> {
    let columns = if call.context.zone.is_some() { RUNS_IN_TWO_ZONES } else { RUNS };
    print_runs(call.context, answer, columns)
}

fn print_runs(context: &Context, answer: &ApiResponse, columns: Columns) -> Result<(), CliError> {
    let runs = answer.value()?;
    let items = |field: &str| runs[field].as_array().into_iter().flatten();
    let output = &context.output;
    match output.format {
        Format::Table | Format::Wide => {
            let per_month = count(runs["per_month"].as_i64().unwrap_or(0), "run");
            let summary = format!("{} ({per_month} in 31 days)", printable(&text_of(&runs, "description")));
            let rows: Vec<Value> = items("occurrences").cloned().collect();
            let table = table(columns, context, &rows).render(output.is_wide(), &output.styles);
            let changes = items("transitions").map(|change| {
                let at = output.times.instant(&text_of(change, "at"));
                let (from, to) = (text_of(change, "from"), text_of(change, "to"));
                printable(&format!("The clocks change at {at}, from {from} to {to}.")) + "\n"
            });
            let changes: String = changes.collect();
            let gap = if changes.is_empty() { "" } else { "\n" };
            print(&format!("{}\n\n{table}{gap}{changes}", output.styles.paint(&summary, Style::Title)))
        }
        Format::Id => items("upcoming").try_for_each(|at| print_line(at.as_str().unwrap_or_default())),
        _ => output.object(answer, "", |_| Vec::new()),
    }
}

/// `Tue 2030-01-01 09:00`, with seconds if there are any. Text that is no local time stays.
fn local(text: &str) -> String {
    let Ok(at) = text.parse::<DateTime>() else { return text.to_owned() };
    let format = match (at.second(), at.subsec_nanosecond()) {
        (0, 0) => "%a %Y-%m-%d %H:%M",
        (_, 0) => "%a %Y-%m-%d %H:%M:%S",
        _ => "%a %Y-%m-%d %H:%M:%S%.3f",
    };
    at.strftime(format).to_string()
}

/// An instant with an offset, or a date or a local time of the zone.
fn instant(text: &str, zone: &TimeZone) -> Result<Timestamp, CliError> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    let at = local.and_then(|local| zone.to_ambiguous_zoned(local).compatible());
    at.map(|at| at.timestamp()).map_err(|_| {
        usage(format!("--from: {text:?} is no date; examples are 2030-03-30 and 2030-03-30T09:00"))
    })
}

/// The error with the expression and a mark below the part that the server names.
pub fn with_caret(mut error: CliError, cron: Option<&str>) -> CliError {
    if let (CliError::Client(ClientError::Refused(refused)), Some(cron)) = (&mut error, cron) {
        let span = &refused.body["error"]["span"];
        let place = |index: usize| usize::try_from(span[index].as_u64()?).ok();
        if let (Some(from), Some(to)) = (place(0), place(1)) {
            refused.message.push_str(&marked(cron, from, to));
        }
    }
    error
}

/// `from` and `to` count characters.
fn marked(cron: &str, from: usize, to: usize) -> String {
    let before: String = cron.chars().take(from).collect();
    let part: String = cron.chars().skip(from).take(to.saturating_sub(from)).collect();
    // An empty part is a place where something is missing.
    let marks = "^".repeat(printable(&part).width().max(1));
    format!("\n  {}\n  {}{marks}", printable(cron), " ".repeat(printable(&before).width()))
}
