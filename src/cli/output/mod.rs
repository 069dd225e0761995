//! The output of commands: tables, details, JSON, YAML, ids; times, colours.
//!
//! Standard output has the result and nothing else; [`Output::note`] is for the rest.

pub mod table;
pub mod yaml;

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::error::{CliError, cannot, failed};
use crate::cli::output::table::{Cell, Shown, Styles, Table, Times, details, text_of};
use crate::cli::printable::{print_error, printable};
use crate::client::request::{Answer, ClientError};
use crate::domain::text::{STYLES, escaped};

/// The form of a command's output.
#[derive(Debug, Clone)]
pub struct Output {
    pub format: Format,
    pub styles: Styles,
    pub times: Times,
}

impl Output {
    pub fn new(format: Format, color: ColorWhen, times: Times) -> Self {
        Self { format, styles: Styles::of_stdout(color), times }
    }

    pub fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    /// An instant in a table: short, so that ids fit beside it, and in full in the wide form.
    pub fn column_time(&self, rfc3339: &str) -> String {
        if self.is_wide() { self.times.instant(rfc3339) } else { self.times.short(rfc3339) }
    }

    /// Prints an object. `details` has its lines as a table, of a name and a value each.
    pub fn object<F>(&self, answer: &Answer, id: &str, lines: F) -> Result<(), CliError>
    where
        F: FnOnce(&Value) -> Vec<(&'static str, Cell)>,
    {
        let value = answer.value()?;
        match self.format {
            Format::Json | Format::Jsonl => print_json(&answer.text()),
            Format::Yaml => print(&yaml::document(&answer.text())?),
            Format::Id => print_line(&printable(&text_of(&value, id))),
            Format::Table | Format::Wide => print(&details(&lines(&value), &self.styles)),
        }
    }

    /// Prints a list. `table` makes the table of its items.
    pub fn list<F>(&self, list: &List, id: &str, table: F) -> Result<(), CliError>
    where
        F: FnOnce(&[Value]) -> Table,
    {
        match self.format {
            Format::Json => print_json(&list.json()),
            Format::Jsonl => {
                print(&list.items.iter().map(|item| format!("{}\n", item.get())).collect::<String>())
            }
            Format::Yaml => print(&yaml::document(&list.json())?),
            Format::Id => {
                let line = |item: &Value| format!("{}\n", printable(&text_of(item, id)));
                print(&list.values()?.iter().map(line).collect::<String>())
            }
            Format::Table | Format::Wide => {
                print(&table(&list.values()?).render(self.is_wide(), &self.styles))?;
                self.note_rest(list)
            }
        }
    }

    /// Prints the result of a change: a sentence for people, the answer for programs.
    pub fn done<F>(&self, answer: &Answer, id: &str, sentence: F) -> Result<(), CliError>
    where
        F: FnOnce(&Value) -> String,
    {
        match self.format {
            Format::Table | Format::Wide => {
                let value = if answer.body.is_empty() { Value::Null } else { answer.value()? };
                print_line(&sentence(&value))
            }
            // A removal has no content.
            _ if answer.body.is_empty() => Ok(()),
            _ => self.object(answer, id, |_| Vec::new()),
        }
    }

    fn note_rest(&self, list: &List) -> Result<(), CliError> {
        match list.total {
            Some(total) if total > list.items.len() as u64 => {
                self.note(&format!("{} of {total}; --all shows the rest", list.items.len()))
            }
            None if list.has_more => self.note("there are more"),
            _ => Ok(()),
        }
    }

    /// Prints what is not the result to standard error.
    pub fn note(&self, text: &str) -> Result<(), CliError> {
        print_error(&format!("{text}\n")).map_err(|error| cannot("write to standard error", error))
    }
}

fn print_json(text: &str) -> Result<(), CliError> {
    print_line(text.trim_end_matches('\n'))
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
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

/// Formats a count with its noun: `1 cue`, `2 cues`.
pub fn count(number: impl Into<i128>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Reports the cues that a change of plan paused, if any.
pub fn print_paused(paused: usize) -> Result<(), CliError> {
    match paused {
        0 => Ok(()),
        1 => print_line("paused 1 active cue, the newest: the plan allows fewer"),
        _ => print_line(&format!("paused the {paused} newest active cues: the plan allows fewer")),
    }
}

/// Prints rows under their titles.
pub fn print_table<const N: usize>(
    titles: [&'static str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), CliError> {
    let columns = titles.map(|title| (title, Shown::Always)).to_vec();
    let rows = rows.into_iter().map(|row| row.map(Cell::from).to_vec()).collect();
    print(&Table { columns, rows }.render(true, &Styles { has_colour: false, width: None }))
}

/// Prints lines of a name and a value, one of them a new API key.
/// Errors: if standard output cannot be written, or its reader has closed the pipe: the key is then lost.
pub fn print_fields(lines: &[(&str, &str)]) -> Result<(), CliError> {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let consequence = ". The new API key is lost: revoke it and create another with `cued key add`";
    write(escaped(&text, &[]).as_bytes()).map_err(|error| write_failed(consequence, &error))
}

/// As [`print()`], with a newline.
pub fn print_line(line: &str) -> Result<(), CliError> {
    let line = format!("{}\n", escaped(line, &[]));
    is_read(write(line.as_bytes()), ". The command itself succeeded").map(drop)
}

/// Prints a part of an output without an end, which may have colours. Returns false if its reader has closed the pipe.
pub fn print_part(text: &str) -> Result<bool, CliError> {
    is_read(write(escaped(text, &STYLES).as_bytes()), "")
}

/// Prints a text that ends with a newline. A closed pipe is not an error: `| head` reads only what it needs.
pub fn print(text: &str) -> Result<(), CliError> {
    print_part(text).map(drop)
}

/// Prints bytes as they are, which must not go to a terminal: the answer to a request of the user's own.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    is_read(write(bytes), "").map(drop)
}

// Not `println!`, which panics when the pipe is closed.
fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// False if the reader has closed the pipe.
fn is_read(written: io::Result<()>, consequence: &str) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).map_err(|error| write_failed(consequence, &error)),
    }
}

