//! Prints events in the form of `--output`: for people a line of time, glyph, cue, result, duration and the id of the run.

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::commands::tail::TailEvent;
use crate::cli::client::context::{Context, environment};
use crate::cli::error::CliError;
use crate::cli::output::table::{Style, Times, cut, duration, last_line};
use crate::cli::output::{Format, Output, print_part, yaml};
use crate::cli::printable::{printable, printable_lines};
use crate::clock::Clock;

/// Columns of the name of a cue. A terminal shows no more of it; in a file a longer name moves the rest of its line.
const NAME: usize = 16;
const NARROW_NAME: usize = 8;

/// On a terminal of fewer columns the id is its beginning.
const NARROW: usize = 120;

/// The beginning of an id has the time of the run and some random digits. `cued run show` takes it.
const SHORT_ID: usize = 18;

/// Lines of the body of a response that are shown.
const MAX_BODY_LINES: usize = 10;

pub struct Printer<'a> {
    output: &'a Output,
    clock: &'a Clock,
    /// The locale has no other signs.
    is_ascii: bool,
    /// The date of the last line, which has the time only.
    date: Option<Date>,
}

impl<'a> Printer<'a> {
    pub fn new(context: &'a Context) -> Self {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(environment);
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        let is_ascii = !locale.contains("utf-8") && !locale.contains("utf8");
        Self { output: &context.output, clock: context.client.clock(), is_ascii, date: None }
    }

    /// Prints an event. Returns false if the reader has closed the pipe.
    pub fn print(&mut self, event: &TailEvent) -> Result<bool, CliError> {
        let text = match self.output.format {
            Format::Json | Format::Jsonl => format!("{}\n", event.json()),
            Format::Yaml => format!("---\n{}", yaml::document(&event.json())?),
            Format::Id => {
                let fields = ["execution_id", "cue_id", "id"].map(|field| event.field(field));
                match fields.into_iter().find(|id| !id.is_empty()) {
                    Some(id) => format!("{}\n", printable(&id)),
                    None if event.event == "reset" => {
                        self.output.note(&sentence(event, &self.output.times))?;
                        return Ok(true);
                    }
                    None => return Ok(true),
                }
            }
            Format::Table | Format::Wide => self.lines(event),
        };
        print_part(&text)
    }

    /// The line of an event, its body below, and above it the date if that is another than before.
    fn lines(&mut self, event: &TailEvent) -> String {
        let paint = |text: &str| self.output.styles.paint(text, Style::Faint);
        let date = |at: Timestamp| at.to_zoned(self.output.times.zone().clone()).date();
        let now = self.clock.now();
        let today = date(event.at().unwrap_or(now));
        let mut lines = vec![self.line(event, now)];
        if today != self.date.unwrap_or_else(|| date(now)) {
            lines.insert(0, paint(&today.to_string()));
        }
        // Below the name of the cue.
        let body = event.body.iter().flat_map(|body| body_lines(body));
        lines.extend(body.map(|line| format!("{:17}{}", "", paint(&line))));
        self.date = Some(today);
        lines.join("\n") + "\n"
    }

    /// The line of an event: texts, each with its columns. `now` stands for an instant that it lacks.
    fn line(&self, event: &TailEvent, now: Timestamp) -> String {
        let is_narrow = self.output.styles.width.is_some_and(|width| width < NARROW);
        let name_width = if is_narrow { NARROW_NAME } else { NAME };
        let (glyph, ascii, style) = glyph(event);
        let name = ["cue_name", "worker_id"].map(|field| printable(&event.field(field)));
        let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let name = if self.output.styles.width.is_some() { cut(&name, name_width) } else { name };
        let id = event.field("execution_id");
        let id = if is_narrow { id.get(..SHORT_ID).unwrap_or(&id).to_owned() } else { id };
        let mut parts = vec![
            (self.output.times.time_of_day(event.at().unwrap_or(now)), 0, Style::Faint),
            ((if self.is_ascii { ascii } else { glyph }).to_owned(), 1, style),
            (name, name_width, Style::Plain),
        ];
        if event.event.starts_with("execution.") {
            let (result, status, took) = result(event);
            parts.extend([(result, 11, style), (status, 10, Style::Plain)]);
            // Numbers are aligned at their right.
            parts.extend([(format!("{took:>8}"), 8, Style::Plain), (id, 0, Style::Faint)]);
            parts.extend([detail(event), message(event)].map(|text| (text, 0, Style::Plain)));
            parts.retain(|(text, width, _)| !text.is_empty() || *width > 0);
        } else {
            let sentence = printable(&sentence(event, &self.output.times));
            parts.extend([(sentence, 0, Style::Plain), (id, 0, Style::Faint)]);
        }
        let (mut line, mut used, last) = (String::new(), 0, parts.len() - 1);
        for (index, (mut text, width, style)) in parts.into_iter().enumerate() {
            if index > 0 {
                line.push_str("  ");
                used += 2;
            }
            // Only the end of a line is cut: the columns before it fit.
            if let Some(columns) = self.output.styles.width.filter(|columns| used + text.width() > *columns) {
                text = if used < columns { cut(&text, columns - used) } else { String::new() };
            }
            let missing = if index == last { 0 } else { width.saturating_sub(text.width()) };
            used += text.width() + missing;
            line.push_str(&self.output.styles.paint(&text, style));
            line.push_str(&" ".repeat(missing));
        }
        let line = line.trim_end();
        // Without a locale that has it, an ellipsis would be shown as three signs.
        if self.is_ascii && self.output.styles.width.is_some() {
            line.replace('…', "~")
        } else {
            line.to_owned()
        }
    }
}

