//! Rows: how columns become values and structs, always by position. A value that this program never writes is an error.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use rusqlite::types::{FromSql, FromSqlResult, Null, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, Result, Row, Statement, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::account::device_login::LoginState;
use crate::domain::account::session::SignInMethod;
use crate::domain::billing::{Interval, Offer, PaidPlan, RequestStatus, SubscriptionState};
use crate::domain::channel::{ChannelType, Repeat};
use crate::domain::cue::slug::Slug;
use crate::domain::cue::tags::Tags;
use crate::domain::cue::{CueStatus, ScheduleSpec, StoredSchedule, Transport};
use crate::domain::cue_fields::{Overlap, Policies, plain_fields};
use crate::domain::execution::attempt::{AttemptEnd, FailureCause};
use crate::domain::execution::outcome::{OutcomeState, VerificationMode};
use crate::domain::execution::{ExecutionStatus, RetryPolicy, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::json::{self, JsonText};
use crate::domain::notification::NotificationKind;
use crate::domain::notification::alert::AlertType;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::schedule::{Bounds, CatchUp};
use crate::domain::secret::Secret;
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::flow::Flow;
use crate::domain::webhook::signature::WebhookSecrets;

/// A value in the next columns of a row: a plain value has one, a struct or a tuple several.
pub trait FromRow: Sized {
    /// The number of columns, for a value that may be null: all of them are, or none is checked but the first.
    const WIDTH: usize = 1;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self>;
}

/// The next parameters of a statement, in the stored form of the value: the counterpart of [`FromRow`].
pub trait ToRow {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()>;
}

/// The number of columns of a field.
pub const fn width<S, T: FromRow>(_field: fn(&S) -> &T) -> usize {
    T::WIDTH
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
            const WIDTH: usize = 0 $(+ $crate::store::db::columns::width(|row: &Self| &row.$field))+;

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

/// The text of a query for the columns of a [`row!`].
macro_rules! select {
    ($columns:ident, $rest:expr) => {
        concat!("SELECT ", $columns!(), " ", $rest)
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

/// [`row!`] for a struct that is written as it is read, in the columns of its fields, and [`ToRow`].
macro_rules! stored_row {
    ($columns:ident, $type:ty { $($field:ident $(= $sql:tt)?),+ $(,)? }) => {
        $crate::store::db::columns::row!($columns, "", $type { $($field $(= $sql)?),+ });

        impl $crate::store::db::columns::ToRow for $type {
            fn bind(&self, to: &mut $crate::store::db::columns::Binder<'_, '_>) -> rusqlite::Result<()> {
                $(self.$field.bind(to)?;)+
                Ok(())
            }
        }
    };
}

/// Types whose columns have JSON.
macro_rules! json_columns {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::store::db::columns::FromRow for $type {
            fn read(columns: &mut $crate::store::db::columns::RowReader<'_, '_>) -> rusqlite::Result<Self> {
                columns.json()
            }
        }

        impl $crate::store::db::columns::ToRow for $type {
            fn bind(&self, to: &mut $crate::store::db::columns::Binder<'_, '_>) -> rusqlite::Result<()> {
                to.add($crate::store::db::columns::to_json(self)?)
            }
        })+
    };
}

macro_rules! words {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::store::db::columns::FromRow for $type {
            fn read(columns: &mut $crate::store::db::columns::RowReader<'_, '_>) -> rusqlite::Result<Self> {
                columns.word(<$type>::parse)
            }
        }

        impl $crate::store::db::columns::ToRow for $type {
            fn bind(&self, to: &mut $crate::store::db::columns::Binder<'_, '_>) -> rusqlite::Result<()> {
                to.add(self.as_str())
            }
        })+
    };
}

pub(in crate::store) use {column, column_list, json_columns, row, select, stored_row, words};

/// By position: for a row of 26 columns, finding each by name takes longer than reading the values.
pub struct RowReader<'row, 'statement> {
    row: &'row Row<'statement>,
    next: usize,
    text_bytes: usize,
}

