//! An event as a line: time, glyph, cue, result, duration, the id of the run.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::commands::tail::event::TailEvent;
use crate::cli::client::commands::tail::glyphs::Glyphs;
use crate::cli::output::cells::last_line;
use crate::cli::output::style::{Style, Styles};
use crate::cli::output::table::cut;
use crate::cli::output::times::{Times, duration};
use crate::cli::printable::printable;

const GAP: &str = "  ";

/// Columns of the parts. Longer text moves the rest of its line.
const RESULT: usize = 11;
const STATUS: usize = 10;
const DURATION: usize = 8;
const DETAIL: usize = 14;

/// Columns of the name of a cue: of the first line, at most, and on a narrow terminal.
const NAME: usize = 16;
const MAX_NAME: usize = 24;
const NARROW_NAME: usize = 8;

/// On a terminal of fewer columns the id comes before the details, and is its beginning.
const NARROW: usize = 132;

/// The beginning of an id has the time of the run and some random digits. `cued run show` takes it.
const SHORT_ID: usize = 18;

/// Names of cues that are remembered for events that have only an id.
const MAX_NAMES: usize = 1_000;

/// The layout of lines.
#[derive(Debug, Clone)]
pub struct Layout {
    pub glyphs: Glyphs,
    pub styles: Styles,
    pub times: Times,
    /// Columns of the longest name so far.
    name: usize,
    /// By the ids of their cues.
    names: HashMap<String, String>,
}

/// A part of a line.
struct Part {
    text: String,
    style: Style,
    width: usize,
    is_right: bool,
}

fn part(text: impl Into<String>, width: usize) -> Part {
    Part { text: text.into(), style: Style::Plain, width, is_right: false }
}

impl Part {
    fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

impl Layout {
    #[must_use]
    pub fn new(glyphs: Glyphs, styles: Styles, times: Times) -> Self {
        Self { glyphs, styles, times, name: NAME, names: HashMap::new() }
    }

    fn is_narrow(&self) -> bool {
        self.styles.width.is_some_and(|width| width < NARROW)
    }

    /// The line of an event, with its newline. `now` stands for an instant that it lacks.
    #[must_use]
    pub fn line(&mut self, event: &TailEvent, now: Timestamp) -> String {
        let (glyph, style) = self.glyph(event);
        let name = printable(&self.subject(event));
        let is_known = !name.is_empty();
        let name = match self.styles.width {
            Some(_) if self.is_narrow() => cut(&name, NARROW_NAME),
            Some(_) => cut(&name, MAX_NAME),
            None => name,
        };
        if self.is_narrow() {
            self.name = NARROW_NAME;
        } else {
            self.name = self.name.max(name.width().min(MAX_NAME));
        }
        let mut parts = vec![
            part(self.times.time_of_day(event.at().unwrap_or(now)), 0).styled(Style::Faint),
            part(glyph, 1).styled(style),
            part(name, self.name),
        ];
        let id = event.field("execution_id");
        let is_of_attempt = event.event.starts_with("execution.");
        if is_of_attempt {
            parts.extend(result(event).map(|it| if it.width == RESULT { it.styled(style) } else { it }));
            let message = message(event);
            if self.is_narrow() {
                let id = id.get(..SHORT_ID).unwrap_or(&id).to_owned();
                let rest = [detail(event), message].into_iter().filter(|text| !text.is_empty());
                parts.push(part(id, SHORT_ID).styled(Style::Faint));
                parts.push(part(rest.collect::<Vec<_>>().join(GAP), 0));
            } else {
                parts.push(part(detail(event), DETAIL));
                parts.push(part(id, 0).styled(Style::Faint));
                parts.push(part(message, 0));
            }
        } else {
            parts.push(part(printable(&sentence(event, is_known, &self.times)), 0));
            let id = if self.is_narrow() { id.get(..SHORT_ID).unwrap_or(&id).to_owned() } else { id };
            parts.push(part(id, 0).styled(Style::Faint));
        }
        self.assemble(&parts)
    }