fn write_failed(consequence: &str, error: &io::Error) -> CliError {
    failed(format!("cannot write to standard output: {error}{consequence}"))
}

/// A list, or its beginning.
#[derive(Debug)]
pub struct List {
    /// The field of the answer that has the items.
    key: &'static str,
    pub items: Vec<Box<RawValue>>,
    /// Of the whole list, if the server counts.
    pub total: Option<u64>,
    pub has_more: bool,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl List {
    /// A list without answers yet. `key` is the field of the answers that has the items.
    pub fn empty(key: &'static str) -> Self {
        Self { key, items: Vec::new(), total: None, has_more: true, single: None }
    }

    /// The list of one answer that has no pages.
    pub fn of(answer: &Answer, key: &'static str) -> Result<Self, CliError> {
        let mut list = Self::empty(key);
        list.append(answer)?;
        Ok(list)
    }

    /// Adds the items of a page, and returns the cursor of the next one, if the list has cursors.
    pub fn append(&mut self, answer: &Answer) -> Result<Option<String>, CliError> {
        let mut page: serde_json::Map<String, Value> = answer.read()?;
        let fields: std::collections::BTreeMap<String, &RawValue> =
            serde_json::from_slice(&answer.body).map_err(ClientError::UnexpectedAnswer)?;
        let items = fields.get(self.key).map_or("[]", |items| items.get());
        let items: Vec<Box<RawValue>> = serde_json::from_str(items).map_err(ClientError::UnexpectedAnswer)?;
        self.single = self.items.is_empty().then(|| answer.text());
        self.items.extend(items);
        self.total = page.get("total").and_then(Value::as_u64);
        self.has_more = page.get("has_more").and_then(Value::as_bool).unwrap_or(false);
        Ok(match page.remove("next_cursor") {
            Some(Value::String(cursor)) => Some(cursor),
            _ => None,
        })
    }

    pub fn values(&self) -> Result<Vec<Value>, CliError> {
        let value = |item: &RawValue| serde_json::from_str(item.get());
        Ok(self
            .items
            .iter()
            .map(|item| value(item))
            .collect::<Result<_, _>>()
            .map_err(ClientError::UnexpectedAnswer)?)
    }

    /// The answer of the server unchanged; of several pages an object with all items.
    pub fn json(&self) -> String {
        if let Some(single) = &self.single {
            return single.clone();
        }
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let total = self.total.map(|total| format!(",\"total\":{total}")).unwrap_or_default();
        format!("{{\"{}\":[{}]{total},\"has_more\":{}}}", self.key, items.join(","), self.has_more)
    }
}