impl<'row, 'statement> RowReader<'row, 'statement> {
    pub fn new(row: &'row Row<'statement>) -> Self {
        Self { row, next: 0, text_bytes: 0 }
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
        let text = self.row.get_ref(self.next - 1)?.as_str_or_null()?;
        self.text_bytes += text.map_or(0, str::len);
        Ok(text)
    }

    pub fn word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let text = self.text()?;
        parse(text).ok_or_else(|| {
            invalid_column(format!("column {} has the unknown value {text:?}", self.next - 1))
        })
    }

    /// The bytes of the texts that were read.
    pub fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_str(self.text()?).map_err(invalid_column)
    }

    /// As [`Self::json`], or `None` if the column is null.
    pub fn maybe_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.maybe_text()?.map(serde_json::from_str).transpose().map_err(invalid_column)
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

/// Types that SQLite has as well: as parameters, and with [`plain!`] in rows too.
macro_rules! bound {
    ($($type:ty),+) => {
        $(impl ToRow for $type {
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                to.add(self)
            }
        })+
    };
}

macro_rules! plain {
    ($($type:ty),+) => {
        $(impl FromRow for $type {
            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                columns.plain()
            }
        }

        bound!($type);)+
    };
}

/// Types that a row has as values of another type.
macro_rules! converted {
    ($($type:ty as $stored:ty: |$value:ident| $write:expr, $read:expr;)+) => {
        $(impl FromRow for $type {
            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                columns.get::<$stored>().and_then($read)
            }
        }

        impl ToRow for $type {
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                let $value = self;
                to.add($write)
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

        plain!($type);)+
    };
}

macro_rules! tuples {
    () => {};
    ($first:ident $($other:ident)*) => {
        impl<$first: FromRow, $($other: FromRow),*> FromRow for ($first, $($other,)*) {
            const WIDTH: usize = $first::WIDTH $(+ $other::WIDTH)*;

            fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
                Ok((columns.get::<$first>()?, $(columns.get::<$other>()?,)*))
            }
        }

        impl<$first: ToRow, $($other: ToRow),*> ToRow for ($first, $($other,)*) {
            #[allow(non_snake_case, reason = "each value has the name of its type")]
            fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
                let ($first, $($other,)*) = self;
                $first.bind(to)?;
                $($other.bind(to)?;)*
                Ok(())
            }
        }

        tuples!($($other)*);
    };
}

plain!(bool, u16, u32, i64, Vec<u8>, [u8; 16], [u8; 32]);
row_keys!(UserKey, CueKey, ExecutionKey);
words!(
    AlertType,
    AttemptEnd,
    CatchUp,
    ChannelType,
    Repeat,
    CueStatus,
    ExecutionStatus,
    FailureCause,
    Interval,
    LoginState,
    Method,
    MissReason,
    NotificationKind,
    OutcomeState,
    Overlap,
    PaidPlan,
    RequestStatus,
    SignInMethod,
    Slug,
    SubscriptionState,
    Transport,
    Trigger,
    VerificationMode,
);
tuples!(A B C D E F G H I J K L);
bound!(str, String, [u8]);
converted! {
    usize as i64: |count| row_count(*count), |count| Self::try_from(count).map_err(invalid_column);
    Timestamp as i64: |at| at.as_millisecond(), |at| Self::from_millisecond(at).map_err(invalid_column);
    SignedDuration as i64: |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX), |it| Ok(Self::from_millis(it));
    ExecutionId as [u8; 16]: |id| id.bytes(), |bytes| Ok(Self::from_bytes(bytes));
    // Nothing parses it again.
    JsonText as String: |text| text.as_str(), |text| Ok(Self::stored(text));
    // A small JSON document of this program. Not read by serde_json: it parses an object with its private key for numbers
    // as a number.
    Value as String: |value| value.to_string(), |text| Ok(json::read(text.as_bytes()).map_err(invalid_column)?.get().to_value());
}

impl ToRow for () {
    fn bind(&self, _: &mut Binder<'_, '_>) -> Result<()> {
        Ok(())
    }
}

impl<T: ToRow + ?Sized> ToRow for &T {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        (**self).bind(to)
    }
}