    /// The subject of an event: its cue, or its worker.
    fn subject(&mut self, event: &TailEvent) -> String {
        let (cue_id, name) = (event.field("cue_id"), event.field("cue_name"));
        if name.is_empty() {
            return self.names.get(&cue_id).cloned().unwrap_or_else(|| event.field("worker_id"));
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(cue_id, name.clone());
        name
    }

    /// The last part is cut to the width of the terminal.
    fn assemble(&self, parts: &[Part]) -> String {
        let (mut line, mut used) = (String::new(), 0);
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                line.push_str(GAP);
                used += GAP.len();
            }
            let left = self.styles.width.map(|width| width.saturating_sub(used));
            let text = match left {
                Some(0) => String::new(),
                Some(left) if index + 1 == parts.len() => cut(&part.text, left),
                _ => part.text.clone(),
            };
            let missing = " ".repeat(part.width.saturating_sub(text.width()));
            used += text.width() + missing.len();
            let text = self.styles.paint(&text, part.style);
            line.push_str(&if part.is_right {
                format!("{missing}{text}")
            } else {
                format!("{text}{missing}")
            });
        }
        let line = line.trim_end();
        // Without a locale that has it, an ellipsis would be shown as three signs.
        let line = if self.glyphs == Glyphs::ASCII && self.styles.width.is_some() {
            line.replace('…', "~")
        } else {
            line.to_owned()
        };
        format!("{line}\n")
    }

    fn glyph(&self, event: &TailEvent) -> (&'static str, Style) {
        match event.event.as_str() {
            "execution.succeeded" => (self.glyphs.success, Style::Good),
            "execution.outcome" if event.is_failed_outcome() => (self.glyphs.failure, Style::Bad),
            "execution.outcome" => (self.glyphs.success, Style::Good),
            "execution.retrying" => (self.glyphs.retry, Style::Warning),
            "execution.failed" | "missed.recorded" | "cue.failed" => (self.glyphs.failure, Style::Bad),
            "alert.created" | "execution.claim_lost" | "quota.near" | "quota.exceeded" => {
                (self.glyphs.attention, Style::Warning)
            }
            _ => (self.glyphs.other, Style::Faint),
        }
    }
}