/// The beginning of a body, as lines without control characters.
fn body_lines(body: &str) -> Vec<String> {
    let mut lines: Vec<String> = printable_lines(body).take(MAX_BODY_LINES).collect();
    let more = body.lines().count().saturating_sub(MAX_BODY_LINES);
    if more > 0 {
        lines.push(format!("({more} more; --json shows all)"));
    }
    lines
}

/// The sign of an event, that of a locale without UTF-8, and their style.
fn glyph(event: &TailEvent) -> (&'static str, &'static str, Style) {
    match event.event.as_str() {
        "execution.outcome" if event.is_failed_outcome() => ("✕", "x", Style::Bad),
        "execution.succeeded" | "execution.outcome" => ("●", "+", Style::Good),
        "execution.retrying" => ("↻", "~", Style::Warning),
        "execution.failed" | "missed.recorded" | "cue.failed" => ("✕", "x", Style::Bad),
        "alert.created" | "execution.claim_lost" | "quota.near" | "quota.exceeded" | "reset" => {
            ("!", "!", Style::Warning)
        }
        _ => ("·", "-", Style::Faint),
    }
}

/// The result of an attempt, its status and its duration.
fn result(event: &TailEvent) -> (String, String, String) {
    let (attempt, of) = (event.number("attempt").unwrap_or(0), event.field("max_attempts"));
    let counted = |word: &str| if attempt > 0 { format!("{word} {attempt}/{of}") } else { word.to_owned() };
    let (word, has_ended_attempt) = match event.event.as_str() {
        "execution.retrying" => (counted("attempt"), true),
        "execution.failed" => (counted("failed"), true),
        "execution.succeeded" if attempt > 1 => (counted("success"), true),
        "execution.succeeded" => ("success".to_owned(), true),
        "execution.outcome" => (event.field("outcome_state").replace('_', " "), false),
        other => (other.trim_start_matches("execution.").replace('_', " "), false),
    };
    if !has_ended_attempt {
        return (printable(&word), String::new(), String::new());
    }
    let status = [event.field("http_status"), event.field("cause").replace('_', " ")];
    let status = status.into_iter().find(|status| !status.is_empty()).unwrap_or_default();
    let took = event.number("duration_ms").map(duration).unwrap_or_default();
    (printable(&word), printable(&status), took)
}

/// The rest about an attempt: its lateness, the next step, its worker.
fn detail(event: &TailEvent) -> String {
    let instant = |field: &str| event.data[field].as_str()?.parse::<Timestamp>().ok();
    match event.event.as_str() {
        "execution.retrying" => match (instant("next_retry"), event.at()) {
            (Some(next), Some(at)) => {
                let wait = i64::try_from(next.duration_since(at).as_millis()).unwrap_or(i64::MAX);
                format!("next in {}", duration(wait.max(0)))
            }
            _ => String::new(),
        },
        "execution.succeeded" if event.number("attempt") == Some(1) => {
            event.number("late_ms").map(|late| format!("+{}", duration(late))).unwrap_or_default()
        }
        "execution.claimed" | "execution.claim_lost" => printable(&event.field("worker_id")),
        "execution.created" => event.field("triggered_by").replace('_', " "),
        _ => String::new(),
    }
}

fn message(event: &TailEvent) -> String {
    let message = event.field("error_message");
    if message.is_empty() || !event.is_failed_attempt() {
        return String::new();
    }
    format!("\"{}\"", printable(&last_line(&message)))
}

