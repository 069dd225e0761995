//! The output of commands: tables, details, JSON, YAML, ids; times, colours.
//!
//! Standard output has the result and nothing else; [`Output::note`] is for the rest.

pub mod table;
pub mod yaml;

use std::io::{self, IsTerminal as _, Write as _};

use clap::{ColorChoice, ValueEnum};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::cli::error::{CliError, Result, cannot, failed};
use crate::cli::output::table::{
    Cell, ColumnRule, Styles, Table, Times, details, relative, text_of,
};
use crate::cli::printable::{print_error, printable};
use crate::cli::width::folded;
use crate::client::request::ApiResponse;
use crate::domain::ids::{CueId, ExecutionId};
use crate::domain::text::{STYLES, escaped};

#[derive(Debug, Clone)]
pub struct Output {
    pub format: Format,
    pub styles: Styles,
    pub times: Times,
}

impl Output {
    pub fn new(format: Format, color: ColorChoice, times: Times) -> Self {
        Self { format, styles: Styles::for_stdout(color), times }
    }

    pub fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// A table at a terminal: no program reads it.
    pub fn is_read_by_person(&self) -> bool {
        !self.format.is_for_programs() && io::stdout().is_terminal()
    }

    /// A person reads the output, and a line must fit into the terminal: ids are short, and times relative.
    pub fn is_short(&self) -> bool {
        self.format == Format::Table && self.styles.width.is_some()
    }

    /// An id in a table or a line.
    pub fn id(&self, id: &str) -> String {
        if self.is_short() { short_id(id) } else { id }.to_owned()
    }

    /// Prints an object. `details` has its lines as a table, of a name and a value each.
    pub fn object<F>(&self, answer: &ApiResponse, id: &str, lines: F) -> Result
    where
        F: FnOnce(&Value) -> Vec<(&'static str, Cell)>,
    {
        let value = answer.value()?;
        match self.format {
            Format::Json | Format::Jsonl => print_line(answer.text().trim_end_matches('\n')),
            Format::Yaml => print(&yaml::document(&answer.text())?),
            Format::Id => print_line(&printable(&text_of(&value, id))),
            Format::Table | Format::Wide => print(&details(&lines(&value), &self.styles)),
        }
    }

    /// Prints a list. `table` makes the table of its items.
    pub fn list<F>(&self, list: &List, id: &str, table: F) -> Result
    where
        F: FnOnce(&[Value]) -> Table,
    {
        match self.format {
            Format::Json => print_line(list.json().trim_end_matches('\n')),
            Format::Jsonl => {
                print(&list.items.iter().map(|item| format!("{item}\n")).collect::<String>())
            }
            Format::Yaml => print(&yaml::document(&list.json())?),
            Format::Id => {
                let line = |item: &Value| format!("{}\n", printable(&text_of(item, id)));
                print(&list.items.iter().map(line).collect::<String>())
            }
            Format::Table | Format::Wide if list.items.is_empty() => {
                return self.note(list.advice());
            }
            Format::Table | Format::Wide => {
                print(&table(&list.items).render(self.is_wide(), &self.styles))
            }
        }?;
        match list.total {
            // A program gets as many as it asked for.
            _ if list.is_limited && self.format.is_for_programs() => Ok(()),
            Some(total) if total > list.items.len() as u64 => {
                self.note(&format!("{} of {total}; --all shows the rest", list.items.len()))
            }
            None if list.has_more => self.note("there are more"),
            _ => Ok(()),
        }
    }

    /// Prints the result of a change: a sentence for people, the answer for programs.
    pub fn done<F>(&self, answer: &ApiResponse, id: &str, sentence: F) -> Result
    where
        F: FnOnce(&Value) -> String,
    {
        match self.format {
            Format::Table | Format::Wide => {
                let value = if answer.body.is_empty() { Value::Null } else { answer.value()? };
                print_sentence(&sentence(&value))
            }
            // A removal has no content.
            _ if answer.body.is_empty() => Ok(()),
            _ => self.object(answer, id, |_| Vec::new()),
        }
    }

    pub fn note(&self, text: &str) -> Result {
        print_note(text)
    }
}

/// The form of printed results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns of text
    #[default]
    Table,
    /// More columns
    Wide,
    /// The JSON of the server unchanged
    Json,
    /// One line of JSON per object
    Jsonl,
    Yaml,
    /// One id per line
    Id,
}

impl Format {
    /// The output is no table: it has nothing but the answer.
    pub fn is_for_programs(self) -> bool {
        !matches!(self, Self::Table | Self::Wide)
    }

    /// The output is read by a program, and errors are JSON too.
    pub fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl)
    }
}

/// Characters of a short id.
pub const SHORT_ID: usize = 8;

/// The part of an id that a table shows and commands accept: of a cue the first characters after `cue_`, of a run the last
/// ones, because the ids of runs that fall due together differ only there.
pub fn short_id(id: &str) -> &str {
    let short = match id.strip_prefix(CueId::PREFIX) {
        Some(chars) if CueId::parse(id).is_some() => chars.get(..SHORT_ID),
        None if ExecutionId::parse(id).is_some() => id.get(id.len() - SHORT_ID..),
        _ => None,
    };
    short.unwrap_or(id)
}

