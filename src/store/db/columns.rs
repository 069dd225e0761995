//! Conversion of instants, JSON and enums to and from columns.
//!
//! Each read returns an error if the column holds a value that this program never writes.

use jiff::Timestamp;
use rusqlite::types::{FromSql, Type};
use rusqlite::{Result, Row};
use serde_json::Value;

use crate::domain::cue::{ScheduleSpec, StoredSchedule};
use crate::domain::execution::RetryPolicy;
use crate::domain::json::{self, JsonText};
use crate::domain::schedule::CatchUp;
use crate::domain::webhook::callback::{Callback, Method};

/// The stored form of an instant: milliseconds since 1970.
pub fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub fn instant(row: &Row<'_>, name: &str) -> Result<Timestamp> {
    read_instant(row.get(name)?)
}

/// The instant in column `name`, or `None` if it is null.
pub fn maybe_instant(row: &Row<'_>, name: &str) -> Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(name)?.map(read_instant).transpose()
}

/// The instant that `millis` stands for.
/// Errors: outside the years −9999 to 9999.
pub fn read_instant(millis: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(millis).map_err(|error| invalid_column(&error.to_string()))
}

/// The small JSON document of this program in column `name`, as a tree.
pub fn json(row: &Row<'_>, name: &str) -> Result<Value> {
    // Not serde_json: it parses an object with its private key for numbers as a number.
    let text = json::read(row.get_ref(name)?.as_str()?.as_bytes());
    text.map(|text| text.get().to_value()).map_err(|error| invalid_column(&error.to_string()))
}

/// The JSON text in column `name`, or `None` if it is null. Nothing parses it again.
pub fn maybe_json(row: &Row<'_>, name: &str) -> Result<Option<JsonText>> {
    Ok(row.get::<_, Option<String>>(name)?.map(JsonText::stored))
}

/// The enum value in column `name`. `parse` returns `None` for a word that is not in the enum, which is an error here.
pub fn parse_word<T>(row: &Row<'_>, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    read_word(row.get_ref(name)?.as_str()?, name, parse)
}

/// As [`parse_word`], or `None` if the column is null.
pub fn parse_maybe_word<T>(
    row: &Row<'_>,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    row.get_ref(name)?.as_str_or_null()?.map(|text| read_word(text, name, parse)).transpose()
}

fn read_word<T>(text: &str, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    parse(text).ok_or_else(|| invalid_column(&format!("column {name} has the unknown value {text:?}")))
}

/// Reads the columns of a row in the order of the SELECT. For a row of 26 columns, finding each by name takes longer
/// than reading the values.
pub struct RowReader<'row, 'statement> {
    row: &'row Row<'statement>,
    next: usize,
}

impl<'row, 'statement> RowReader<'row, 'statement> {
    pub fn new(row: &'row Row<'statement>) -> Self {
        Self { row, next: 0 }
    }

    /// Reads the next column.
    pub fn get<T: FromSql>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    /// Reads the next column, a text, without copying it.
    pub fn text(&mut self) -> Result<&'row str> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str()?)
    }

    /// Reads the next column, an instant.
    pub fn instant(&mut self) -> Result<Timestamp> {
        read_instant(self.get()?)
    }

    /// Reads the next column, an instant or null.
    pub fn maybe_instant(&mut self) -> Result<Option<Timestamp>> {
        self.get::<Option<i64>>()?.map(read_instant).transpose()
    }

    /// Reads the next column, an enum value, as [`parse_word`] does.
    pub fn parse_word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let text = self.text()?;
        parse(text).ok_or_else(|| {
            invalid_column(&format!("column {} has the unknown value {text:?}", self.next - 1))
        })
    }
}

/// The schedule in the next columns, which must be `cron`, `at`, `timezone` and `catch_up`.
pub fn read_schedule(columns: &mut RowReader<'_, '_>) -> Result<StoredSchedule> {
    let when = match (columns.get::<Option<String>>()?, columns.get::<Option<i64>>()?) {
        (Some(cron), None) => ScheduleSpec::Recurring(cron),
        (None, Some(at)) => ScheduleSpec::Once(read_instant(at)?),
        _ => return Err(invalid_column("a cue must have either `cron` or `at`")),
    };
    Ok(StoredSchedule { when, timezone: columns.get()?, catch_up: columns.parse_word(CatchUp::parse)? })
}

pub(in crate::store) fn parse_callback(
    url: String,
    method: &str,
    headers: &str,
    outcome_from_response: bool,
) -> Result<Callback> {
    let method = Method::parse(method)
        .ok_or_else(|| invalid_column(&format!("column callback_method has the unknown value {method:?}")))?;
    let headers = serde_json::from_str(headers).map_err(|error| invalid_column(&error.to_string()))?;
    Ok(Callback { url, method, headers, outcome_from_response })
}

pub(in crate::store) fn parse_retry_policy(max_attempts: u32, backoff_minutes: &str) -> Result<RetryPolicy> {
    let backoff_minutes =
        serde_json::from_str(backoff_minutes).map_err(|error| invalid_column(&error.to_string()))?;
    Ok(RetryPolicy { max_attempts, backoff_minutes })
}

/// The error for a column with a value that this program never writes.
pub fn invalid_column(message: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, message.to_owned().into())
}