/// An event that is no attempt, in words.
fn sentence(event: &TailEvent, times: &Times) -> String {
    let field = |name: &str| event.field(name);
    match event.event.as_str() {
        "reset" => format!("gap: some events were missed ({}); --since shows the past", field("reason")),
        "alert.created" => format!("alert {}: {}", field("alert_type"), field("message")),
        "missed.recorded" => {
            let (count, reason) = (field("count"), field("reason").replace('_', " "));
            let (first, last) = (times.instant(&field("first")), times.instant(&field("last")));
            let span = if first == last { first } else { format!("{first} to {last}") };
            format!("missed {count} ({reason}): {span}")
        }
        "quota.near" | "quota.exceeded" => {
            format!("{}: {} of {} executions", event.event.replace('.', " "), field("used"), field("limit"))
        }
        "server.state" => format!("server {}", field("state").replace('_', " ")),
        "worker.seen" => "worker seen".to_owned(),
        "burst" => {
            let counts = event.data["counts"].as_object();
            let counts: Vec<String> =
                counts.into_iter().flatten().map(|(word, count)| format!("{count} {word}")).collect();
            let span = duration(event.number("span_ms").unwrap_or(0));
            format!("too many to show in {span}: {}", counts.join(", "))
        }
        word if word.starts_with("cue.") => {
            let next = event.data["next_run"].as_str();
            let next = next.map(|next| format!(", next run {}", times.instant(next))).unwrap_or_default();
            format!("{}{next}", word.replace('.', " "))
        }
        word => format!("{word} {}", Value::to_string(&event.data)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::output::table::Styles;

    const ID: &str = "018cc251-f400-7abc-8000-000000000000";

    fn lines(width: Option<usize>, events: &[TailEvent]) -> Vec<String> {
        let (styles, times) = (Styles { has_colour: false, width }, Times::new(true, None).unwrap());
        let output = &Output { format: Format::Table, styles, times };
        let printer = Printer { output, clock: &Clock::system(), is_ascii: false, date: None };
        events.iter().map(|event| printer.line(event, Timestamp::UNIX_EPOCH)).collect()
    }

    fn some_of_each() -> [TailEvent; 4] {
        let run = |event: &str, more: &Value| {
            let mut data = json!({
                "execution_id": ID, "cue_id": "cue_s", "cue_name": "sync-inventory", "attempt": 1, "max_attempts": 4,
                "http_status": 503, "cause": "status_5xx", "duration_ms": 87, "late_ms": 2,
                "next_retry": "2030-01-01T12:01:30Z", "error_message": "upstream\u{1b}[2J error",
                "at": "2030-01-01T12:00:30.001Z",
            });
            data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            TailEvent::listed(event, data)
        };
        let timeout = json!({"attempt": 4, "http_status": null, "cause": "timeout", "duration_ms": 30_000, "error_message": null});
        let alert = json!({
            "id": "a", "cue_id": "cue_s", "message": "sync has failed", "alert_type": "consecutive_failures",
            "execution_id": ID, "created_at": "2030-01-01T12:00:31.2Z",
        });
        [
            run("execution.succeeded", &json!({"cue_name": "日本", "http_status": 200, "duration_ms": 132})),
            run("execution.retrying", &json!({})),
            run("execution.failed", &timeout),
            TailEvent::listed("alert.created", alert),
        ]
    }

    #[test]
    fn columns_are_aligned_and_every_line_of_a_run_has_its_id() {
        assert_eq!(
            lines(None, &some_of_each()),
            [
                "12:00:30.001  ●  日本              success      200           132 ms  018cc251-f400-7abc-8000-000000000000  +2 ms",
                "12:00:30.001  ↻  sync-inventory    attempt 1/4  503            87 ms  018cc251-f400-7abc-8000-000000000000  next in 60.0 s  \"upstream\u{fffd}[2J error\"",
                "12:00:30.001  ✕  sync-inventory    failed 4/4   timeout       30.0 s  018cc251-f400-7abc-8000-000000000000",
                "12:00:31.200  !                    alert consecutive_failures: sync has failed  018cc251-f400-7abc-8000-000000000000",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_shows_the_beginning_of_the_id() {
        assert_eq!(
            lines(Some(80), &some_of_each()[..2]),
            [
                "12:00:30.001  ●  日本      success      200           132 ms  018cc251-f400-7abc",
                "12:00:30.001  ↻  sync-in…  attempt 1/4  503            87 ms  018cc251-f400-7abc",
            ]
        );
        let wider = &lines(Some(110), &some_of_each()[1..2])[0];
        assert!(wider.ends_with("018cc251-f400-7abc  next in 60.0 s  \"upstream\u{fffd}[…"), "{wider}");
        assert_eq!(wider.width(), 110);
    }

    #[test]
    fn other_events_are_sentences() {
        for (event, data, expected) in [
            (
                "reset",
                json!({"reason": "restart"}),
                "gap: some events were missed (restart); --since shows the past",
            ),
            (
                "burst",
                json!({"span_ms": 1_000, "counts": {"execution.failed": 2, "execution.succeeded": 300}}),
                "too many to show in 1.0 s: 2 execution.failed, 300 execution.succeeded",
            ),
            ("server.state", json!({"state": "clock_moved"}), "server clock moved"),
            (
                "missed.recorded",
                json!({"cue_name": "n", "count": 2, "reason": "server_down", "first": "x", "last": "y"}),
                "n                 missed 2 (server down): x to y",
            ),
            ("new.kind", json!({"a": 1}), "new.kind {\"a\":1}"),
        ] {
            assert_eq!(lines(None, &[TailEvent::listed(event, data)])[0][17..].trim(), expected);
        }
    }
}
