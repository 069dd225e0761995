//! Rows: how columns become values and structs, always by position. A value that this program never writes is an error.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use rusqlite::types::{
    FromSql, FromSqlResult, Null, ToSqlOutput, Type, Value as SqlValue, ValueRef,
};
use rusqlite::{Result, Row, Statement, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::account::device_login::LoginState;
use crate::domain::account::session::SignInMethod;
use crate::domain::billing::{Offer, RequestStatus, SubscriptionState};
use crate::domain::channel::{ChannelType, Repeat};
use crate::domain::cue::slug::Slug;
use crate::domain::cue::tags::Tags;
use crate::domain::cue::{CueStatus, ScheduleSpec, StoredSchedule, Transport};
use crate::domain::cue_fields::{Overlap, Policies, plain_fields};
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::outcome::{OutcomeState, VerificationMode};
use crate::domain::execution::{ExecutionStatus, RetryPolicy, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::json::{self, JsonText};
use crate::domain::notification::NotificationKind;
use crate::domain::notification::alert::AlertType;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::schedule::{Bounds, CatchUp};
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::flow::Flow;

/// A value in the next columns of a row: a plain value has one, a struct or a tuple several.
pub trait FromRow: Sized {
    /// The number of columns, for a value that may be null: all of them are, or none is checked but the first.
    const WIDTH: usize = 1;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self>;
}

pub trait ToRow {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()>;
}

/// [`FromRow`] for a struct, by its fields in the order of the columns. With a name and a prefix also a macro of that
/// name with the text of the columns. A field has the column of its name, or `= "SQL"`, or `= (NAME)`: those of that macro.
macro_rules! row {
    ($($columns:ident, $prefix:literal,)? $(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $visibility:vis $field:ident: $type:ty $(= $sql:tt)?),+ $(,)?
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* $visibility $field: $type),+
        }
        $crate::store::db::columns::row!($($columns, $prefix,)? $name { $($field $(= $sql)?),+ });
    };
    ($type:ty { $($field:ident),+ $(,)? }) => {
        impl $crate::store::db::columns::FromRow for $type {
            fn read(columns: &mut $crate::store::db::columns::RowReader<'_, '_>) -> rusqlite::Result<Self> {
                Ok(Self { $($field: columns.get()?),+ })
            }
        }
    };
    ($columns:ident, $prefix:literal, $type:ty { $($field:ident $(= $sql:tt)?),+ $(,)? }) => {
        $crate::store::db::columns::column_list!($columns, $prefix, $($field $(= $sql)?),+);
        $crate::store::db::columns::row!($type { $($field),+ });
    };
}

macro_rules! column_list {
    ($columns:ident, $prefix:literal,
     $first:ident $(= $first_sql:tt)? $(, $field:ident $(= $sql:tt)?)*) => {
        macro_rules! $columns {
            () => {
                concat!(
                    $crate::store::db::columns::column!($prefix, $first $(, $first_sql)?)
                    $(, ", ", $crate::store::db::columns::column!($prefix, $field $(, $sql)?))*
                )
            };
        }
    };
}

macro_rules! column {
    ($prefix:literal, $field:ident) => {
        concat!($prefix, stringify!($field))
    };
    ($prefix:literal, $field:ident, $sql:literal) => {
        $sql
    };
    ($prefix:literal, $field:ident, ($columns:ident)) => {
        $columns!()
    };
}

pub(in crate::store) use {column, column_list, row};

/// By position: for a row of 26 columns, finding each by name takes longer than reading the values.
pub struct RowReader<'row, 'statement> {
    row: &'row Row<'statement>,
    next: usize,
}

impl<'row, 'statement> RowReader<'row, 'statement> {
    pub fn new(row: &'row Row<'statement>) -> Self {
        Self { row, next: 0 }
    }

    pub fn get<T: FromRow>(&mut self) -> Result<T> {
        T::read(self)
    }

    /// Reads the next column, a text, without copying it.
    pub fn text(&mut self) -> Result<&'row str> {
        self.maybe_text()?.ok_or_else(|| invalid_column("a text is null"))
    }

    /// As [`Self::text`], or `None` if the column is null.
    pub fn maybe_text(&mut self) -> Result<Option<&'row str>> {
        self.next += 1;
        Ok(self.row.get_ref(self.next - 1)?.as_str_or_null()?)
    }

    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_str(self.text()?).map_err(|error| invalid_column(&error.to_string()))
    }

    /// As [`Self::json`], of a column that has the same value in most rows.
    pub fn json_or_usual<T: DeserializeOwned + Clone>(&mut self, usual: &Usual<T>) -> Result<T> {
        if self.row.get_ref(self.next)?.as_str_or_null()? == Some(usual.text.as_str()) {
            self.next += 1;
            return Ok(usual.value.clone());
        }
        self.json()
    }

    fn plain<T: FromSql>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1)
    }
}