impl<T: ToRow + ?Sized> ToRow for Rc<T> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        (**self).bind(to)
    }
}

impl<T: ToRow> ToRow for [T] {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        self.iter().try_for_each(|value| value.bind(to))
    }
}

impl<T: ToRow, const COUNT: usize> ToRow for [T; COUNT] {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        self.as_slice().bind(to)
    }
}

impl FromRow for String {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        columns.text().map(str::to_owned)
    }
}

impl<T: FromRow> FromRow for Option<T> {
    const WIDTH: usize = T::WIDTH;

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

/// A value that cannot be read is an error of its own: the other rows are still read.
impl<T: FromRow> FromRow for Result<T> {
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(columns.get())
    }
}

impl ToRow for u64 {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        to.add(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

macro_rules! schedule_columns {
    () => {
        "cron, every, counts_from, at, timezone, catch_up, start_at, end_at, jitter_seconds, delay_seconds"
    };
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
        let backoff_seconds = columns.maybe_json()?;
        Ok(Self { max_attempts, backoff_minutes, backoff_seconds })
    }
}

impl FromRow for Tags {
    /// Null is none.
    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        Ok(columns.maybe_json()?.unwrap_or_default())
    }
}

row!(Offer { plan, interval });

impl ToRow for Offer {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        (self.plan, self.interval).bind(to)
    }
}

row!(Flow { key, parallelism, per_minute });

row!(WebhookSecrets { current, previous, previous_expires_at });

macro_rules! webhook_secret_columns {
    () => {
        "webhook_secret, previous_webhook_secret, previous_webhook_secret_expires_at"
    };
}

macro_rules! callback_columns {
    () => {
        "callback_url, callback_method, callback_headers, outcome_from_response, timeout_seconds, flow_key, \
         flow_parallelism, flow_per_minute"
    };
}

impl FromRow for Callback {
    const WIDTH: usize = 8;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        let url: Option<String> = columns.get()?;
        Ok(Self {
            url: url.ok_or_else(|| invalid_column("the cue has no callback"))?,
            method: columns.get()?,
            headers: columns.json_or_usual(&NO_HEADERS)?.into(),
            outcome_from_response: columns.get()?,
            timeout_seconds: columns.get()?,
            flow: columns.get()?,
        })
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

pub(in crate::store) use {
    callback_columns, names, policies_columns, schedule_columns, webhook_secret_columns,
};

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

impl<T: FromRow> FromRow for Secret<T> {
    const WIDTH: usize = T::WIDTH;

    fn read(columns: &mut RowReader<'_, '_>) -> Result<Self> {
        columns.get().map(Self::new)
    }
}

impl<T: ToRow> ToRow for Secret<T> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> Result<()> {
        self.expose().bind(to)
    }
}

pub struct Binder<'a, 'c> {
    statement: &'a mut Statement<'c>,
    bound: usize,
}

impl Binder<'_, '_> {
    pub fn add(&mut self, value: impl ToSql) -> Result<()> {
        self.bound += 1;
        self.statement.raw_bind_parameter(self.bound, value)
    }
}

/// Returns the number of changed rows.
pub fn run(connection: &Connection, sql: &str, parameters: impl ToRow) -> Result<usize> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, parameters)?;
    statement.raw_execute()
}

/// Binds all parameters of the statement.
pub fn bind(statement: &mut Statement<'_>, parameters: impl ToRow) -> Result<()> {
    let mut to = Binder { statement, bound: 0 };
    parameters.bind(&mut to)?;
    let (given, expected) = (to.bound, to.statement.parameter_count());
    if given == expected {
        Ok(())
    } else {
        Err(rusqlite::Error::InvalidParameterCount(given, expected))
    }
}

pub fn row_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub fn invalid_column(message: impl Display) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, message.to_string().into())
}

pub fn insert_sql(table: &str, columns: &str) -> String {
    format!("INSERT INTO {table} ({columns}) VALUES ({})", placeholders(columns))
}

pub fn placeholders(columns: &str) -> String {
    vec!["?"; columns.split(',').count()].join(", ")
}

pub fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
