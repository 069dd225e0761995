//! `cued preview` and `cued cue next`: the runs of a schedule; schedules in words, which the server understands; and the
//! fault of a refused one.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::command::{Call, ClientAction};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Columns, Form, table};
use crate::cli::error::{CliError, Result, usage};
use crate::cli::output::table::{ColumnRule, Style, parse_seconds, text_of};
use crate::cli::output::{Format, count, print, print_line, print_note};
use crate::cli::printable::printable;
use crate::cli::width::folded;
use crate::client::request::{ApiRequest, ApiResponse};
use crate::domain::schedule::cron::CronExpr;
use crate::domain::schedule::interval::{Interval, elapsed};
use crate::domain::schedule::words::EXAMPLES;
use crate::domain::schedule::{Zone, is_instant};

/// The local time of the schedule, and that of the output.
const RUNS: Columns = &[
    ("RUN", Form::Of(|run| local(&text_of(run, "local"))), ColumnRule::Always),
    ("OFFSET", Form::Text("offset"), ColumnRule::Always),
    ("YOUR TIME", Form::ExactTime("at"), ColumnRule::Wide),
    ("NOTE", Form::Warning("note"), ColumnRule::Shortened),
];
const RUNS_IN_TWO_ZONES: Columns =
    &[RUNS[0], RUNS[1], ("YOUR TIME", Form::ExactTime("at"), ColumnRule::Always), RUNS[3]];

pub const ZONE: &str =
    "Time zone of the schedule, such as Europe/Berlin or Berlin [default: that of the system]";

/// Show the next runs of a schedule without storing it
#[derive(Debug, Args)]
pub struct Preview {
    /// Schedule in quotes: in words such as 'every weekday at 9', 'mon,wed 18:30' or 'tomorrow 9:00', or a cron
    /// expression
    #[arg(value_name = "TEXT", group = "schedule", required_unless_present_any = ["cron", "at", "every"])]
    text: Option<String>,

    /// As without the flag, like that of `cued cue add`
    #[arg(long, value_name = "CRON", group = "schedule", hide = true)]
    cron: Option<String>,

    /// A single run at an instant, or in words such as '+10m', 'in 2 hours' or 'tomorrow 9:00'
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

    /// Delay of at most this long, such as 10m; each cue has its own, so the runs are shown without it
    #[arg(long, value_name = "SPAN", value_parser = parse_seconds)]
    jitter: Option<u32>,

    /// Number of runs to show
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    count: u8,

    /// Show the runs from this date or time on, in the time zone of the schedule [default: now]
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
}

impl ClientAction for Preview {
    fn run(self, context: &Context) -> Result {
        let zone = context.own_zone();
        let Self { text, cron, at, every, start, end, jitter, .. } = &self;
        let (field, text) = match (every, at) {
            (Some(every), _) => ("every", interval_in_words(every)),
            (None, Some(at)) => ("at", at.clone()),
            (None, None) => ("text", text.as_ref().or(cron.as_ref()).cloned().unwrap_or_default()),
        };
        let bounds =
            [("start", json!(start)), ("end", json!(end)), ("jitter_seconds", json!(jitter))];
        let bounds = bounds.iter().filter(|(_, value)| !value.is_null());
        let is_bounded = bounds.clone().count() > 0;
        let mut body = json!({"text": text, "timezone": zone.name()});
        if is_bounded {
            let mut schedule = understand(context, field, &text, zone.name())?["schedule"].take();
            bounds.for_each(|(name, value)| schedule[name] = value.clone());
            body = json!({ "schedule": schedule });
        }
        body["limit"] = self.count.into();
        if let Some(from) = &self.from {
            body["from"] = instant(from, zone.rules())?.to_string().into();
        }
        let answer = context
            .send(&ApiRequest::post("/v1/schedule/preview").json(&body))
            .map_err(|error| fit_examples(with_caret(error, Some(&text)), field, &text))?;
        if !is_bounded {
            check_kind(field, &text, &answer.value()?)?;
        }
        print_runs(context, &answer, RUNS)
    }
}