/// A value with its JSON, as a row has it: to compare that is much faster than to parse it.
pub struct Usual<T> {
    text: String,
    value: T,
}

impl<T: Serialize> Usual<T> {
    pub fn new(value: T) -> Self {
        // Without a text no row has it, and each is parsed.
        Self { text: serde_json::to_string(&value).unwrap_or_default(), value }
    }
}

static USUAL_BACKOFF: LazyLock<Usual<Vec<f64>>> =
    LazyLock::new(|| Usual::new(RetryPolicy::default().backoff_minutes));

static NO_HEADERS: LazyLock<Usual<Vec<(String, String)>>> =
    LazyLock::new(|| Usual::new(Vec::new()));

pub fn from_row<T: FromRow>(row: &Row<'_>) -> Result<T> {
    T::read(&mut RowReader::new(row))
}

macro_rules! plain {
    ($($type:ty),+) => {
        $(impl FromRow for $type {
            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                columns.plain()
            }
        }

        impl ToRow for $type {
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                to.add(self)
            }
        })+
    };
}

macro_rules! row_keys {
    ($($type:ty),+) => {
        $(impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                i64::column_result(value).map(Self::new)
            }
        }

        impl ToSql for $type {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
                Ok(self.number().into())
            }
        }

        impl From<$type> for SqlValue {
            fn from(key: $type) -> Self {
                key.number().into()
            }
        }

        plain!($type);)+
    };
}

macro_rules! words {
    ($($type:ty),+ $(,)?) => {
        $(impl FromRow for $type {
            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                let text = columns.text()?;
                <$type>::parse(text).ok_or_else(|| {
                    invalid_column(&format!("column {} has the unknown value {text:?}", columns.next - 1))
                })
            }
        }

        impl ToRow for $type {
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                to.add(self.as_str())
            }
        })+
    };
}

macro_rules! tuples {
    ($(($($type:ident),+)),+) => {
        $(impl<$($type: FromRow),+> FromRow for ($($type,)+) {
            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                Ok(($(columns.get::<$type>()?,)+))
            }
        })+
    };
}

plain!(bool, u16, u32, i64, String, Vec<u8>, [u8; 32]);
row_keys!(UserKey, CueKey, ExecutionKey);
words!(
    AlertType,
    CatchUp,
    ChannelType,
    Repeat,
    CueStatus,
    ExecutionStatus,
    FailureCause,
    LoginState,
    Method,
    NotificationKind,
    OutcomeState,
    Overlap,
    RequestStatus,
    SignInMethod,
    SubscriptionState,
    Transport,
    Trigger,
    VerificationMode,
);
tuples!((A, B), (A, B, C), (A, B, C, D), (A, B, C, D, E));

impl<T: FromRow> FromRow for Option<T> {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        if columns.row.get_ref(columns.next)? == ValueRef::Null {
            columns.next += T::WIDTH;
            return Ok(None);
        }
        columns.get().map(Some)
    }
}

impl<T: ToRow> ToRow for Option<T> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        match self {
            Some(value) => value.bind(to),
            None => to.add(Null),
        }
    }
}

impl FromRow for usize {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let size: i64 = columns.get()?;
        Self::try_from(size).map_err(|error| invalid_column(&error.to_string()))
    }
}

impl FromRow for Timestamp {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Self::from_millisecond(columns.get()?).map_err(|error| invalid_column(&error.to_string()))
    }
}

impl ToRow for Timestamp {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        to.add(millis(*self))
    }
}

impl FromRow for SignedDuration {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(Self::from_millis(columns.get()?))
    }
}

impl FromRow for ExecutionId {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(Self::from_bytes(columns.plain()?))
    }
}

impl FromRow for JsonText {
    /// Nothing parses it again.
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(Self::stored(columns.get()?))
    }
}

impl FromRow for Value {
    /// A small JSON document of this program.
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        // Not serde_json: it parses an object with its private key for numbers as a number.
        let text = json::read(columns.text()?.as_bytes());
        text.map(|text| text.get().to_value()).map_err(|error| invalid_column(&error.to_string()))
    }
}

