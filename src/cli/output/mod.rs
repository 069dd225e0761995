//! The output of commands: tables, details, JSON, YAML, ids; times, colours.
//!
//! Standard output has the result and nothing else; [`Output::note`] is for the rest.

pub mod cells;
pub mod format;
pub mod list;
pub mod print;
pub mod style;
pub mod table;
pub mod times;
pub mod yaml;

use serde_json::Value;

use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::{ColorWhen, Format};
use crate::cli::output::list::List;
use crate::cli::output::print::{print, print_line};
use crate::cli::output::style::Styles;
use crate::cli::output::table::{Cell, Table, details};
use crate::cli::output::times::Times;
use crate::cli::printable::{print_error, printable};
use crate::client::request::Answer;

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
        print_error(&format!("{text}\n"))
            .map_err(|error| CliError::Failed(format!("cannot write to standard error: {error}")))
    }
}

fn print_json(text: &str) -> Result<(), CliError> {
    print_line(text.trim_end_matches('\n'))
}
