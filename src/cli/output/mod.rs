//! The output of commands: tables, details, JSON, YAML, ids; times, colours.
//!
//! Standard output has the result and nothing else; [`Output::note`] is for the rest.

pub mod table;
pub mod yaml;

use std::io::{self, Write as _};

use clap::{ColorChoice, ValueEnum};
use serde_json::{Value, json};

use crate::cli::error::{CliError, cannot, failed};
use crate::cli::output::table::{Cell, ColumnRule, Styles, Table, Times, details, text_of};
use crate::cli::printable::{print_error, printable};
use crate::client::request::ApiResponse;
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

    /// An instant in a table: short, so that ids fit beside it, and in full in the wide form.
    pub fn column_time(&self, instant: &str) -> String {
        if self.is_wide() { self.times.instant(instant) } else { self.times.short(instant) }
    }

    /// Prints an object. `details` has its lines as a table, of a name and a value each.
    pub fn object<F>(&self, answer: &ApiResponse, id: &str, lines: F) -> Result<(), CliError>
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
    pub fn list<F>(&self, list: &List, id: &str, table: F) -> Result<(), CliError>
    where
        F: FnOnce(&[Value]) -> Table,
    {
        match self.format {
            Format::Json => print_line(list.json().trim_end_matches('\n')),
            Format::Jsonl => print(&list.items.iter().map(|item| format!("{item}\n")).collect::<String>()),
            Format::Yaml => print(&yaml::document(&list.json())?),
            Format::Id => {
                let line = |item: &Value| format!("{}\n", printable(&text_of(item, id)));
                print(&list.items.iter().map(line).collect::<String>())
            }
            Format::Table | Format::Wide => {
                print(&table(&list.items).render(self.is_wide(), &self.styles))?;
                match list.total {
                    Some(total) if total > list.items.len() as u64 => {
                        self.note(&format!("{} of {total}; --all shows the rest", list.items.len()))
                    }
                    None if list.has_more => self.note("there are more"),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Prints the result of a change: a sentence for people, the answer for programs.
    pub fn done<F>(&self, answer: &ApiResponse, id: &str, sentence: F) -> Result<(), CliError>
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

    pub fn note(&self, text: &str) -> Result<(), CliError> {
        print_error(&format!("{text}\n")).map_err(|error| cannot("write to standard error", error))
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

/// Formats a count with its noun: `1 cue`, `2 cues`.
pub fn count(number: impl Into<i128>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

pub fn print_table<const N: usize>(
    titles: [&'static str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), CliError> {
    let columns = titles.map(|title| (title, ColumnRule::Always)).to_vec();
    let rows = rows.into_iter().map(|row| row.map(Cell::from).to_vec()).collect();
    print(&Table { columns, rows }.render(true, &Styles { has_colour: false, width: None }))
}

/// Prints lines of a name and a value, one of them a new API key.
/// Errors: if standard output cannot be written, or its reader has closed the pipe: the key is then lost.
pub fn print_new_key(lines: &[(&str, &str)]) -> Result<(), CliError> {
    let text: String =
        lines.iter().map(|(name, value)| format!("{name:7}  {}\n", printable(value))).collect();
    let consequence = ". The new API key is lost: revoke it and create another with `cued key add`";
    write(escaped(&text, &[]).as_bytes()).map_err(|error| write_failed(consequence, &error))?;
    eprintln!("Save the key now: it is not shown again.");
    Ok(())
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

#[derive(Debug)]
pub struct List {
    /// The field of the answer that has the items.
    key: &'static str,
    pub items: Vec<Value>,
    /// Of the whole list, if the server counts.
    pub total: Option<u64>,
    pub has_more: bool,
    /// The only answer, unchanged.
    single: Option<String>,
}

impl List {
    pub fn empty(key: &'static str) -> Self {
        Self { key, items: Vec::new(), total: None, has_more: true, single: None }
    }

    pub fn from_response(answer: &ApiResponse, key: &'static str) -> Result<Self, CliError> {
        let mut list = Self::empty(key);
        list.append(answer)?;
        Ok(list)
    }

    /// Adds the items of a page, and returns the cursor of the next one, if the list has cursors.
    pub fn append(&mut self, answer: &ApiResponse) -> Result<Option<String>, CliError> {
        let mut page = answer.value()?;
        self.single = self.items.is_empty().then(|| answer.text());
        if let Value::Array(items) = page[self.key].take() {
            self.items.extend(items);
        }
        self.total = page["total"].as_u64();
        self.has_more = page["has_more"] == true;
        Ok(page["next_cursor"].as_str().map(str::to_owned))
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
