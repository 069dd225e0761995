//! Fields of runs and attempts as cells.

use serde_json::Value;

use crate::cli::output::cells::{last_line, text_of};
use crate::cli::output::times::duration;

/// The result in a word or two: the status that the receiver returned, else the cause of the failure, else its message.
pub fn result_of(object: &Value) -> String {
    let fields = ["http_status", "cause", "error_message"];
    let text = fields.iter().map(|field| text_of(object, field)).find(|text| !text.is_empty());
    last_line(&text.unwrap_or_default())
}

/// A field in milliseconds as a duration; empty if it is null.
pub fn duration_of(object: &Value, field: &str) -> String {
    object[field].as_i64().map(duration).unwrap_or_default()
}

/// Attempts so far, of those that the cue allows.
pub fn attempts_of(run: &Value) -> String {
    format!("{}/{}", text_of(run, "attempts"), text_of(run, "max_attempts"))
}

/// JSON for people: an object or list on several lines.
pub fn pretty(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    }
}
