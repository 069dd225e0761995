//! Cues: inserted, read and updated. `cue_list` lists them, `matching` finds those that a filter matches, `recent_runs`
//! their latest runs; `payloads` holds their payloads, `pauses` pauses them, `due_cues` finds due cues and records missed
//! runs.

pub mod cue_list;
pub mod due_cues;
pub mod matching;
pub mod pauses;
pub mod payloads;
pub mod recent_runs;

use std::sync::LazyLock;

use jiff::Timestamp;
use rusqlite::params;
use serde::Serialize;

use crate::domain::cue::OnFailure;
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, CueStatus, ScheduleSpec, StoredSchedule};
use crate::domain::execution::RetryPolicy;
use crate::domain::ids::CueId;
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::callback_url::destination_hash;
use crate::error::Result;
use crate::store::cues::payloads::set_payload;
use crate::store::db::columns::{Binder, FromRow, RowReader, ToRow, column_list, millis, row};
use crate::store::{ReadTx, WriteTx};

/// States each column of a cue once. `kept` are those that a change to a cue leaves as they are, `counted` has no column.
macro_rules! cue_columns {
    (
        kept: $($kept:ident $(= $kept_sql:literal)?),+;
        changed: $($changed:ident $(= $changed_sql:literal)?),+;
        counted: $counted:ident = $counted_sql:literal;
    ) => {
        row!(columns, "", Cue {
            key, $($kept $(= $kept_sql)?,)+ $($changed $(= $changed_sql)?,)+ $counted = $counted_sql
        });
        column_list!(kept_columns, "", $($kept $(= $kept_sql)?),+);
        column_list!(changed_columns, "", $($changed $(= $changed_sql)?),+);

        fn bind_kept(cue: &Cue, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
            $(cue.$kept.bind(to)?;)+
            Ok(())
        }

        fn bind_changed(cue: &Cue, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
            $(cue.$changed.bind(to)?;)+
            Ok(())
        }
    };
}

cue_columns! {
    kept: id, user_key, last_run, run_count, missed_count, transport, payload_key, created_at;
    changed: name, description, status, next_run, schedule = "cron, at, timezone, catch_up",
        callback = "callback_url, callback_method, callback_headers, outcome_from_response, destination_hash",
        retry = "max_attempts, backoff_minutes", on_failure, verification, claim_within_minutes, warning, updated_at;
    counted: failing = "coalesce((SELECT failures FROM consecutive_failures WHERE cue_key = cues.key), 0)";
}

const COLUMNS: &str = columns!();

static INSERT: LazyLock<String> = LazyLock::new(|| {
    let all = concat!(kept_columns!(), ", ", changed_columns!());
    format!("INSERT INTO cues ({all}) VALUES ({})", placeholders(all))
});

static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let changed = changed_columns!();
    format!("UPDATE cues SET ({changed}) = ({}) WHERE key = ?", placeholders(changed))
});

fn placeholders(columns: &str) -> String {
    vec!["?"; columns.split(',').count()].join(", ")
}

/// Inserts a cue and its payload. Returns the cue with both row keys set.
pub fn insert(tx: &WriteTx<'_>, mut cue: Cue, payload: Option<&Payload>) -> Result<Cue> {
    let mut insert = tx.prepare_cached(&INSERT)?;
    let mut to = Binder::new(&mut insert);
    bind_kept(&cue, &mut to)?;
    bind_changed(&cue, &mut to)?;
    to.execute()?;
    cue.key = tx.last_insert_rowid();
    tx.counters().add_cue(cue.user_key, cue.status);
    if payload.is_some() {
        cue.payload_key = set_payload(tx, cue.key, payload)?;
    }
    Ok(cue)
}

/// Updates the columns that a change to a cue may alter, except the payload.
pub fn save(tx: &WriteTx<'_>, cue: &Cue) -> Result<()> {
    if let Some(before) = tx.find("SELECT status FROM cues WHERE key = ?1", [cue.key])? {
        tx.counters().move_cues(cue.user_key, before, cue.status, 1);
    }
    let mut update = tx.prepare_cached(&UPDATE)?;
    let mut to = Binder::new(&mut update);
    bind_changed(cue, &mut to)?;
    to.add(cue.key)?;
    to.execute()?;
    Ok(())
}

