//! The rows of cues and of their payloads: the current payload of a cue, which its executions share, and single-use ones
//! of one execution.

pub mod cue_list;
pub mod due_cues;
pub mod flows;
pub mod time_zones;
pub mod upcoming;

use std::sync::LazyLock;

use jiff::Timestamp;

use crate::domain::cue::slug::{Slug, SlugFilter};
use crate::domain::cue::tags::Tags;
use crate::domain::cue::{
    Cue, CueFields, CueStatus, OnFailure, Payload, ScheduleSpec, StoredSchedule,
};
use crate::domain::execution::RetryPolicy;
use crate::domain::ids::CueId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::Bounds;
use crate::domain::secret::Secret;
use crate::domain::webhook::callback::{Callback, DEFAULT_TIMEOUT_SECONDS, Method};
use crate::error::Result;
use crate::store::db::columns::{
    Binder, FromRow, RowReader, ToRow, Usual, callback_columns, insert_sql, placeholders,
    policies_columns, row, row_count, schedule_columns, select, stored_row, to_json,
};
use crate::store::{ReadTx, WriteTx};

stored_row!(field_columns, CueFields {
    slug, name, description, tags, transport, schedule = (schedule_columns), callback = (callback_columns),
    retry = "max_attempts, backoff_minutes, backoff_seconds", on_failure, verification,
    policies = (policies_columns),
});

row!(columns, "", Cue {
    key, id, user_key, last_run, run_count, missed_count, payload_key, created_at, status, next_run,
    fields = (field_columns), warning, updated_at,
    failing = "coalesce((SELECT failures FROM consecutive_failures WHERE cue_key = cues.key), 0)",
});

const COLUMNS: &str = columns!();

const LIST_NAMESPACE: &str = "SELECT id, slug, next_run,
         coalesce((SELECT octet_length(body) FROM payloads WHERE payloads.key = payload_key), 0)
    FROM cues WHERE user_key = ?1 AND slug >= ?2 AND slug < ?3 ORDER BY slug LIMIT ?4 + 0";

/// The columns that a change to a cue may alter, except the payload.
macro_rules! changed_columns {
    () => {
        concat!("status, next_run, ", field_columns!(), ", warning, updated_at, destination_hash")
    };
}

fn changed(cue: &Cue) -> impl ToRow {
    let destination = cue.fields.callback.as_ref().map(Callback::destination_hash);
    (cue.status, cue.next_run, &cue.fields, &cue.warning, cue.updated_at, destination)
}

static INSERT: LazyLock<String> = LazyLock::new(|| {
    let kept = "id, user_key, last_run, run_count, missed_count, payload_key, created_at";
    insert_sql("cues", &[kept, changed_columns!()].join(", "))
});

static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let columns = changed_columns!();
    format!("UPDATE cues SET ({columns}) = ({}) WHERE key = ?", placeholders(columns))
});

pub fn insert(tx: &WriteTx<'_>, mut cue: Cue, payload: Option<&Payload>) -> Result<Cue> {
    let Cue { id, user_key, last_run, run_count, missed_count, payload_key, created_at, .. } = &cue;
    let kept = (id, user_key, last_run, run_count, missed_count, payload_key, created_at);
    tx.run(&INSERT, (kept, changed(&cue)))?;
    cue.key = CueKey::new(tx.last_insert_rowid());
    tx.counters().add_cue(cue.user_key, cue.status);
    if payload.is_some() {
        cue.payload_key = set_payload(tx, cue.key, payload)?;
    }
    Ok(cue)
}

pub fn save(tx: &WriteTx<'_>, cue: &Cue) -> Result<()> {
    if let Some(before) = tx.find("SELECT status FROM cues WHERE key = ?1", [cue.key])? {
        tx.counters().move_cues(cue.user_key, before, cue.status, 1);
    }
    tx.run(&UPDATE, (changed(cue), cue.key))
}

