//! Fields of the API's JSON as cells.

use serde_json::Value;

use crate::cli::output::style::Style;
use crate::cli::output::table::Cell;
use crate::domain::account::plan::NO_LIMIT;

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

/// A status of a cue, an execution, an attempt or a worker, in its colour.
pub fn status(word: &str) -> Cell {
    let style = match word {
        "success" | "active" | "completed" | "healthy" | "ok" | "alive" => Style::Good,
        "failed" | "missed" | "dead" | "unhealthy" => Style::Bad,
        "retrying" | "paused" | "stale" | "degraded" | "warning" | "waiting" => Style::Warning,
        _ => Style::Plain,
    };
    Cell::new(word, style)
}

/// A used amount and its limit: `3 of 10 active`. It has a colour when little or nothing is left.
pub fn quota(object: &Value, used: &str, limit: &str, unit: &str) -> Cell {
    let number = |field: &str| text_of(object, field).parse::<u64>().ok();
    match (number(used), number(limit)) {
        (Some(used), Some(limit)) if limit < u64::from(NO_LIMIT) => {
            Cell::new(format!("{used} of {limit}{unit}"), of_limit(used, limit))
        }
        (Some(used), _) => format!("{used}{unit}, no limit").into(),
        (None, _) => Cell::default(),
    }
}

/// The style of a used amount: bad at the limit, a warning from four fifths of it.
pub fn of_limit(used: u64, limit: u64) -> Style {
    match used {
        _ if used >= limit => Style::Bad,
        _ if used >= limit.saturating_sub(limit / 5) => Style::Warning,
        _ => Style::Plain,
    }
}

/// The last line of a text with any words, which names the reason: a message ends with it. Cut in its beginning if it is
/// long.
pub fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let length = line.chars().count();
    if length <= MAX_LINE {
        return line.to_owned();
    }
    std::iter::once('…').chain(line.chars().skip(length - MAX_LINE + 1)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_has_a_colour_when_little_is_left() {
        let of = |used: u32, limit: u32| quota(&json!({"u": used, "l": limit}), "u", "l", " active");
        assert_eq!(of(7, 10), Cell::from("7 of 10 active"));
        assert_eq!(of(8, 10), Cell::new("8 of 10 active", Style::Warning));
        assert_eq!(of(10, 10), Cell::new("10 of 10 active", Style::Bad));
        assert_eq!(of(8, NO_LIMIT), Cell::from("8 active, no limit"));
        assert_eq!(quota(&json!({}), "u", "l", ""), Cell::default());
    }
}
