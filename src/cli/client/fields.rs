//! Fields of the API's JSON as columns of a table and as lines of details.

use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::table::{Cell, Column, Table};
use crate::cli::output::times::duration;

/// A title and the cells below it.
pub type Columns = &'static [(&'static str, Form, Shown)];

/// A title and the value beside it.
pub type Lines = &'static [(&'static str, Form)];

/// How a cell is made of an object. The text is the name of a field; a dot leads into an object inside.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Text(&'static str),
    Status(&'static str),
    /// An instant in full.
    Time(&'static str),
    /// An instant that is short unless the form is wide.
    ShortTime(&'static str),
    /// A number of milliseconds.
    Millis(&'static str),
    /// JSON, an object on several lines.
    Json(&'static str),
    /// A list of texts.
    List(&'static str),
    /// A text with the fields whose names are in braces.
    Template(&'static str),
    Cell(fn(&Context, &Value) -> Cell),
}

/// When a column is shown, and whether it may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Always,
    /// Free text, which may be shortened.
    Shortened,
    /// In the wide form only.
    Wide,
    /// In the wide form, or if a row has a value.
    WithValue,
}

impl Form {
    fn cell(self, context: &Context, object: &Value) -> Cell {
        match self {
            Self::Text(name) => text_of(object, name).into(),
            Self::Status(name) => status(&text_of(object, name)),
            Self::Time(name) => context.output.times.instant(&text_of(object, name)).into(),
            Self::ShortTime(name) => context.output.column_time(&text_of(object, name)).into(),
            Self::Millis(name) => text_of(object, name).parse().map(duration).unwrap_or_default().into(),
            Self::Json(name) => match name.split('.').fold(object, |value, name| &value[name]) {
                value @ (Value::Object(_) | Value::Array(_)) => format!("{value:#}").into(),
                _ => text_of(object, name).into(),
            },
            Self::List(name) => {
                let texts = object[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(", ").into()
            }
            Self::Template(text) => fill(text, |name| text_of(object, name)).trim().into(),
            Self::Cell(cell) => cell(context, object),
        }
    }
}

/// A text with values in the places of the names in braces.
pub fn fill(text: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (name, rest) in parts.filter_map(|part| part.split_once('}')) {
        filled.push_str(&value(name));
        filled.push_str(rest);
    }
    filled
}

pub fn table(columns: Columns, context: &Context, objects: &[Value]) -> Table {
    let row = |object: &Value| columns.iter().map(|(_, form, _)| form.cell(context, object)).collect();
    let rows: Vec<Vec<Cell>> = objects.iter().map(row).collect();
    let column = |(index, (title, _, shown)): (usize, &(&'static str, Form, Shown))| match shown {
        Shown::Shortened => Column::new(title).text(),
        Shown::Wide => Column::new(title).wide(),
        Shown::WithValue if rows.iter().all(|row| row[index].text.is_empty()) => Column::new(title).wide(),
        Shown::Always | Shown::WithValue => Column::new(title),
    };
    Table { columns: columns.iter().enumerate().map(column).collect(), rows }
}

pub fn details(lines: Lines, context: &Context, object: &Value) -> Vec<(&'static str, Cell)> {
    lines.iter().map(|(title, form)| (*title, form.cell(context, object))).collect()
}