impl FromRow for StoredSchedule {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let when = match columns.get()? {
            (Some(cron), None, None, None) => ScheduleSpec::Recurring(cron),
            (None, Some(every), Some(from), None) => ScheduleSpec::Every(every, from),
            (None, None, None, Some(at)) => ScheduleSpec::Once(at),
            _ => return Err(invalid_column("a cue must have one of `cron`, `every` and `at`")),
        };
        let (timezone, catch_up) = columns.get()?;
        let (start, end, jitter_seconds, delay) = columns.get()?;
        let bounds = Bounds { start, end, jitter_seconds, delay_seconds: Some(delay) };
        Ok(Self { when, timezone, catch_up, bounds })
    }
}

impl FromRow for RetryPolicy {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let max_attempts = columns.get()?;
        let backoff_minutes = columns.json_or_usual(&USUAL_BACKOFF)?;
        let backoff_seconds: Option<String> = columns.get()?;
        let backoff_seconds = backoff_seconds.map(|text| serde_json::from_str(&text)).transpose();
        let backoff_seconds =
            backoff_seconds.map_err(|error| invalid_column(&error.to_string()))?;
        Ok(Self { max_attempts, backoff_minutes, backoff_seconds })
    }
}

impl FromRow for Slug {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let text = columns.text()?;
        Self::parse(text).ok_or_else(|| invalid_column("the slug of a cue has another form"))
    }
}

impl FromRow for Tags {
    /// Null is none.
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let tags = columns.maybe_text()?.map(serde_json::from_str).transpose();
        Ok(tags.map_err(|error| invalid_column(&error.to_string()))?.unwrap_or_default())
    }
}

impl FromRow for Callback {
    /// `callback_url`, `callback_method`, `callback_headers`, `outcome_from_response`, `timeout_seconds`, `flow_key`,
    /// `flow_parallelism`, `flow_per_minute`, `destination_hash`.
    const WIDTH: usize = 9;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let url: Option<String> = columns.get()?;
        let callback = Self {
            url: url.ok_or_else(|| invalid_column("the cue has no callback"))?,
            method: columns.get()?,
            headers: columns.json_or_usual(&NO_HEADERS)?,
            outcome_from_response: columns.get()?,
            timeout_seconds: columns.get()?,
            flow: columns.get()?,
        };
        // The hash follows from the flow or the URL.
        columns.next += 1;
        Ok(callback)
    }
}

impl FromRow for Flow {
    const WIDTH: usize = 3;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(Self { key: columns.get()?, parallelism: columns.get()?, per_minute: columns.get()? })
    }
}

macro_rules! policies_columns {
    () => {
        $crate::domain::cue_fields::plain_fields!($crate::store::db::columns::names)
    };
}

macro_rules! names {
    ($(#[$first_meta:meta])* $first:ident: $first_type:ty = $($first_row:expr),+;
     $($(#[$meta:meta])* $name:ident: $type:ty = $($row:expr),+;)*) => {
        concat!(stringify!($first) $(, ", ", stringify!($name))*)
    };
}

pub(in crate::store) use {names, policies_columns};

macro_rules! policies_row {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $($row:expr),+;)+) => {
        row!(Policies { $($name),+ });

        impl ToRow for Policies {
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                $(self.$name.bind(to)?;)+
                Ok(())
            }
        }
    };
}

plain_fields!(policies_row);

impl FromRow for Offer {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let (plan, interval) = (columns.text()?, columns.text()?);
        Self::parse(plan, interval).ok_or_else(|| {
            invalid_column(&format!("unknown offer: plan {plan}, interval {interval}"))
        })
    }
}

pub struct Binder<'a, 'c> {
    statement: &'a mut Statement<'c>,
    next: usize,
}

impl<'a, 'c> Binder<'a, 'c> {
    pub fn new(statement: &'a mut Statement<'c>) -> Self {
        Self { statement, next: 1 }
    }

    pub fn add(&mut self, value: impl ToSql) -> Result<()> {
        self.next += 1;
        self.statement.raw_bind_parameter(self.next - 1, value)
    }

    pub fn execute(self) -> Result<usize> {
        self.statement.raw_execute()
    }
}

/// The stored form of an instant: milliseconds since 1970.
pub fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

pub fn row_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub fn invalid_column(message: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, message.to_owned().into())
}
