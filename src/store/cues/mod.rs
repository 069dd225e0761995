//! The rows of cues and of their payloads: the current payload of a cue, which its executions share, and single-use ones
//! of one execution.

pub mod cue_list;
pub mod due_cues;
pub mod flows;
pub mod time_zones;
pub mod upcoming;

use std::iter;
use std::sync::LazyLock;

use jiff::Timestamp;
use rusqlite::params;
use rusqlite::types::Value;
use serde::Serialize;

use crate::domain::cue::slug::Slug;
use crate::domain::cue::tags::Tags;
use crate::domain::cue::{
    Cue, CueFields, CueStatus, OnFailure, Payload, ScheduleSpec, StoredSchedule,
};
use crate::domain::execution::RetryPolicy;
use crate::domain::ids::CueId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::webhook::callback::{Callback, DEFAULT_TIMEOUT_SECONDS, Method};
use crate::error::Result;
use crate::store::db::columns::{
    Binder, FromRow, RowReader, ToRow, Usual, column_list, from_row, millis, policies_columns, row,
};
use crate::store::{ReadTx, WriteTx};

/// States each column of a cue once. `kept` are those that a change to a cue leaves as they are, `counted` has no column.
macro_rules! cue_columns {
    (
        kept: $($kept:ident $(= $kept_sql:tt)?),+;
        changed: $($changed:ident $(= $changed_sql:tt)?),+;
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

/// What users say of a cue, in columns.
macro_rules! field_rows {
    ($($field:ident $(= $sql:tt)?),+ $(,)?) => {
        row!(field_columns, "", CueFields { $($field $(= $sql)?),+ });

        impl ToRow for CueFields {
            fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
                $(self.$field.bind(to)?;)+
                Ok(())
            }
        }
    };
}

field_rows! {
    slug, name, description, tags, transport,
    schedule = "cron, every, counts_from, at, timezone, catch_up, start_at, end_at, jitter_seconds, delay_seconds",
    callback = "callback_url, callback_method, callback_headers, outcome_from_response, timeout_seconds, \
        flow_key, flow_parallelism, flow_per_minute, destination_hash",
    retry = "max_attempts, backoff_minutes, backoff_seconds", on_failure, verification,
    policies = (policies_columns),
}

cue_columns! {
    kept: id, user_key, last_run, run_count, missed_count, payload_key, created_at;
    changed: status, next_run, fields = (field_columns), warning, updated_at;
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

pub fn insert(tx: &WriteTx<'_>, mut cue: Cue, payload: Option<&Payload>) -> Result<Cue> {
    let mut insert = tx.prepare_cached(&INSERT)?;
    let mut to = Binder::new(&mut insert);
    bind_kept(&cue, &mut to)?;
    bind_changed(&cue, &mut to)?;
    to.execute()?;
    cue.key = CueKey::new(tx.last_insert_rowid());
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

pub fn find(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<Option<Cue>> {
    let sql = concat!("SELECT ", columns!(), " FROM cues WHERE id = ?2 AND user_key = ?1");
    read.find(sql, params![user_key, id])
}

/// One statement, because this is the most frequent read of the API.
pub fn find_with_payload(
    read: &ReadTx<'_>,
    user_key: UserKey,
    id: &str,
) -> Result<Option<(Cue, Option<String>)>> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", (SELECT body FROM payloads WHERE payloads.key = payload_key) FROM cues WHERE id = ?2 AND user_key = ?1"
    );
    read.find(sql, params![user_key, id])
}

/// Returns the id of the user's cue with this slug.
pub fn find_id_of_slug(
    read: &ReadTx<'_>,
    user_key: UserKey,
    slug: &Slug,
) -> Result<Option<String>> {
    read.find(
        "SELECT id FROM cues WHERE user_key = ?1 AND slug = ?2",
        params![user_key, slug.as_str()],
    )
}

/// The namespace of the file that a cue comes from; empty for a file without one, `None` if it comes from no file.
pub fn find_source(read: &ReadTx<'_>, key: CueKey) -> Result<Option<String>> {
    Ok(read.find("SELECT source FROM cues WHERE key = ?1", [key])?.flatten())
}

pub fn set_source(tx: &WriteTx<'_>, key: CueKey, source: &str) -> Result<()> {
    tx.execute("UPDATE cues SET source = ?2 WHERE key = ?1", params![key, source])?;
    Ok(())
}

pub fn find_key(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<Option<CueKey>> {
    read.find("SELECT key FROM cues WHERE id = ?2 AND user_key = ?1", params![user_key, id])
}

row! { source_columns, "",
#[derive(Debug)]
pub struct DeliverySource {
    pub user_key: UserKey,
    pub webhook_secret: String,
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

pub fn find_by_key(read: &ReadTx<'_>, key: CueKey) -> Result<Option<Cue>> {
    read.find(concat!("SELECT ", columns!(), " FROM cues WHERE key = ?1"), [key])
}

pub fn record_run(tx: &WriteTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<()> {
    let sql =
        "UPDATE cues SET last_run = ?2, run_count = run_count + 1, updated_at = ?2 WHERE key = ?1";
    tx.run(sql, params![cue_key, millis(now)])
}

const OTHER_TAG: &str = " AND EXISTS (
    SELECT 1 FROM cue_tags o WHERE o.user_key = t.user_key AND o.tag = ? AND o.cue_key = t.cue_key)";

/// A query for the keys of the user's cues that have all of the tags, in their order, and its parameters.
pub(in crate::store) fn tagged(user_key: UserKey, tags: &Tags) -> (String, Vec<Value>) {
    let others = OTHER_TAG.repeat(tags.iter().len().saturating_sub(1));
    let sql = format!(
        "SELECT t.cue_key AS tagged FROM cue_tags t WHERE t.user_key = ? AND t.tag = ?{others}"
    );
    let tags = tags.iter().map(|tag| Value::from(tag.to_owned()));
    (sql, iter::once(Value::from(user_key)).chain(tags).collect())
}

fn text_bytes(cue: &Cue) -> usize {
    let CueFields { name, description, callback, .. } = &cue.fields;
    let callback = callback.as_ref().map_or(0, |callback| {
        let headers: usize =
            callback.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        callback.url.len() + headers
    });
    let description = description.as_ref().map_or(0, String::len);
    name.len() + description + cue.warning.as_ref().map_or(0, String::len) + callback
}

impl ToRow for Slug {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        to.add(self.as_str())
    }
}

impl ToRow for Tags {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        to.add((!self.is_empty()).then(|| to_json(self)).transpose()?)
    }
}

impl ToRow for StoredSchedule {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let (cron, every, at) = match &self.when {
            ScheduleSpec::Recurring(cron) => (Some(cron), None, None),
            ScheduleSpec::Every(every, from) => (None, Some((every, *from)), None),
            ScheduleSpec::Once(at) => (None, None, Some(millis(*at))),
        };
        to.add(cron)?;
        to.add(every.map(|(every, _)| every))?;
        to.add(every.map(|(_, from)| millis(from)))?;
        to.add(at)?;
        self.timezone.bind(to)?;
        self.catch_up.bind(to)?;
        to.add(self.bounds.start.map(millis))?;
        to.add(self.bounds.end.map(millis))?;
        to.add(self.bounds.jitter_seconds)?;
        to.add(self.bounds.delay_seconds.unwrap_or_default())
    }
}

impl ToRow for Option<Callback> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let headers: &[(String, String)] = self.as_ref().map_or(&[], |callback| &callback.headers);
        to.add(self.as_ref().map(|callback| &callback.url))?;
        self.as_ref().map_or(Method::Post, |callback| callback.method).bind(to)?;
        to.add(to_json(&headers)?)?;
        to.add(self.as_ref().is_some_and(|callback| callback.outcome_from_response))?;
        to.add(self.as_ref().map_or(DEFAULT_TIMEOUT_SECONDS, |callback| callback.timeout_seconds))?;
        let flow = self.as_ref().and_then(|callback| callback.flow.as_ref());
        to.add(flow.map(|flow| &flow.key))?;
        to.add(flow.and_then(|flow| flow.parallelism))?;
        to.add(flow.and_then(|flow| flow.per_minute))?;
        to.add(self.as_ref().map(Callback::destination_hash))
    }
}

