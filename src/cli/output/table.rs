//! Tables and details as text: cells, colours, instants and durations as people read them.

use std::io::{self, IsTerminal as _};

use clap::ColorChoice;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::error::{Result, usage};
use crate::cli::printable::printable;
use crate::cli::width::{MIN_WIDTH, cut, fold};
use crate::domain::schedule::Zone;
use crate::domain::schedule::interval::elapsed;
use crate::domain::secret::masked;
use crate::domain::webhook::callback::is_secret_header;

const GAP: &str = "  ";

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

/// Columns of a terminal that is not narrow.
const ROOMY: usize = 120;

/// When a column is shown, and whether it may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnRule {
    Always,
    /// Free text, which may be shortened so that the table fits into the terminal. Ids never are.
    Shortened,
    /// Free text in the wide form, or in a terminal that is not narrow.
    Roomy,
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
    /// For a person columns of text, in the width of the terminal unless the form is wide. For a pipe values between
    /// tabs, whole, in columns that do not depend on the rows.
    pub fn render(&self, is_wide: bool, styles: &Styles) -> String {
        let has_value = |index: usize| self.rows.iter().any(|row| !row[index].text.is_empty());
        let is_shown = |index: &usize| match self.columns[*index].1 {
            ColumnRule::Always | ColumnRule::Shortened => true,
            ColumnRule::Roomy => is_wide || styles.width.is_some_and(|width| width >= ROOMY),
            ColumnRule::Wide => is_wide,
            ColumnRule::WithValue => is_wide || styles.width.is_none() || has_value(*index),
        };
        let shown: Vec<usize> = (0..self.columns.len()).filter(is_shown).collect();
        let title = |index: &usize| Cell::new(self.columns[*index].0, Style::Title);
        let mut rows: Vec<Vec<Cell>> = vec![shown.iter().map(title).collect()];
        let cell = |row: &Vec<Cell>, index: usize| {
            row.get(index)
                .map(|cell| Cell::new(one_line(&cell.text), cell.style))
                .unwrap_or_default()
        };
        rows.extend(
            self.rows.iter().map(|row| shown.iter().map(|index| cell(row, *index)).collect()),
        );
        let Some(terminal) = styles.width else {
            return rows.iter().map(|row| values(row, styles)).collect();
        };
        let width =
            |column: usize| rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..shown.len()).map(width).collect();
        if !is_wide {
            // A column that a narrow terminal leaves out does not take the room of the others.
            for rule in [ColumnRule::Roomy, ColumnRule::Shortened] {
                let may_shorten: Vec<bool> =
                    shown.iter().map(|index| self.columns[*index].1 == rule).collect();
                shorten(&mut widths, &may_shorten, terminal);
            }
        }
        rows.iter().map(|row| line(row, &widths, styles)).collect()
    }
}

/// A text of several lines on one, without control characters.
fn one_line(text: &str) -> String {
    printable(&text.replace(['\n', '\r', '\t'], " "))
}

fn values(row: &[Cell], styles: &Styles) -> String {
    let values: Vec<String> = row.iter().map(|cell| styles.paint(&cell.text, cell.style)).collect();
    values.join("\t") + "\n"
}

/// Lines of a name and a value. Lines without a value are left out. At a terminal a value is folded beside its name.
pub fn details(lines: &[(&str, Cell)], styles: &Styles) -> String {
    let lines: Vec<&(&str, Cell)> =
        lines.iter().filter(|(_, value)| !value.text.is_empty()).collect();
    let width = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let room = styles.width.map(|terminal| terminal.saturating_sub(width + GAP.len()));
    let line = |(name, value): &&(&str, Cell)| {
        // Further lines of a value stand below its first.
        let text = value.text.split('\n').map(printable).flat_map(|text| match room {
            Some(room) => fold(&text, room),
            None => vec![text],
        });
        let indent = format!("\n{:width$}{GAP}", "");
        let text: Vec<String> = text.map(|text| styles.paint(&text, value.style)).collect();
        format!(
            "{}{GAP}{}\n",
            styles.paint(&format!("{name:width$}"), Style::Faint),
            text.join(&indent)
        )
    };
    lines.iter().map(line).collect()
}