pub fn find(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<Option<Cue>> {
    let sql = concat!("SELECT ", columns!(), " FROM cues WHERE id = ?2 AND user_key = ?1");
    read.find(sql, params![user_key, id])
}

/// The user's cue with this id, and the text of its payload. One statement, because this is the most frequent read of the
/// API.
pub fn find_with_payload(
    read: &ReadTx<'_>,
    user_key: i64,
    id: &str,
) -> Result<Option<(Cue, Option<String>)>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", (SELECT body FROM payloads WHERE payloads.key = payload_key) FROM cues WHERE id = ?2 AND user_key = ?1"
    );
    read.find(sql, params![user_key, id])
}

pub fn find_key(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<Option<i64>> {
    read.find("SELECT key FROM cues WHERE id = ?2 AND user_key = ?1", params![user_key, id])
}

row! { source_columns, "",
/// The properties that tell whose a received delivery is.
#[derive(Debug)]
pub struct DeliverySource {
    pub user_key: i64,
    pub webhook_secret: String,
    /// `None` for a cue of workers.
    pub callback_url: Option<String>,
} }

pub fn find_delivery_source(read: &ReadTx<'_>, id: &CueId) -> Result<Option<DeliverySource>> {
    let sql = concat!(
        "SELECT ",
        source_columns!(),
        " FROM cues JOIN users ON users.key = cues.user_key WHERE cues.id = ?1"
    );
    read.find(sql, [id.as_str()])
}

pub fn find_by_key(read: &ReadTx<'_>, key: i64) -> Result<Option<Cue>> {
    read.find(concat!("SELECT ", columns!(), " FROM cues WHERE key = ?1"), [key])
}

/// Records a run: sets `last_run` to `now` and adds one to `run_count`.
pub fn record_run(tx: &WriteTx<'_>, cue_key: i64, now: Timestamp) -> Result<()> {
    let sql = "UPDATE cues SET last_run = ?2, run_count = run_count + 1, updated_at = ?2 WHERE key = ?1";
    tx.run(sql, params![cue_key, millis(now)])
}

row! { once_columns, "",
/// The columns of a `once` cue that the end of its run depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnceCue {
    /// The time of its only run.
    pub at: Timestamp,
    /// True if that run has not been fired yet.
    pub is_due: bool = "next_run IS NOT NULL",
    status: CueStatus,
    user_key: i64,
} }

pub fn find_once(read: &ReadTx<'_>, cue_key: i64) -> Result<Option<OnceCue>> {
    // Reads few columns, because it runs after every delivery.
    read.find(concat!("SELECT ", once_columns!(), " FROM cues WHERE key = ?1 AND at IS NOT NULL"), [cue_key])
}

pub fn end_once(
    tx: &WriteTx<'_>,
    cue_key: i64,
    cue: &OnceCue,
    status: CueStatus,
    now: Timestamp,
) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, status, 1);
    let sql = "UPDATE cues SET status = ?2, updated_at = ?3 WHERE key = ?1";
    tx.run(sql, params![cue_key, status.as_str(), millis(now)])
}

/// The size of the texts that a user can make long.
fn text_bytes(cue: &Cue) -> usize {
    let callback = cue.callback.as_ref().map_or(0, |callback| {
        let headers: usize = callback.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        callback.url.len() + headers
    });
    let description = cue.description.as_ref().map_or(0, String::len);
    cue.name.len() + description + cue.warning.as_ref().map_or(0, String::len) + callback
}

impl ToRow for StoredSchedule {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let (cron, at) = match &self.when {
            ScheduleSpec::Recurring(cron) => (Some(cron), None),
            ScheduleSpec::Once(at) => (None, Some(millis(*at))),
        };
        to.add(cron)?;
        to.add(at)?;
        self.timezone.bind(to)?;
        self.catch_up.bind(to)
    }
}

impl ToRow for Option<Callback> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let headers: &[(String, String)] = self.as_ref().map_or(&[], |callback| &callback.headers);
        to.add(self.as_ref().map(|callback| &callback.url))?;
        self.as_ref().map_or(Method::Post, |callback| callback.method).bind(to)?;
        to.add(to_json(&headers)?)?;
        to.add(self.as_ref().is_some_and(|callback| callback.outcome_from_response))?;
        to.add(self.as_ref().map(|callback| destination_hash(&callback.url)))
    }
}

impl ToRow for RetryPolicy {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        self.max_attempts.bind(to)?;
        to.add(to_json(&self.backoff_minutes)?)
    }
}

impl FromRow for OnFailure {
    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        columns.json()
    }
}

impl ToRow for OnFailure {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        to.add(to_json(self)?)
    }
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