pub fn find(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<Option<Cue>> {
    let sql = select!(columns, "FROM cues WHERE id = ?2 AND user_key = ?1");
    read.find(sql, (user_key, id))
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
    read.find(sql, (user_key, id))
}

/// Returns the id of the user's cue with this slug.
pub fn find_id_of_slug(
    read: &ReadTx<'_>,
    user_key: UserKey,
    slug: &Slug,
) -> Result<Option<String>> {
    read.find("SELECT id FROM cues WHERE user_key = ?1 AND slug = ?2", (user_key, slug))
}

pub fn find_by_slug(read: &ReadTx<'_>, user_key: UserKey, slug: &Slug) -> Result<Option<Cue>> {
    read.find(select!(columns, "FROM cues WHERE user_key = ?1 AND slug = ?2"), (user_key, slug))
}

row! {
/// A cue as the list of its namespace has it.
#[derive(Debug)]
pub struct NamedCue {
    pub id: String,
    pub slug: String,
    pub next_run: Option<Timestamp>,
    pub payload_bytes: i64,
} }

/// The first of the user's cues in a namespace, in the order of their slugs.
pub fn list_namespace(
    read: &ReadTx<'_>,
    user_key: UserKey,
    namespace: &str,
    limit: usize,
) -> Result<Vec<NamedCue>> {
    let bounds = SlugFilter::Namespace(namespace.to_owned()).bounds();
    read.all(LIST_NAMESPACE, (user_key, bounds, row_count(limit)))
}

/// The namespace of the file that a cue comes from; empty for a file without one, `None` if it comes from no file.
pub fn find_source(read: &ReadTx<'_>, key: CueKey) -> Result<Option<String>> {
    Ok(read.find("SELECT source FROM cues WHERE key = ?1", [key])?.flatten())
}

pub fn set_source(tx: &WriteTx<'_>, key: CueKey, source: &str) -> Result<()> {
    tx.run("UPDATE cues SET source = ?2 WHERE key = ?1", (key, source))
}

pub fn find_key(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<Option<CueKey>> {
    read.find("SELECT key FROM cues WHERE id = ?2 AND user_key = ?1", (user_key, id))
}

row! { source_columns, "",
#[derive(Debug)]
pub struct DeliverySource {
    pub user_key: UserKey,
    pub webhook_secret: Secret,
    pub callback_url: Option<String>,
} }

pub fn find_delivery_source(read: &ReadTx<'_>, id: &CueId) -> Result<Option<DeliverySource>> {
    let sql = select!(
        source_columns,
        "FROM cues JOIN users ON users.key = cues.user_key WHERE cues.id = ?1"
    );
    read.find(sql, [id.as_str()])
}

pub fn find_by_key(read: &ReadTx<'_>, key: CueKey) -> Result<Option<Cue>> {
    read.find(select!(columns, "FROM cues WHERE key = ?1"), [key])
}

pub fn record_run(tx: &WriteTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<()> {
    let sql =
        "UPDATE cues SET last_run = ?2, run_count = run_count + 1, updated_at = ?2 WHERE key = ?1";
    tx.run(sql, (cue_key, now))
}

impl ToRow for Tags {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        (!self.is_empty()).then(|| to_json(self)).transpose()?.bind(to)
    }
}

impl ToRow for StoredSchedule {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let (cron, every, from, at) = match &self.when {
            ScheduleSpec::Recurring(cron) => (Some(cron), None, None, None),
            ScheduleSpec::Every(every, from) => (None, Some(every), Some(from), None),
            ScheduleSpec::Once(at) => (None, None, None, Some(at)),
        };
        let Bounds { start, end, jitter_seconds, delay_seconds } = self.bounds;
        let bounds = (start, end, jitter_seconds, delay_seconds.unwrap_or_default());
        (cron, every, from, at, &self.timezone, self.catch_up, bounds).bind(to)
    }
}

impl ToRow for Option<Callback> {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let none = None::<()>;
        let Some(Callback { url, method, headers, outcome_from_response, timeout_seconds, flow }) =
            self
        else {
            let unused = (Method::Post, "[]", false, DEFAULT_TIMEOUT_SECONDS);
            return (none, unused, none, none, none).bind(to);
        };
        let headers = to_json(headers.expose())?;
        (url, method, headers, outcome_from_response, timeout_seconds).bind(to)?;
        match flow {
            Some(flow) => (&flow.key, flow.parallelism, flow.per_minute).bind(to),
            None => (none, none, none).bind(to),
        }
    }
}

impl ToRow for RetryPolicy {
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        let seconds = self.backoff_seconds.as_ref().map(to_json).transpose()?;
        (self.max_attempts, to_json(&self.backoff_minutes)?, seconds).bind(to)
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

const ABOVE_LIMIT: &str = "SELECT key FROM cues WHERE user_key = ?1 AND status = 'active' ORDER BY key LIMIT -1 OFFSET ?2";

/// Pauses `cue`, which holds its state before the pause.
pub fn pause(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, CueStatus::Paused, 1);
    tx.run(
        "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?2 WHERE key = ?1",
        (cue.key, now),
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
    read.all(&sql, (user_key, limit, now))
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
    let paused: Vec<CueKey> = tx.all(&sql, (user_key, limit, now))?;
    let count = row_count(paused.len());
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
    tx.run("UPDATE cues SET payload_key = ?2 WHERE key = ?1", (cue_key, payload_key))?;
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
    Ok(read.find(sql, (user_key, id))?.unwrap_or(0))
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
    let Payload { task, agent, body, .. } = payload;
    tx.insert(
        "payloads",
        "cue_key, is_single_use, task, agent, body",
        (cue_key, is_single_use, task, agent, body),
    )
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
    let (mut count, mut found) = (0, None);
    tx.visit(sql, (cue_key, MAX_EXECUTIONS_READ), |columns| {
        count += 1;
        found = columns.get()?;
        Ok(found.is_none())
    })?;
    Ok(match found {
        Some(payload) => SharedPayload::Found(payload),
        None if count < MAX_EXECUTIONS_READ => SharedPayload::None,
        None => SharedPayload::Unknown,
    })
}

#[cfg(test)]
crate::store::test_support::plan_test! { cues_above_the_limit_and_payloads_in_use_are_found_by_index:
    LIST_NAMESPACE => "SEARCH cues USING INDEX cues_by_slug (user_key=? AND slug>? AND slug<?)",
    ABOVE_LIMIT => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)",
    OLDEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    NEWEST_FIRST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
}