impl ToRow for RetryPolicy {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        self.max_attempts.bind(to)?;
        to.add(to_json(&self.backoff_minutes)?)?;
        to.add(self.backoff_seconds.as_ref().map(to_json).transpose()?)
    }
}

static USUAL_ON_FAILURE: LazyLock<Usual<OnFailure>> =
    LazyLock::new(|| Usual::new(OnFailure::default()));

impl FromRow for OnFailure {
    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        columns.json_or_usual(&USUAL_ON_FAILURE)
    }
}

impl ToRow for OnFailure {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        to.add(to_json(self)?)
    }
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

const ABOVE_LIMIT: &str = "SELECT key FROM cues WHERE user_key = ?1 AND status = 'active' ORDER BY key LIMIT -1 OFFSET ?2";

/// Pauses `cue`, which holds its state before the pause.
pub fn pause(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, CueStatus::Paused, 1);
    tx.run(
        "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?2 WHERE key = ?1",
        params![cue.key, millis(now)],
    )
}

pub fn overdue_above_limit(
    read: &ReadTx<'_>,
    user_key: UserKey,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<CueKey>> {
    let sql = format!(
        "SELECT key FROM cues WHERE key IN ({ABOVE_LIMIT}) AND next_run <= ?3 AND at IS NULL"
    );
    read.all(&sql, params![user_key, limit, millis(now)])
}

/// Except due `once` cues: these run and end. Returns the row keys of the paused cues.
pub fn pause_above_limit(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<CueKey>> {
    let sql = format!(
        "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?3
          WHERE key IN ({ABOVE_LIMIT}) AND (at IS NULL OR next_run > ?3 OR next_run IS NULL) RETURNING key"
    );
    let paused: Vec<CueKey> = tx.all(&sql, params![user_key, limit, millis(now)])?;
    let count = i64::try_from(paused.len()).unwrap_or(i64::MAX);
    tx.counters().move_cues(user_key, CueStatus::Active, CueStatus::Paused, count);
    Ok(paused)
}

/// Executions read to find a payload in use. Those with single-use payloads are skipped; the limit bounds the write.
const MAX_EXECUTIONS_READ: i64 = 200;

pub(in crate::store) enum SharedPayload {
    Found(i64),
    None,
    /// The first [`MAX_EXECUTIONS_READ`] executions have none; others may.
    Unknown,
}

const INSERT_PAYLOAD: &str =
    "INSERT INTO payloads (cue_key, is_single_use, task, agent, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const COPY_PAYLOAD: &str = "INSERT INTO payloads (cue_key, is_single_use, task, agent, body)
    SELECT cue_key, 1, task, agent, body FROM payloads WHERE key = ?1
    RETURNING key, octet_length(body)";

macro_rules! shared_payloads {
    ($order:literal) => {
        concat!(
            "SELECT payloads.key FROM executions
               LEFT JOIN payloads ON payloads.key = executions.payload_key AND is_single_use = 0
              WHERE executions.cue_key = ?1 ORDER BY executions.key ",
            $order,
            " LIMIT ?2 + 0"
        )
    };
}

// Row keys grow with time: the payload of the oldest execution is the oldest in use, and none in use is newer than that
// of the newest.
pub(in crate::store) const OLDEST_FIRST: &str = shared_payloads!("");
const NEWEST_FIRST: &str = shared_payloads!("DESC");

const DELETE_PAYLOAD: &str = "DELETE FROM payloads WHERE key = ?1 RETURNING octet_length(body)";

/// Returns the row key of the new payload. Superseded payloads stay while executions use them.
pub fn set_payload(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    payload: Option<&Payload>,
) -> Result<Option<i64>> {
    let payload_key =
        payload.map(|payload| insert_payload(tx, cue_key, false, payload)).transpose()?;
    if let Some(superseded) = current_payload_key(tx, cue_key)? {
        match find_shared_payload(tx, NEWEST_FIRST, cue_key)? {
            SharedPayload::Found(newest) if newest >= superseded => {
                queue_for_retention(tx, cue_key)?
            }
            SharedPayload::Unknown => queue_for_retention(tx, cue_key)?,
            SharedPayload::Found(_) | SharedPayload::None => drop(delete_payload(tx, superseded)?),
        }
    }
    tx.run("UPDATE cues SET payload_key = ?2 WHERE key = ?1", params![cue_key, payload_key])?;
    Ok(payload_key)
}

pub fn insert_single_use_payload(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    payload: &Payload,
) -> Result<i64> {
    insert_payload(tx, cue_key, true, payload)
}

/// The same payload if it is still current, else a single-use copy. Returns the bytes that were copied as well.
pub fn reuse_or_copy_payload(
    tx: &WriteTx<'_>,
    payload_key: Option<i64>,
    current: Option<i64>,
) -> Result<(Option<i64>, usize)> {
    match payload_key {
        Some(key) if payload_key != current => {
            let (copy, bytes): (i64, usize) = tx.one(COPY_PAYLOAD, [key])?;
            Ok((Some(copy), bytes))
        }
        shared => Ok((shared, 0)),
    }
}

/// Checks the cue as well: the row may be gone, and its key may belong to the payload of another cue.
pub fn find_payload(read: &ReadTx<'_>, cue_key: CueKey, key: i64) -> Result<Option<String>> {
    read.find("SELECT body FROM payloads WHERE key = ?1 AND cue_key = ?2", (key, cue_key))
}

pub fn payload_size(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<usize> {
    let sql = "SELECT octet_length(p.body) FROM cues c JOIN payloads p ON p.key = c.payload_key
                WHERE c.id = ?2 AND c.user_key = ?1";
    Ok(read.find(sql, params![user_key, id])?.unwrap_or(0))
}

pub fn find_filters(read: &ReadTx<'_>, key: i64) -> Result<(Option<String>, Option<String>)> {
    Ok(read.find("SELECT task, agent FROM payloads WHERE key = ?1", [key])?.unwrap_or_default())
}

/// Queues a cue for the retention sweeper, because its history may exceed the retention limit.
pub fn queue_for_retention(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    tx.run("INSERT INTO retention_queue (cue_key) VALUES (?1) ON CONFLICT DO NOTHING", [cue_key])
}

pub(in crate::store) fn delete_payload(tx: &WriteTx<'_>, key: i64) -> Result<i64> {
    Ok(tx.find(DELETE_PAYLOAD, [key])?.unwrap_or(0))
}

fn insert_payload(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    is_single_use: bool,
    payload: &Payload,
) -> Result<i64> {
    tx.run(
        INSERT_PAYLOAD,
        params![cue_key, is_single_use, payload.task, payload.agent, payload.body],
    )?;
    Ok(tx.last_insert_rowid())
}

pub(in crate::store) fn current_payload_key(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
) -> Result<Option<i64>> {
    Ok(tx.find("SELECT payload_key FROM cues WHERE key = ?1", [cue_key])?.flatten())
}

pub(in crate::store) fn find_shared_payload(
    tx: &WriteTx<'_>,
    sql: &str,
    cue_key: CueKey,
) -> Result<SharedPayload> {
    let mut count = 0;
    let mut executions = tx.prepare_cached(sql)?;
    let payloads = executions.query_map((cue_key, MAX_EXECUTIONS_READ), from_row::<Option<i64>>)?;
    for payload in payloads {
        if let Some(payload) = payload? {
            return Ok(SharedPayload::Found(payload));
        }
        count += 1;
    }
    Ok(if count < MAX_EXECUTIONS_READ { SharedPayload::None } else { SharedPayload::Unknown })
}

#[cfg(test)]
crate::store::test_support::plan_test! { cues_above_the_limit_and_payloads_in_use_are_found_by_index:
    ABOVE_LIMIT => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)",
    OLDEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    NEWEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
}
