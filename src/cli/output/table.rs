//! Tables and details as text: cells, colours, instants and durations as people read them.

use std::io::{self, IsTerminal as _};

use clap::ColorChoice;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::error::{CliError, usage};
use crate::cli::printable::printable;

const GAP: &str = "  ";

/// A column that is shortened keeps so much.
const MIN_WIDTH: usize = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub style: Style,
}

impl Cell {
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Style::Plain)
    }
}

/// When a column is shown, and whether it may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRule {
    Always,
    /// Free text, which may be shortened so that the table fits into the terminal. Ids never are.
    Shortened,
    Wide,
    /// In the wide form, or if a row has a value.
    WithValue,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub columns: Vec<(&'static str, ColumnRule)>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn render(&self, is_wide: bool, styles: &Styles) -> String {
        let has_value = |index: usize| self.rows.iter().any(|row| !row[index].text.is_empty());
        let is_shown = |index: &usize| match self.columns[*index].1 {
            ColumnRule::Always | ColumnRule::Shortened => true,
            ColumnRule::Wide => is_wide,
            ColumnRule::WithValue => is_wide || has_value(*index),
        };
        let shown: Vec<usize> = (0..self.columns.len()).filter(is_shown).collect();
        let title = |index: &usize| Cell::new(self.columns[*index].0, Style::Title);
        let mut rows: Vec<Vec<Cell>> = vec![shown.iter().map(title).collect()];
        let cell = |row: &Vec<Cell>, index: usize| {
            row.get(index).map(|cell| Cell::new(printable(&cell.text), cell.style)).unwrap_or_default()
        };
        rows.extend(self.rows.iter().map(|row| shown.iter().map(|index| cell(row, *index)).collect()));
        let width = |column: usize| rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..shown.len()).map(width).collect();
        if let (Some(terminal), false) = (styles.width, is_wide) {
            let may_shorten = shown.iter().map(|index| self.columns[*index].1 == ColumnRule::Shortened);
            let may_shorten: Vec<bool> = may_shorten.collect();
            shorten(&mut widths, &may_shorten, terminal);
        }
        rows.iter().map(|row| line(row, &widths, styles)).collect()
    }
}

/// Lines of a name and a value. Lines without a value are left out.
pub fn details(lines: &[(&str, Cell)], styles: &Styles) -> String {
    let lines: Vec<&(&str, Cell)> = lines.iter().filter(|(_, value)| !value.text.is_empty()).collect();
    let width = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let line = |(name, value): &&(&str, Cell)| {
        // Further lines of a value stand below its first.
        let text = value.text.split('\n').map(printable).collect::<Vec<_>>();
        let indent = format!("\n{:width$}{GAP}", "");
        let text: Vec<String> = text.iter().map(|text| styles.paint(text, value.style)).collect();
        format!("{}{GAP}{}\n", styles.paint(&format!("{name:width$}"), Style::Faint), text.join(&indent))
    };
    lines.iter().map(line).collect()
}

/// Takes width from the widest columns that may be shortened, until the table fits.
fn shorten(widths: &mut [usize], may_shorten: &[bool], terminal: usize) {
    loop {
        let all = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        let widest =
            (0..widths.len()).filter(|column| may_shorten[*column]).max_by_key(|column| widths[*column]);
        match widest {
            Some(column) if all > terminal && widths[column] > MIN_WIDTH => widths[column] -= 1,
            _ => return,
        }
    }
}

fn line(row: &[Cell], widths: &[usize], styles: &Styles) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (cell, width))| {
            let text = cut(&cell.text, *width);
            // No blanks at the end of a line.
            let missing = if index + 1 < row.len() { width.saturating_sub(text.width()) } else { 0 };
            format!("{}{:missing$}", styles.paint(&text, cell.style), "")
        })
        .collect();
    format!("{}\n", cells.join(GAP).trim_end())
}

/// The beginning of a text, with an ellipsis, if it is wider than `width`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept: String = text
        .chars()
        .take_while(|char| {
            used += char.width().unwrap_or(0);
            used <= width
        })
        .collect();
    format!("{kept}…")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    #[default]
    Plain,
    Title,
    Good,
    Warning,
    Bad,
    Faint,
}

#[derive(Debug, Clone, Copy)]
pub struct Styles {
    pub has_colour: bool,
    /// Columns of the terminal; `None` if the output is no terminal.
    pub width: Option<usize>,
}

impl Styles {
    /// By `--color`, then NO_COLOR, CLICOLOR_FORCE and the kind of terminal.
    pub fn for_stdout(color: ColorChoice) -> Self {
        let has_colour = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        };
        let is_terminal = io::stdout().is_terminal();
        let width =
            is_terminal.then(|| terminal_size::terminal_size().map_or(80, |(width, _)| width.0.into()));
        Self { has_colour, width }
    }

    pub fn paint(&self, text: &str, style: Style) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Title => "1",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
            Style::Faint => "2",
        };
        if self.has_colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Characters of a message in a table or a line.
const MAX_LINE: usize = 80;

/// A field as text; empty if it is absent or null. A dot leads into an object: `callback.url`.
pub fn text_of(object: &Value, field: &str) -> String {
    let value = field.split('.').fold(object, |value, name| &value[name]);
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A status of a cue, an execution, an attempt, a worker or a channel, in its colour.
pub fn status(word: &str) -> Cell {
    let style = match word {
        "success" | "active" | "completed" | "healthy" | "ok" | "alive" => Style::Good,
        "failed" | "missed" | "dead" | "unhealthy" | "failing" => Style::Bad,
        "retrying" | "paused" | "stale" | "degraded" | "warning" | "waiting" | "unconfirmed" => {
            Style::Warning
        }
        _ => Style::Plain,
    };
    Cell::new(word, style)
}

/// The last line with any words, which names the reason of a message; a long one without its beginning.
pub fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let length = line.chars().count();
    if length <= MAX_LINE {
        return line.to_owned();
    }
    std::iter::once('…').chain(line.chars().skip(length - MAX_LINE + 1)).collect()
}