/// Replaces the words of a person in the fields of a schedule by what the server understands, and returns its answer. A
/// place in `timezone` becomes the name of its zone. `zone` is that of a schedule that names none.
pub fn understand_fields(
    context: &Context,
    schedule: &mut Value,
    zone: impl FnOnce() -> Result<String>,
) -> Result<Option<Value>> {
    let Some(fields) = schedule.as_object_mut() else { return Ok(None) };
    // The server refuses an unknown one.
    let named = fields.get("timezone").and_then(Value::as_str).map(str::to_owned);
    if let Some(found) = named.as_deref().and_then(|name| Zone::find_place(name).ok()) {
        fields.insert("timezone".to_owned(), found.name().into());
    }
    let given =
        ["cron", "every", "at"].map(|name| Some((name, fields.get(name)?.as_str()?.to_owned())));
    let given: Vec<(&str, String)> = given.into_iter().flatten().collect();
    // Several contradict each other, which the server says.
    let [(field, text)] = given.as_slice() else { return Ok(None) };
    if context.is_curl() && is_understood_by_api(field, text) {
        return Ok(None);
    }
    let zone = match fields.get("timezone").and_then(Value::as_str) {
        Some(zone) => zone.to_owned(),
        None => zone()?,
    };
    let phrase = if *field == "every" { interval_in_words(text) } else { text.clone() };
    let understood = understand(context, field, &phrase, &zone)?;
    fields.remove(*field);
    for name in ["cron", "every", "at"] {
        if let Some(value) = understood["schedule"].get(name) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    Ok(Some(understood))
}

/// Asks the server what a text means. The answer is that of a preview.
pub fn understand(context: &Context, field: &str, text: &str, zone: &str) -> Result<Value> {
    let body = json!({"text": text, "timezone": zone, "limit": 1});
    let request = ApiRequest::post("/v1/schedule/preview").json(&body).idempotent();
    let refused = |error| fit_examples(with_caret(error, Some(text)), field, text);
    let understood = context.fetch(&request).map_err(refused)?.value()?;
    check_kind(field, text, &understood)?;
    Ok(understood)
}

/// Errors: a single run where a schedule repeats, and the other way round.
fn check_kind(field: &str, text: &str, understood: &Value) -> Result {
    match (field, understood["schedule"]["type"] == "once") {
        ("at", false) => Err(usage(format!("--at: {text:?} repeats; use --cron for it"))),
        ("cron" | "every", true) => {
            let remedy = "use --at for it, or begin with \"every\"";
            Err(usage(format!("--{field}: {text:?} is a single run; {remedy}")))
        }
        _ => Ok(()),
    }
}

/// Prints how a text was understood: `Every day at 09:00, Europe/Berlin: 0 9 * * *`.
pub fn note(context: &Context, understood: &Value) -> Result {
    if context.output.format.is_for_programs() {
        return Ok(());
    }
    print_note(&format!("{}{}", described(understood), change_of_clocks(understood)))
}

/// What a change of the clocks does to the first run, in brackets.
pub fn change_of_clocks(schedule: &Value) -> String {
    let note = schedule["occurrences"][0]["note"].as_str();
    note.map(|change| format!(" ({change})")).unwrap_or_default()
}

/// A schedule in words, and its expression.
pub fn described(schedule: &Value) -> String {
    match (text_of(schedule, "description"), text_of(schedule, "schedule.cron")) {
        (words, cron) if cron.is_empty() => words,
        (words, cron) => format!("{words}: {cron}"),
    }
}

/// `every 5m` for `5m`.
fn interval_in_words(text: &str) -> String {
    let first = text.split_whitespace().next().unwrap_or_default();
    let has_every = ["every", "each", "@every"].iter().any(|word| word.eq_ignore_ascii_case(first));
    if has_every { text.to_owned() } else { format!("every {text}") }
}

/// Returns whether the API takes the text as it is.
fn is_understood_by_api(field: &str, text: &str) -> bool {
    match field {
        "cron" => CronExpr::parse(text).is_ok(),
        "every" => Interval::parse(text, Timestamp::UNIX_EPOCH).is_ok(),
        _ => is_instant(text),
    }
}

/// Prints the runs of a cue. If the command line names a zone, there is the time in that zone too.
pub fn print_next(call: &Call<'_>, answer: &ApiResponse) -> Result {
    let columns = if call.context.zone.is_some() { RUNS_IN_TWO_ZONES } else { RUNS };
    print_runs(call.context, answer, columns)
}

fn print_runs(context: &Context, answer: &ApiResponse, columns: Columns) -> Result {
    let runs = answer.value()?;
    let items = |field: &str| runs[field].as_array().into_iter().flatten();
    let output = &context.output;
    let in_width = |text: String| match output.styles.width {
        Some(width) => folded(&text, width),
        None => text,
    };
    match output.format {
        Format::Table | Format::Wide => {
            // Of a single run there is nothing to count, and no change of the clocks after it matters.
            let is_once = runs["schedule"]["type"] == "once";
            let per_month = count(runs["per_month"].as_i64().unwrap_or(0), "run");
            let per_month =
                if is_once { String::new() } else { format!(" ({per_month} in 31 days)") };
            let summary = in_width(format!("{}{per_month}", printable(&described(&runs))));
            let rows: Vec<Value> = items("occurrences").cloned().collect();
            let table = table(columns, context, &rows)
                .render(output.is_wide(), &output.styles.in_columns());
            let changes = items("transitions").filter(|_| !is_once).map(|change| {
                let at = output.times.instant(&text_of(change, "at"));
                let (from, to) = (text_of(change, "from"), text_of(change, "to"));
                in_width(printable(&format!("The clocks change at {at}, from {from} to {to}.")))
                    + "\n"
            });
            let changes: String = changes.collect();
            let gap = if changes.is_empty() { "" } else { "\n" };
            print(&format!(
                "{}\n\n{table}{gap}{changes}",
                output.styles.paint(&summary, Style::Title)
            ))
        }
        Format::Id => {
            items("upcoming").try_for_each(|at| print_line(at.as_str().unwrap_or_default()))
        }
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
fn instant(text: &str, zone: &TimeZone) -> Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    let at = local.and_then(|local| zone.to_ambiguous_zoned(local).compatible());
    at.map(|at| at.timestamp()).map_err(|_| {
        usage(format!("--from: {text:?} is no date; examples are 2030-03-30 and 2030-03-30T09:00"))
    })
}

/// Sends the fields of a cue. A refusal of its expression has a mark below the part that it is about.
pub fn send_fields(context: &Context, request: ApiRequest, fields: &Value) -> Result<ApiResponse> {
    let cron = fields["schedule"]["cron"].as_str();
    context.send(&request.json(fields)).map_err(|error| with_caret(error, cron))
}

/// The error with the expression and a mark below the part that the server names.
fn with_caret(mut error: CliError, cron: Option<&str>) -> CliError {
    if let (Some(refused), Some(cron)) = (error.refused(), cron) {
        let span = &refused.body["error"]["span"];
        let place = |index: usize| usize::try_from(span[index].as_u64()?).ok();
        if let (Some(from), Some(to)) = (place(0), place(1)) {
            refused.message.push_str(&marked(cron, from, to));
        }
    }
    error
}

/// The refusal of a text with examples of its flag.
fn fit_examples(mut error: CliError, field: &str, text: &str) -> CliError {
    if field == "at" && elapsed(text).is_some() {
        return usage(format!("--at: {text:?} is no time; did you mean +{text}?"));
    }
    let examples = match field {
        "at" => "examples are `+10m`, `tomorrow 9:00` and `2030-01-31T09:00`",
        "every" => "examples are `90s`, `5m` and `1h30m`",
        "cron" => "examples are `every 5m`, `every weekday at 9` and `0 9 * * 1-5`",
        _ => EXAMPLES,
    };
    if let Some(refused) = error.refused() {
        refused.message = refused.message.replace(EXAMPLES, examples);
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