/// Takes width from the widest columns that may be shortened, until the table fits.
fn shorten(widths: &mut [usize], may_shorten: &[bool], terminal: usize) {
    loop {
        let all = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        let widest = (0..widths.len())
            .filter(|column| may_shorten[*column])
            .max_by_key(|column| widths[*column]);
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
            let missing =
                if index + 1 < row.len() { width.saturating_sub(text.width()) } else { 0 };
            format!("{}{:missing$}", styles.paint(&text, cell.style), "")
        })
        .collect();
    format!("{}\n", cells.join(GAP).trim_end())
}

/// The lines of a text of others, indented, in the width of a terminal.
pub fn indented(lines: impl Iterator<Item = String>, style: Style, styles: &Styles) -> String {
    let room = styles.width.map_or(usize::MAX, |width| width.saturating_sub(2));
    let folded = lines.flat_map(|line| fold(&line, room));
    folded.map(|line| format!("  {}\n", styles.paint(&line, style))).collect()
}

/// The parts of a line as far as they fit into `width`, with two blanks between them.
pub fn fitted(parts: &[(String, Style)], width: usize, styles: &Styles) -> String {
    let (mut line, mut left) = (String::new(), width);
    for (text, style) in parts.iter().filter(|(text, _)| !text.is_empty()) {
        let gap = if line.is_empty() { "" } else { GAP };
        // An ellipsis alone says nothing.
        if left <= gap.len() + 1 {
            break;
        }
        let text = cut(text, left - gap.len());
        left -= gap.len() + text.width();
        line += gap;
        line += &styles.paint(&text, *style);
    }
    line
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

/// Variable of the environment with the columns of a terminal, for output that is none: documentation, tests.
const COLUMNS_VARIABLE: &str = "CUED_COLUMNS";

#[derive(Debug, Clone, Copy, Default)]
pub struct Styles {
    pub has_colour: bool,
    /// Columns of the terminal; `None` if the output is read by a program.
    pub width: Option<usize>,
}

impl Styles {
    /// By `--color`, then NO_COLOR, CLICOLOR_FORCE and the kind of terminal.
    pub fn for_stdout(color: ColorChoice) -> Self {
        let has_colour = match color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
            }
        };
        let given = std::env::var(COLUMNS_VARIABLE).ok().and_then(|columns| columns.parse().ok());
        let of_terminal = || terminal_size::terminal_size().map_or(80, |(width, _)| width.0.into());
        let width = given.or_else(|| io::stdout().is_terminal().then(of_terminal));
        Self { has_colour, width }
    }

    /// For a table inside of a text, which is in columns in a pipe too.
    pub fn in_columns(self) -> Self {
        Self { width: self.width.or(Some(usize::MAX)), ..self }
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

/// Pairs of a name and a value, a line each.
pub fn headers(pairs: &Value) -> String {
    let text = |pair: &Value, index: usize| pair[index].as_str().unwrap_or_default().to_owned();
    let pairs = pairs.as_array().into_iter().flatten();
    pairs.map(|pair| header(&text(pair, 0), &text(pair, 1))).collect::<Vec<_>>().join("\n")
}

/// A header for people; of a value that may be a secret only the end. JSON has it whole.
pub fn header(name: &str, value: &str) -> String {
    let value = if is_secret_header(name) { &masked(value) } else { value };
    format!("{name}: {value}")
}

/// The words of a status, and how grave an alert is, by their colour.
const STATUSES: [(Style, &str); 3] = [
    (Style::Good, "success active completed healthy ok alive reported_success verified_success"),
    (
        Style::Bad,
        "failed missed dead unhealthy failing critical reported_failure verification_failed missing",
    ),
    (
        Style::Warning,
        "retrying paused stale degraded warning waiting unconfirmed claim_lost cut verification_pending",
    ),
];

/// A status of a cue, an execution, an outcome, an attempt, a worker or a channel, in its colour.
pub fn status(word: &str) -> Cell {
    let has_word = |(_, words): &&(Style, &str)| words.split(' ').any(|it| it == word);
    Cell::new(word, STATUSES.iter().find(has_word).map_or(Style::Plain, |(style, _)| *style))
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
    pub fn in_zone(zone: TimeZone) -> Self {
        Self { zone }
    }

    /// An instant of the API in a format, which may depend on it. Text that is no instant stays.
    fn formatted(&self, instant: &str, format: impl FnOnce(&Zoned) -> &'static str) -> String {
        let Ok(at) = instant.parse::<Timestamp>() else { return instant.to_owned() };
        let at = at.to_zoned(self.zone.clone());
        at.strftime(format(&at)).to_string()
    }

    /// `2026-11-22 18:00:00+01:00`
    pub fn instant(&self, instant: &str) -> String {
        self.formatted(instant, |at| match at.millisecond() {
            0 => "%Y-%m-%d %H:%M:%S%:z",
            _ => "%Y-%m-%d %H:%M:%S%.3f%:z",
        })
    }

    /// To the minute: `2026-11-22 18:00`.
    pub fn minute(&self, instant: &str) -> String {
        self.formatted(instant, |_| "%Y-%m-%d %H:%M")
    }

    /// The time of day to the second, or in the format `other` if it is not of the day of `now`.
    pub fn of_day(&self, instant: &str, now: Timestamp, other: &'static str) -> String {
        let today = now.to_zoned(self.zone.clone()).date();
        self.formatted(instant, |at| if at.date() == today { "%H:%M:%S" } else { other })
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

/// Seconds as a flag takes them, in one unit: `5m`.
pub fn whole_span(seconds: i64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let unit = units.into_iter().find(|(unit, _)| seconds != 0 && seconds % unit == 0);
    let (unit, letter) = unit.unwrap_or((1, "s"));
    format!("{}{letter}", seconds / unit)
}

/// The zone that a flag names, by its name or a place such as `Berlin`.
pub fn parse_zone(flag: &str, text: &str) -> Result<Zone> {
    Zone::find_place(text).map_err(|unknown| {
        let text = printable(text);
        usage(format!("--{flag}: there is no time zone {text:?}; {}", unknown.remedy()))
    })
}

/// An instant of the API by its distance from `now`: `in 12 s`, `3 min ago`. Text that is no instant stays.
pub fn relative(instant: &str, now: Timestamp) -> String {
    let Ok(at) = instant.parse::<Timestamp>() else { return instant.to_owned() };
    from_now(at.as_millisecond().saturating_sub(now.as_millisecond()))
}

/// A duration without tenths of a second, which are over before they are read.
pub fn span(millis: i64) -> String {
    match millis {
        1_000..100_000 => format!("{} s", (millis + 500) / 1_000),
        millis => duration(millis),
    }
}

/// A distance from now in milliseconds, negative before it.
pub fn from_now(millis: i64) -> String {
    let span = match millis.saturating_abs() {
        0..1_000 => return "now".to_owned(),
        millis => span(millis),
    };
    if millis < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// Parses a duration such as `90s`, `10m`, `2h`, `1d` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let duration = elapsed(text).filter(SignedDuration::is_positive);
    duration.ok_or_else(|| format!("{text:?} is no duration; examples are 90s, 10m, 2h and 1d"))
}

/// Parses a duration into whole seconds; a number alone is of seconds.
pub fn parse_seconds(text: &str) -> Result<u32, String> {
    let seconds = || {
        u32::try_from(parse_duration(text)?.as_secs()).map_err(|_| format!("{text:?} is too long"))
    };
    text.parse().or_else(|_| seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Styles = Styles { has_colour: false, width: None };
    const TERMINAL: Styles = Styles { has_colour: false, width: Some(80) };

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
        let text = table.render(false, &TERMINAL);
        assert_eq!(
            text,
            "ID      NAME\ncue_1   日本 nightly backup of everything\ncue_22  b\u{fffd}[2J\n"
        );
        assert!(table.render(true, &TERMINAL).contains("everything  n\n"));
        let narrow = Styles { width: Some(24), ..PIPE };
        assert_eq!(
            table.render(false, &narrow).lines().nth(1).unwrap(),
            "cue_1   日本 nightly ba…"
        );
        let roomy = Table {
            columns: vec![("ID", ColumnRule::Shortened), ("TARGET", ColumnRule::Roomy)],
            ..table
        };
        let at = |columns| roomy.render(false, &Styles { width: Some(columns), ..PIPE });
        assert!(
            !at(119).contains("TARGET") && at(120).contains("  TARGET\ncue_1   日本 nightly"),
            "{}",
            at(120)
        );
    }

    #[test]
    fn a_pipe_gets_whole_values_between_tabs() {
        let columns = vec![
            ("ID", ColumnRule::Always),
            ("NAME", ColumnRule::Shortened),
            ("X", ColumnRule::WithValue),
            ("Y", ColumnRule::Wide),
        ];
        let name = "a\tname\nthat is long ".repeat(9);
        let rows = vec![vec!["1".into(), name.as_str().into(), "".into(), "y".into()]];
        let table = Table { columns, rows };
        let name = "a name that is long ".repeat(9);
        assert_eq!(table.render(false, &PIPE), format!("ID\tNAME\tX\n1\t{name}\t\n"));
        assert_eq!(table.render(true, &PIPE), format!("ID\tNAME\tX\tY\n1\t{name}\t\ty\n"));
        assert!(!table.render(false, &TERMINAL).contains('X'));
    }

    #[test]
    fn a_long_value_is_folded_beside_its_name() {
        let narrow = Styles { width: Some(14), ..PIPE };
        let lines = [("id", "x".into()), ("why", "it has failed twice".into())];
        assert_eq!(details(&lines, &narrow), "id   x\nwhy  it has\n     failed\n     twice\n");
    }

    #[test]
    fn the_parts_of_a_line_end_where_the_terminal_does() {
        let parts = ["one", "", "two", "three"].map(|text| (text.to_owned(), Style::Plain));
        for (width, line) in
            [(80, "one  two  three"), (14, "one  two  thr…"), (11, "one  two"), (2, "o…")]
        {
            assert_eq!(fitted(&parts, width, &PIPE), line, "{width}");
        }
    }

    #[test]
    fn a_time_is_told_by_its_distance_from_now() {
        let now = "2026-11-22T17:00:00Z".parse().unwrap();
        for (instant, told) in [
            ("2026-11-22T17:00:00.9Z", "now"),
            ("2026-11-22T17:00:12Z", "in 12 s"),
            ("2026-11-22T16:57:00Z", "3 min ago"),
            ("2026-11-23T17:00:00Z", "in 24 h"),
            ("2026-10-22T17:00:00Z", "31 d ago"),
            ("soon", "soon"),
        ] {
            assert_eq!(relative(instant, now), told);
        }
    }

    #[test]
    fn details_leave_out_what_is_empty() {
        let lines = [("id", "x".into()), ("description", "".into()), ("payload", "{\n}".into())];
        assert_eq!(details(&lines, &PIPE), "id       x\npayload  {\n         }\n");
    }

    #[test]
    fn instants_are_shown_in_the_zone() {
        let berlin = Times::in_zone(parse_zone("tz", "berlin").unwrap().rules().clone());
        assert_eq!(berlin.instant("2026-11-22T17:00:00.25Z"), "2026-11-22 18:00:00.250+01:00");
        let short = ["2026-11-22T17:00:00.25Z", ""].map(|instant| berlin.minute(instant));
        assert_eq!(short, ["2026-11-22 18:00", ""]);
        let now = "2026-11-22T22:59:00Z".parse().unwrap();
        let short = ["2026-11-22T17:00:00.25Z", "2026-11-22T23:00:05Z"]
            .map(|instant| berlin.of_day(instant, now, "%m-%d %H:%M"));
        assert_eq!(short, ["18:00:00", "11-23 00:00"]);
        let error = |text: &str| parse_zone("timezone", text).unwrap_err().to_string();
        let unknown = error("Mars/Olympus");
        assert!(
            unknown.starts_with("--timezone: there is no time zone \"Mars/Olympus\"; use an IANA"),
            "{unknown}"
        );
        assert_eq!(
            error("eastern"),
            "--timezone: there is no time zone \"eastern\"; did you mean Canada/Eastern or US/Eastern?"
        );
    }

    #[test]
    fn durations_are_rounded_to_their_unit_and_read_in_it() {
        let shown = [0, 999, 1_000, 30_049, 119_000, 7_200_000, 172_800_000, -50].map(duration);
        assert_eq!(shown, ["0 ms", "999 ms", "1.0 s", "30.0 s", "2 min", "2 h", "2 d", "-50 ms"]);
        let seconds =
            ["1h30m", "90s", "10m", "2d"].map(|text| parse_duration(text).unwrap().as_secs());
        assert_eq!(seconds, [5_400, 90, 600, 172_800]);
        for bad in ["", "10", "0s", "-5m", "2h ago", "m", "99999999999999999999d", "2026-11-22"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