/// The result of an attempt, its status and its duration.
fn result(event: &TailEvent) -> [Part; 3] {
    let (attempt, of) = (event.number("attempt").unwrap_or(0), event.field("max_attempts"));
    let counted = |word: &str| if attempt > 0 { format!("{word} {attempt}/{of}") } else { word.to_owned() };
    let word = match event.event.as_str() {
        "execution.retrying" => counted("attempt"),
        "execution.failed" => counted("failed"),
        "execution.succeeded" if attempt > 1 => counted("success"),
        "execution.succeeded" => "success".to_owned(),
        "execution.outcome" => event.field("outcome_state").replace('_', " "),
        other => other.trim_start_matches("execution.").replace('_', " "),
    };
    let has_ended_attempt =
        matches!(event.event.as_str(), "execution.retrying" | "execution.failed" | "execution.succeeded");
    let status = match (has_ended_attempt, event.field("http_status"), event.field("cause")) {
        (false, ..) => String::new(),
        (true, http_status, _) if !http_status.is_empty() => http_status,
        (true, _, cause) => cause.replace('_', " "),
    };
    let took = event.number("duration_ms").filter(|_| has_ended_attempt).map(duration).unwrap_or_default();
    let took = Part { is_right: true, ..part(took, DURATION) };
    [part(printable(&word), RESULT), part(printable(&status), STATUS), took]
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
fn sentence(event: &TailEvent, is_known: bool, times: &Times) -> String {
    let field = |name: &str| event.field(name);
    match event.event.as_str() {
        "alert.created" => {
            let in_a_row = field("metadata.consecutive_failures");
            // The message names the cue.
            let is_short = is_known && !in_a_row.is_empty();
            let what = if is_short { format!("{in_a_row} in a row") } else { field("message") };
            format!("alert {}: {what}", field("alert_type"))
        }
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

    const ID: &str = "018cc251-f400-7abc-8000-000000000000";

    fn layout(width: Option<usize>) -> Layout {
        let styles = Styles { has_colour: false, width };
        Layout::new(Glyphs::UNICODE, styles, Times::new(true, None).unwrap())
    }

    fn run(event: &str, more: &Value) -> TailEvent {
        let mut data = json!({
            "execution_id": ID, "cue_id": "cue_s", "cue_name": "sync-inventory", "attempt": 1, "max_attempts": 4, "http_status": 503,
            "cause": "status_5xx", "duration_ms": 87, "late_ms": 2, "next_retry": "2030-01-01T12:01:30Z",
            "error_message": "upstream\u{1b}[2J error", "at": "2030-01-01T12:00:30.001Z",
        });
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        TailEvent::listed(event, data)
    }

    fn lines(layout: &mut Layout, events: &[TailEvent]) -> Vec<String> {
        events.iter().map(|event| layout.line(event, Timestamp::UNIX_EPOCH)).collect()
    }

    fn some_of_each() -> [TailEvent; 4] {
        let timeout = json!({"attempt": 4, "http_status": null, "cause": "timeout", "duration_ms": 30_000, "error_message": null});
        let alert = json!({
            "id": "a", "cue_id": "cue_s", "message": "sync has failed", "alert_type": "consecutive_failures", "execution_id": ID,
            "metadata": {"consecutive_failures": 3}, "created_at": "2030-01-01T12:00:31.2Z",
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
            lines(&mut layout(None), &some_of_each()),
            [
                "12:00:30.001  ●  日本              success      200           132 ms  +2 ms           018cc251-f400-7abc-8000-000000000000\n",
                "12:00:30.001  ↻  sync-inventory    attempt 1/4  503            87 ms  next in 60.0 s  018cc251-f400-7abc-8000-000000000000  \"upstream\u{fffd}[2J error\"\n",
                "12:00:30.001  ✕  sync-inventory    failed 4/4   timeout       30.0 s                  018cc251-f400-7abc-8000-000000000000\n",
                "12:00:31.200  !  sync-inventory    alert consecutive_failures: 3 in a row  018cc251-f400-7abc-8000-000000000000\n",
            ]
        );
    }

    #[test]
    fn an_alert_of_a_cue_whose_name_is_not_known_has_its_message() {
        let alone = &lines(&mut layout(None), &some_of_each()[3..])[0];
        assert!(
            alone.contains("!                    alert consecutive_failures: sync has failed  018c"),
            "{alone}"
        );
    }

    #[test]
    fn a_narrow_terminal_shows_the_beginning_of_the_id() {
        let narrow = lines(&mut layout(Some(80)), &some_of_each()[..2]);
        assert_eq!(
            narrow,
            [
                "12:00:30.001  ●  日本      success      200           132 ms  018cc251-f400-7abc\n",
                "12:00:30.001  ↻  sync-in…  attempt 1/4  503            87 ms  018cc251-f400-7abc\n",
            ]
        );
        let wider = lines(&mut layout(Some(110)), &some_of_each()[1..2]);
        assert!(
            wider[0].ends_with("018cc251-f400-7abc  next in 60.0 s  \"upstream\u{fffd}[…\n"),
            "{wider:?}"
        );
        assert_eq!(wider[0].trim_end().width(), 110);
    }

    #[test]
    fn other_events_are_sentences() {
        let line = |event: &str, data: Value| {
            let line = layout(None).line(&TailEvent::listed(event, data), Timestamp::UNIX_EPOCH);
            line[17..].trim().to_owned()
        };
        let burst = json!({"span_ms": 1_000, "counts": {"execution.failed": 2, "execution.succeeded": 300}});
        assert_eq!(
            line("burst", burst),
            "too many to show in 1.0 s: 2 execution.failed, 300 execution.succeeded"
        );
        assert_eq!(line("server.state", json!({"state": "clock_moved"})), "server clock moved");
        let missed = json!({"cue_name": "n", "count": 2, "reason": "server_down", "first": "x", "last": "y"});
        assert_eq!(line("missed.recorded", missed), "n                 missed 2 (server down): x to y");
        assert_eq!(line("new.kind", json!({"a": 1})), "new.kind {\"a\":1}");
    }
}
