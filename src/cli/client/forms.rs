//! How an answer is shown: the columns of a table, the lines of an object, and the form of each cell.

use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::client::words::in_words;
use crate::cli::output::table::{
    Cell, ColumnRule, Style, Table, duration, relative, status, text_of,
};
use crate::cli::progress::size;
use crate::domain::account::plan::{NO_LIMIT, bytes_or_max};

pub type Columns = &'static [(&'static str, Form, ColumnRule)];

pub type Lines = &'static [(&'static str, Form)];

/// How a cell is made of an object. The text is the name of a field; a dot leads into an object inside.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Text(&'static str),
    Status(&'static str),
    /// A text that a person should notice.
    Warning(&'static str),
    /// The id of a cue or a run.
    Id(&'static str),
    /// The text that is made of the object.
    Of(fn(&Value) -> String),
    /// A text for this output or this server.
    Shown(fn(&Context, &Value) -> String),
    /// A used amount, its limit, and their unit.
    Quota(&'static str, &'static str, &'static str),
    /// A number that is of interest if it is not 0.
    Count(&'static str),
    /// An instant, which a table shows by its distance from now if a person reads it.
    Time(&'static str),
    /// An instant that needs its seconds.
    ExactTime(&'static str),
    Millis(&'static str),
    Bytes(&'static str),
    /// JSON, an object on several lines.
    Json(&'static str),
    /// A word of the API, as a person reads it.
    Words(&'static str),
    List(&'static str),
    /// A text with the fields whose names are in braces, each in the form that it names after a colon. It is empty without
    /// its first field.
    Template(&'static str),
    Cell(fn(&Context, &Value) -> Cell),
}

impl Form {
    fn cell(self, context: &Context, object: &Value) -> Cell {
        match self {
            Self::Status(name) => status(&text_of(object, name)),
            Self::Warning(name) => Cell::new(text_of(object, name), Style::Warning),
            Self::Count(name) if context.output.is_short() && object[name] == 0 => Cell::default(),
            Self::Text(name) | Self::Count(name) => text_of(object, name).into(),
            Self::Words(name) => in_words(&text_of(object, name)).into(),
            Self::Id(name) => context.output.id(&text_of(object, name)).into(),
            Self::Time(name) if context.output.is_short() => {
                relative(&text_of(object, name), context.client.server_time()).into()
            }
            Self::Time(name) | Self::ExactTime(name) => {
                context.output.times.instant(&text_of(object, name)).into()
            }
            Self::Millis(name) => {
                let millis = text_of(object, name).parse::<f64>().ok();
                millis.map(|millis| duration(millis.round() as i64)).unwrap_or_default().into()
            }
            Self::Bytes(name) => text_of(object, name).parse().map(size).unwrap_or_default().into(),
            Self::Json(name) => match name.split('.').fold(object, |value, name| &value[name]) {
                value @ (Value::Object(_) | Value::Array(_)) => format!("{value:#}").into(),
                _ => text_of(object, name).into(),
            },
            Self::List(name) => {
                let texts = object[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(", ").into()
            }
            Self::Template(text) => filled(text, context, object).into(),
            Self::Quota(used, limit, unit) => quota(object, used, limit, unit),
            Self::Of(text) => text(object).into(),
            Self::Shown(text) => text(context, object).into(),
            Self::Cell(cell) => cell(context, object),
        }
    }
}

/// A used amount and its limit: `3 of 10 active`. It has a colour from four fifths of the limit.
pub fn quota(usage: &Value, used: &str, limit: &str, unit: &str) -> Cell {
    let number = |field: &str| text_of(usage, field).parse::<u64>().ok();
    let is_bytes = limit.ends_with("_bytes");
    let show = |number| if is_bytes { size(number) } else { number.to_string() };
    let no_limit = if is_bytes {
        u64::try_from(bytes_or_max(None)).unwrap_or(u64::MAX)
    } else {
        NO_LIMIT.into()
    };
    match (number(used), number(limit)) {
        (Some(used), Some(limit)) if limit < no_limit => {
            let style = match used {
                _ if used >= limit => Style::Bad,
                _ if used >= limit.saturating_sub(limit / 5) => Style::Warning,
                _ => Style::Plain,
            };
            Cell::new(format!("{} of {}{unit}", show(used), show(limit)), style)
        }
        (Some(used), _) => format!("{}{unit}, no limit", show(used)).into(),
        (None, _) => Cell::default(),
    }
}

/// A field by its name, in the form that stands after a colon: `started_at:at`.
pub fn field(place: &'static str, context: &Context, object: &Value) -> String {
    let form = match place.split_once(':').unwrap_or((place, "")) {
        (name, "at") => Form::ExactTime(name),
        (name, "when") => Form::Time(name),
        (name, "took") => Form::Millis(name),
        (name, "words") => Form::Words(name),
        (name, _) => Form::Text(name),
    };
    form.cell(context, object).text
}

/// A text with the fields whose names are in braces; empty without the first one.
pub fn filled(text: &'static str, context: &Context, object: &Value) -> String {
    let field = |place: &'static str| field(place, context, object);
    match text.split(['{', '}']).nth(1) {
        Some(first) if field(first).is_empty() => String::new(),
        _ => fill(text, field).trim().to_owned(),
    }
}

pub fn fill<'a>(text: &'a str, value: impl Fn(&'a str) -> String) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (name, rest) in parts.filter_map(|part| part.split_once('}')) {
        filled.push_str(&value(name));
        filled.push_str(rest);
    }
    filled
}

pub fn table(columns: Columns, context: &Context, objects: &[Value]) -> Table {
    let row =
        |object: &Value| columns.iter().map(|(_, form, _)| form.cell(context, object)).collect();
    let titles = columns.iter().map(|(title, _, shown)| (*title, *shown)).collect();
    Table { columns: titles, rows: objects.iter().map(row).collect() }
}

pub fn details(lines: Lines, context: &Context, object: &Value) -> Vec<(&'static str, Cell)> {
    let cell = |form: &Form| match *form {
        Form::Time(name) => context.exact_time(&text_of(object, name)).into(),
        form => form.cell(context, object),
    };
    lines.iter().map(|(title, form)| (*title, cell(form))).collect()
}