#[derive(Debug, Clone)]
pub struct Times {
    zone: TimeZone,
}

impl Times {
    /// `flag` is the one that names the zone.
    pub fn new(is_utc: bool, zone: Option<&str>, flag: &str) -> Result<Self, CliError> {
        let zone = match zone {
            _ if is_utc => TimeZone::UTC,
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).map_err(|_| {
                usage(format!("--{flag}: there is no time zone {name:?}; an example is Europe/Berlin"))
            })?,
        };
        Ok(Self { zone })
    }

    /// An instant of the API: `2026-11-22 18:00:00+01:00`. Text that is no instant stays.
    pub fn instant(&self, instant: &str) -> String {
        let Ok(at) = instant.parse::<Timestamp>() else { return instant.to_owned() };
        let format =
            if at.subsec_millisecond() == 0 { "%Y-%m-%d %H:%M:%S%:z" } else { "%Y-%m-%d %H:%M:%S%.3f%:z" };
        at.to_zoned(self.zone.clone()).strftime(format).to_string()
    }

    /// An instant of the API for a narrow column, without year and seconds: `11-22 18:00`. Text that is no instant
    /// stays.
    pub fn short(&self, instant: &str) -> String {
        let Ok(at) = instant.parse::<Timestamp>() else { return instant.to_owned() };
        at.to_zoned(self.zone.clone()).strftime("%m-%d %H:%M").to_string()
    }

    /// The time of day with milliseconds, for a line of a log.
    pub fn time_of_day(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M:%S%.3f").to_string()
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// A duration in milliseconds as text: `132 ms`, `30.0 s`, `2 min`, `3 h`, `4 d`.
pub fn duration(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let of = |unit: i64| {
        let unit = unit.unsigned_abs();
        (millis.unsigned_abs() + unit / 2) / unit
    };
    let text = match millis.unsigned_abs() {
        0..1_000 => format!("{} ms", millis.unsigned_abs()),
        1_000..100_000 => format!("{}.{} s", of(100) / 10, of(100) % 10),
        100_000..7_200_000 => format!("{} min", of(60_000)),
        7_200_000..172_800_000 => format!("{} h", of(3_600_000)),
        _ => format!("{} d", of(86_400_000)),
    };
    format!("{sign}{text}")
}

/// Parses a duration such as `90s`, `10m`, `2h`, `1d` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let span = text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let duration = span.ok().filter(SignedDuration::is_positive);
    duration.ok_or_else(|| format!("{text:?} is no duration; examples are 90s, 10m, 2h and 1d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Styles = Styles { has_colour: false, width: None };

    #[test]
    fn columns_are_aligned_and_free_text_is_shortened_to_fit_the_terminal() {
        let table = Table {
            columns: vec![
                ("ID", ColumnRule::Always),
                ("NAME", ColumnRule::Shortened),
                ("NOTE", ColumnRule::Wide),
            ],
            rows: vec![
                vec!["cue_1".into(), "日本 nightly backup of everything".into(), "n".into()],
                vec!["cue_22".into(), Cell::new("b\u{1b}[2J", Style::Bad), "".into()],
            ],
        };
        let text = table.render(false, &PIPE);
        assert_eq!(text, "ID      NAME\ncue_1   日本 nightly backup of everything\ncue_22  b\u{fffd}[2J\n");
        assert!(table.render(true, &PIPE).contains("everything  n\n"));
        let narrow = Styles { width: Some(24), ..PIPE };
        assert_eq!(table.render(false, &narrow).lines().nth(1).unwrap(), "cue_1   日本 nightly ba…");
    }

    #[test]
    fn details_leave_out_what_is_empty() {
        let lines = [("id", "x".into()), ("description", "".into()), ("payload", "{\n}".into())];
        assert_eq!(details(&lines, &PIPE), "id       x\npayload  {\n         }\n");
    }

    #[test]
    fn instants_are_shown_in_the_zone() {
        let berlin = Times::new(false, Some("Europe/Berlin"), "tz").unwrap();
        assert_eq!(berlin.instant("2026-11-22T17:00:00.25Z"), "2026-11-22 18:00:00.250+01:00");
        assert_eq!(
            (berlin.short("2026-11-22T17:00:00.25Z").as_str(), &*berlin.short("")),
            ("11-22 18:00", "")
        );
        let error = Times::new(false, Some("Mars/Olympus"), "timezone").unwrap_err().to_string();
        assert!(error.starts_with("--timezone: there is no time zone \"Mars/Olympus\""), "{error}");
    }

    #[test]
    fn durations_are_rounded_to_their_unit_and_read_in_it() {
        let shown = [0, 999, 1_000, 30_049, 119_000, 7_200_000, 172_800_000, -50].map(duration);
        assert_eq!(shown, ["0 ms", "999 ms", "1.0 s", "30.0 s", "2 min", "2 h", "2 d", "-50 ms"]);
        let seconds = ["1h30m", "90s", "10m", "2d"].map(|text| parse_duration(text).unwrap().as_secs());
        assert_eq!(seconds, [5_400, 90, 600, 172_800]);
        for bad in ["", "10", "0s", "-5m", "2h ago", "m", "99999999999999999999d", "2026-11-22"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
