//! Fields of the API's JSON as cells.

use serde_json::Value;

use crate::cli::output::style::Style;
use crate::cli::output::table::Cell;

/// A field as text; empty if it is absent or null. A dot leads into an object: `callback.url`.
#[must_use]
pub fn text_of(object: &Value, field: &str) -> String {
    let value = field.split('.').fold(object, |value, name| &value[name]);
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A status of a cue, an execution, an attempt or a worker, in its colour.
#[must_use]
pub fn status(word: &str) -> Cell {
    let style = match word {
        "success" | "active" | "completed" | "healthy" | "ok" | "alive" => Style::Good,
        "failed" | "missed" | "dead" | "unhealthy" => Style::Bad,
        "retrying" | "paused" | "stale" | "degraded" | "warning" | "waiting" => Style::Warning,
        _ => Style::Plain,
    };
    Cell::new(word, style)
}