/// Formats a count with its noun: `1 cue`, `2 cues`.
pub fn count(number: impl Into<i128>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A column of a table of a command that is no client, with its text for an item and the time of now.
pub type Column<T> = (&'static str, ColumnRule, fn(&T, Timestamp) -> String);

/// Prints such a table, in the width of a terminal. `empty` says what to do without items.
pub fn print_table<T>(columns: &[Column<T>], items: &[T], now: Timestamp, empty: &str) -> Result {
    if items.is_empty() {
        return print_note(empty);
    }
    let styles = Styles::for_stdout(ColorChoice::Never);
    let row = |item| columns.iter().map(|(.., text)| text(item, now).into()).collect();
    let rows = items.iter().map(row).collect();
    let columns = columns.iter().map(|(title, rule, _)| (*title, *rule)).collect();
    print(&Table { columns, rows }.render(styles.width.is_none(), &styles))
}

/// An instant in such a table: its distance from now at a terminal, else as the clients print it.
pub fn table_time(at: Timestamp, now: Timestamp) -> String {
    match Styles::for_stdout(ColorChoice::Never).width {
        Some(_) => relative(&at.to_string(), now),
        None => Times::in_zone(TimeZone::system()).instant(&at.to_string()),
    }
}

/// Prints lines of a name and a value, one of them a new API key.
/// Errors: if standard output cannot be written, or its reader has closed the pipe: the key is then lost.
pub fn print_new_key(lines: &[(&str, &str)]) -> Result {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let consequence = ". The new API key is lost: revoke it and create another with `cued key add`";
    write(escaped(&text, &[]).as_bytes()).map_err(|error| write_failed(consequence, &error))?;
    print_note("Save the key now: it is not shown again.")
}

pub fn print_note(text: &str) -> Result {
    print_error(&format!("{text}\n")).map_err(|error| cannot("write to standard error", error))
}

/// Prints a result in words, folded in the width of a terminal.
pub fn print_sentence(text: &str) -> Result {
    match Styles::for_stdout(ColorChoice::Never).width {
        Some(width) => print_line(&folded(text, width)),
        None => print_line(text),
    }
}

/// As [`print()`], with a newline.
pub fn print_line(line: &str) -> Result {
    let line = format!("{}\n", escaped(line, &[]));
    is_read(write(line.as_bytes()), ". The command itself succeeded").map(drop)
}

/// Prints a part of an output without an end, which may have colours. Returns false if its reader has closed the pipe.
pub fn print_part(text: &str) -> Result<bool> {
    is_read(write(escaped(text, &STYLES).as_bytes()), "")
}

/// Prints a text that ends with a newline. A closed pipe is not an error: `| head` reads only what it needs.
pub fn print(text: &str) -> Result {
    print_part(text).map(drop)
}

/// Prints bytes as they are, which must not go to a terminal: the answer to a request of the user's own.
pub fn print_bytes(bytes: &[u8]) -> Result {
    is_read(write(bytes), "").map(drop)
}

// Not `println!`, which panics when the pipe is closed.
fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// False if the reader has closed the pipe.
fn is_read(written: io::Result<()>, consequence: &str) -> Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(|error| write_failed(consequence, &error)),
    }
}

fn write_failed(consequence: &str, error: &io::Error) -> CliError {
    failed(format!("cannot write to standard output: {error}{consequence}"))
}

/// What an empty list says, by the field of the answer that has its items.
const ADVICE: [(&str, &str); 9] = [
    (
        "cues",
        "No cues yet. Add one: cued cue add --name hello --cron '* * * * *' --url http://localhost:9000/",
    ),
    ("executions", "No runs yet. Run a cue now: cued cue fire CUE"),
    ("attempts", "No attempts yet."),
    ("missed", "No run was missed."),
    ("workers", "No workers yet. Start one: cued work --task TASK -- COMMAND"),
    ("flows", "No flows yet. `cued cue add` makes one with --parallelism or --per-minute."),
    ("alerts", "No alerts."),
    ("channels", "No channels yet. Add one: cued channel add --help"),
    ("sessions", "No browser is signed in. Open the page: cued open"),
];

#[derive(Debug, Default)]
pub struct List {
    /// The field of the answer that has the items.
    key: &'static str,
    pub items: Vec<Value>,
    /// Of the whole list, if the server counts.
    pub total: Option<u64>,
    pub has_more: bool,
    /// Flags select some of its items.
    pub is_filtered: bool,
    /// A flag says how many of its items are wanted.
    pub is_limited: bool,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl List {
    pub fn empty(key: &'static str) -> Self {
        Self { key, has_more: true, ..Self::default() }
    }

    /// A whole list that no single answer has.
    pub fn of(key: &'static str, items: Vec<Value>) -> Self {
        Self { key, items, ..Self::default() }
    }

    pub fn from_response(answer: &ApiResponse, key: &'static str) -> Result<Self> {
        let mut list = Self::empty(key);
        list.append(answer)?;
        Ok(list)
    }

    /// Adds the items of a page, and returns the cursor of the next one, if the list has cursors.
    pub fn append(&mut self, answer: &ApiResponse) -> Result<Option<String>> {
        let mut page = answer.value()?;
        self.single = self.items.is_empty().then(|| answer.text());
        if let Value::Array(items) = page[self.key].take() {
            self.items.extend(items);
        }
        self.total = page["total"].as_u64();
        self.has_more = page["has_more"] == true;
        Ok(page["next_cursor"].as_str().map(str::to_owned))
    }

    /// What to do next if the list is empty.
    fn advice(&self) -> &'static str {
        if self.is_filtered {
            return "Nothing matches these flags.";
        }
        let advice = ADVICE.iter().find(|(key, _)| *key == self.key);
        advice.map_or("There are none.", |(_, advice)| advice)
    }

    /// The answer of the server unchanged; of several pages an object with all items.
    pub fn json(&self) -> String {
        let all = || {
            let mut all = json!({ self.key: self.items, "has_more": self.has_more });
            if let Some(total) = self.total {
                all["total"] = total.into();
            }
            all.to_string()
        };
        self.single.clone().unwrap_or_else(all)
    }
}
