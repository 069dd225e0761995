//! Instants, JSON and enums as they stand in columns, and back.

use jiff::Timestamp;
use rusqlite::types::{FromSql, Type};
use rusqlite::{Result, Row};
use serde_json::Value;

use crate::domain::cue::{ScheduleSpec, StoredSchedule};
use crate::domain::execution::RetryPolicy;
use crate::domain::schedule::CatchUp;
use crate::domain::webhook::callback::{Callback, Method};

/// An instant as its column: milliseconds since 1970.
#[must_use]
pub fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// The instant in column `name`.
///
/// # Errors
/// The column holds no instant that can be represented.
pub fn instant(row: &Row<'_>, name: &str) -> Result<Timestamp> {
    read_instant(row.get(name)?)
}

/// The instant in column `name`, or none where it is null.
///
/// # Errors
/// The column holds no instant that can be represented.
pub fn maybe_instant(row: &Row<'_>, name: &str) -> Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(name)?.map(read_instant).transpose()
}

/// An instant from milliseconds.
///
/// # Errors
/// Outside the years that can be represented (−9999 to 9999).
pub fn read_instant(millis: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(millis).map_err(|error| broken(&error.to_string()))
}

/// The JSON document in column `name`.
///
/// # Errors
/// The column holds no JSON.
pub fn json(row: &Row<'_>, name: &str) -> Result<Value> {
    read_json(row.get_ref(name)?.as_str()?)
}

/// The JSON document in column `name`, or none where it is null.
///
/// # Errors
/// The column holds no JSON.
pub fn maybe_json(row: &Row<'_>, name: &str) -> Result<Option<Value>> {
    row.get_ref(name)?.as_str_or_null()?.map(read_json).transpose()
}

/// The word in column `name`, read by `parse`.
///
/// # Errors
/// The column holds no word of the set.
pub fn word<T>(row: &Row<'_>, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    read_word(row.get_ref(name)?.as_str()?, name, parse)
}

/// The word in column `name`, read by `parse`, or none where it is null.
///
/// # Errors
/// The column holds no word of the set.
pub fn maybe_word<T>(row: &Row<'_>, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
    row.get_ref(name)?.as_str_or_null()?.map(|text| read_word(text, name, parse)).transpose()
}

fn read_word<T>(text: &str, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    parse(text).ok_or_else(|| broken(&format!("{name} holds the unknown word {text:?}")))
}

/// The columns of a row one after the other, as their statement names them. Looking each up by its name takes longer
/// than reading a row of twenty-six.
pub struct RowReader<'row, 'statement> {
    row: &'row Row<'statement>,
    next: usize,
}

impl<'row, 'statement> RowReader<'row, 'statement> {
    /// All columns of `row`.
    pub fn new(row: &'row Row<'statement>) -> Self {
        Self { row, next: 0 }
    }

    /// The next one.
    ///
    /// # Errors
    /// It holds something else.
    pub fn get<T: FromSql>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }

    /// The next one, a text.
    ///
    /// # Errors
    /// It holds no text.
    pub fn text(&mut self) -> Result<&'row str> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str()?)
    }

    /// The next one, an instant.
    ///
    /// # Errors
    /// It holds no instant that can be represented.
    pub fn instant(&mut self) -> Result<Timestamp> {
        read_instant(self.get()?)
    }

    /// The next one, an instant, or none where it is null.
    ///
    /// # Errors
    /// It holds no instant that can be represented.
    pub fn maybe_instant(&mut self) -> Result<Option<Timestamp>> {
        self.get::<Option<i64>>()?.map(read_instant).transpose()
    }

    /// The next one, a word read by `parse`.
    ///
    /// # Errors
    /// It holds no word of the set.
    pub fn word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let text = self.text()?;
        parse(text).ok_or_else(|| broken(&format!("a column holds the unknown word {text:?}")))
    }
}

/// The schedule in the columns `cron`, `at`, `timezone` and `catch_up`, which come next.
///
/// # Errors
/// When the columns hold what this program never writes.
pub fn read_schedule(columns: &mut RowReader<'_, '_>) -> Result<StoredSchedule> {
    let when = match (columns.get::<Option<String>>()?, columns.get::<Option<i64>>()?) {
        (Some(cron), None) => ScheduleSpec::Recurring(cron),
        (None, Some(at)) => ScheduleSpec::Once(read_instant(at)?),
        _ => return Err(broken("a cue has neither a cron line nor an instant, or both")),
    };
    Ok(StoredSchedule { when, timezone: columns.get()?, catch_up: columns.word(CatchUp::parse)? })
}

/// A callback of what its columns hold.
///
/// # Errors
/// When they hold what this program never writes.
pub(in crate::store) fn callback(url: String, method: &str, headers: &str) -> Result<Callback> {
    let method = Method::parse(method).ok_or_else(|| broken(&format!("callback_method holds {method:?}")))?;
    let headers = serde_json::from_str(headers).map_err(|error| broken(&error.to_string()))?;
    Ok(Callback { url, method, headers })
}

/// A retry policy of what its columns hold.
///
/// # Errors
/// When they hold what this program never writes.
pub(in crate::store) fn retry(max_attempts: u32, backoff_minutes: &str) -> Result<RetryPolicy> {
    let backoff_minutes =
        serde_json::from_str(backoff_minutes).map_err(|error| broken(&error.to_string()))?;
    Ok(RetryPolicy { max_attempts, backoff_minutes })
}

fn read_json(text: &str) -> Result<Value> {
    // Not serde_json: it would turn an object that looks like its private form of a number into one.
    crate::domain::json::read(text.as_bytes()).map_err(|error| broken(&error.to_string()))
}

/// An error for a column that holds what this program never writes.
#[must_use]
pub fn broken(what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, what.to_owned().into())
}
