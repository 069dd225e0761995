//! Cues: inserted, read and updated. `cue_list` lists them, `matching` finds those that a filter matches, `recent_runs`
//! their latest runs; `payloads` holds their payloads, `pauses` pauses them, `due_cues` finds due cues and records missed
//! runs.

pub mod cue_list;
pub mod cue_selection;
pub mod due_cues;
pub mod matching;
pub mod pauses;
pub mod payloads;
pub mod recent_runs;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, CueStatus, ScheduleSpec, Transport};
use crate::domain::execution::verification::VerificationMode;
use crate::domain::ids::CueId;
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::callback_url::destination_hash;
use crate::error::Result;
use crate::store::cues::payloads::set_payload;
use crate::store::db::columns::{
    RowReader, invalid_column, millis, parse_callback, parse_retry_policy, parse_word, read_instant,
    read_schedule,
};
use crate::store::{ReadTx, WriteTx};

macro_rules! columns {
    () => {
        "key, id, user_key, name, description, status, next_run, last_run, run_count, missed_count,
    cron, at, timezone, catch_up, transport, callback_url, callback_method, callback_headers, outcome_from_response,
    payload_key, max_attempts, backoff_minutes, on_failure, verification, warning, created_at, updated_at, claim_within_minutes,
    (SELECT failures FROM consecutive_failures WHERE cue_key = cues.key)"
    };
}

const COLUMNS: &str = columns!();

const FIND_WITH_PAYLOAD: &str = concat!(
    "SELECT ",
    columns!(),
    ", (SELECT body FROM payloads WHERE payloads.key = payload_key) AS payload FROM cues WHERE id = ?2 AND user_key = ?1"
);

const FIND: &str = concat!("SELECT ", columns!(), " FROM cues WHERE id = ?2 AND user_key = ?1");

/// Inserts a cue and its payload. Returns the cue with both row keys set.
pub fn insert(tx: &WriteTx<'_>, mut cue: Cue, payload: Option<&Payload>) -> Result<Cue> {
    tx.prepare_cached(
        "INSERT INTO cues (id, user_key, status, next_run, last_run, run_count, missed_count, transport,
                           destination_hash, cron, at, timezone, catch_up, max_attempts, backoff_minutes, on_failure,
                           verification, callback_url, callback_method, callback_headers, name, description, warning,
                           created_at, updated_at, claim_within_minutes, outcome_from_response)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
                 ?22, ?23, ?24, ?25, ?26, ?27)",
    )?
    .execute(params![
        cue.id,
        cue.user_key,
        cue.status.as_str(),
        cue.next_run.map(millis),
        cue.last_run.map(millis),
        cue.run_count,
        cue.missed_count,
        cue.transport.as_str(),
        callback_hash(&cue),
        cron(&cue),
        at(&cue),
        cue.schedule.timezone,
        cue.schedule.catch_up.as_str(),
        cue.retry.max_attempts,
        backoff(&cue),
        on_failure(&cue)?,
        cue.verification.as_str(),
        cue.callback.as_ref().map(|callback| &callback.url),
        method(&cue),
        headers(&cue),
        cue.name,
        cue.description,
        cue.warning,
        millis(cue.created_at),
        millis(cue.updated_at),
        cue.claim_within_minutes,
        takes_outcome(&cue),
    ])?;
    cue.key = tx.last_insert_rowid();
    tx.counters().add_cue(cue.user_key, cue.status);
    if payload.is_some() {
        cue.payload_key = set_payload(tx, cue.key, payload)?;
    }
    Ok(cue)
}

/// Updates the columns that a change to a cue may alter, except the payload.
pub fn save(tx: &WriteTx<'_>, cue: &Cue) -> Result<()> {
    let before = tx
        .prepare_cached("SELECT status FROM cues WHERE key = ?1")?
        .query_row([cue.key], |row| parse_word(row, "status", CueStatus::parse))
        .optional()?;
    if let Some(before) = before {
        tx.counters().move_cues(cue.user_key, before, cue.status, 1);
    }
    tx.prepare_cached(
        "UPDATE cues SET status = ?2, next_run = ?3, destination_hash = ?4, cron = ?5, at = ?6, timezone = ?7,
                catch_up = ?8, max_attempts = ?9, backoff_minutes = ?10, on_failure = ?11, verification = ?12,
                callback_url = ?13, callback_method = ?14, callback_headers = ?15, name = ?16, description = ?17,
                warning = ?18, updated_at = ?19, claim_within_minutes = ?20, outcome_from_response = ?21
          WHERE key = ?1",
    )?
    .execute(params![
        cue.key,
        cue.status.as_str(),
        cue.next_run.map(millis),
        callback_hash(cue),
        cron(cue),
        at(cue),
        cue.schedule.timezone,
        cue.schedule.catch_up.as_str(),
        cue.retry.max_attempts,
        backoff(cue),
        on_failure(cue)?,
        cue.verification.as_str(),
        cue.callback.as_ref().map(|callback| &callback.url),
        method(cue),
        headers(cue),
        cue.name,
        cue.description,
        cue.warning,
        millis(cue.updated_at),
        cue.claim_within_minutes,
        takes_outcome(cue),
    ])?;
    Ok(())
}

/// The user's cue with this id.
pub fn find(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<Option<Cue>> {
    Ok(read.prepare_cached(FIND)?.query_row(params![user_key, id], read_cue).optional()?)
}

/// The user's cue with this id, and the text of its payload. One statement, because this is the most frequent read of the API.
pub fn find_with_payload(
    read: &ReadTx<'_>,
    user_key: i64,
    id: &str,
) -> Result<Option<(Cue, Option<String>)>> {
    let mut find = read.prepare_cached(FIND_WITH_PAYLOAD)?;
    let found = find.query_row(params![user_key, id], |row| Ok((read_cue(row)?, row.get("payload")?)));
    Ok(found.optional()?)
}

/// The row key of the user's cue with this id.
pub fn find_key(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<Option<i64>> {
    let mut key = read.prepare_cached("SELECT key FROM cues WHERE id = ?2 AND user_key = ?1")?;
    Ok(key.query_row(params![user_key, id], |row| row.get(0)).optional()?)
}

/// The properties that tell whose a received delivery is.
#[derive(Debug)]
pub struct DeliverySource {
    pub user_key: i64,
    pub webhook_secret: String,
    /// `None` for a cue of workers.
    pub callback_url: Option<String>,
}

/// The source of the deliveries of this cue.
pub fn find_delivery_source(read: &ReadTx<'_>, id: &CueId) -> Result<Option<DeliverySource>> {
    let mut source = read.prepare_cached(
        "SELECT user_key, webhook_secret, callback_url
           FROM cues JOIN users ON users.key = cues.user_key
          WHERE cues.id = ?1",
    )?;
    let found = source.query_row([id.as_str()], |row| {
        Ok(DeliverySource { user_key: row.get(0)?, webhook_secret: row.get(1)?, callback_url: row.get(2)? })
    });
    Ok(found.optional()?)
}

/// The cue in row `key`.
pub fn find_by_key(read: &ReadTx<'_>, key: i64) -> Result<Option<Cue>> {
    let sql = format!("SELECT {COLUMNS} FROM cues WHERE key = ?1");
    Ok(read.prepare_cached(&sql)?.query_row([key], read_cue).optional()?)
}

/// Records a run: sets `last_run` to `now` and adds one to `run_count`.
pub fn record_run(tx: &WriteTx<'_>, cue_key: i64, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "UPDATE cues SET last_run = ?2, run_count = run_count + 1, updated_at = ?2 WHERE key = ?1",
    )?
    .execute(params![cue_key, millis(now)])?;
    Ok(())
}

/// The columns of a `once` cue that the end of its run depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnceCue {
    /// The time of its only run.
    pub at: Timestamp,
    /// True if that run has not been fired yet.
    pub is_due: bool,
    status: CueStatus,
    user_key: i64,
}

/// The cue in row `cue_key`, if it is a `once` cue.
pub fn find_once(read: &ReadTx<'_>, cue_key: i64) -> Result<Option<OnceCue>> {
    // Reads few columns, because it runs after every delivery.
    let mut once = read.prepare_cached(
        "SELECT at, next_run, user_key, status FROM cues WHERE key = ?1 AND at IS NOT NULL",
    )?;
    let once = once.query_row([cue_key], |row| {
        Ok(OnceCue {
            at: read_instant(row.get(0)?)?,
            is_due: row.get::<_, Option<i64>>(1)?.is_some(),
            user_key: row.get(2)?,
            status: parse_word(row, "status", CueStatus::parse)?,
        })
    });
    Ok(once.optional()?)
}

/// Sets the final status of the `once` cue in row `cue_key`.
pub fn end_once(
    tx: &WriteTx<'_>,
    cue_key: i64,
    cue: &OnceCue,
    status: CueStatus,
    now: Timestamp,
) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, status, 1);
    tx.prepare_cached("UPDATE cues SET status = ?2, updated_at = ?3 WHERE key = ?1")?.execute(params![
        cue_key,
        status.as_str(),
        millis(now)
    ])?;
    Ok(())
}

/// Reads a cue from a row with [`COLUMNS`].
fn read_cue(row: &Row<'_>) -> rusqlite::Result<Cue> {
    let mut columns = RowReader::new(row);
    Ok(Cue {
        key: columns.get()?,
        id: columns.get()?,
        user_key: columns.get()?,
        name: columns.get()?,
        description: columns.get()?,
        status: columns.parse_word(CueStatus::parse)?,
        next_run: columns.maybe_instant()?,
        last_run: columns.maybe_instant()?,
        run_count: columns.get()?,
        missed_count: columns.get()?,
        schedule: read_schedule(&mut columns)?,
        transport: columns.parse_word(Transport::parse)?,
        callback: read_callback(&mut columns)?,
        payload_key: columns.get()?,
        retry: parse_retry_policy(columns.get()?, columns.text()?)?,
        on_failure: serde_json::from_str(columns.text()?)
            .map_err(|error| invalid_column(&error.to_string()))?,
        verification: columns.parse_word(VerificationMode::parse)?,
        warning: columns.get()?,
        created_at: columns.instant()?,
        updated_at: columns.instant()?,
        claim_within_minutes: columns.get()?,
        failing: columns.get::<Option<i64>>()?.unwrap_or(0),
    })
}

fn read_callback(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Option<Callback>> {
    let (url, method, headers) = (columns.get::<Option<String>>()?, columns.text()?, columns.text()?);
    let outcome_from_response = columns.get()?;
    url.map(|url| parse_callback(url, method, headers, outcome_from_response)).transpose()
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

fn cron(cue: &Cue) -> Option<&str> {
    match &cue.schedule.when {
        ScheduleSpec::Recurring(cron) => Some(cron),
        ScheduleSpec::Once(_) => None,
    }
}

fn at(cue: &Cue) -> Option<i64> {
    match cue.schedule.when {
        ScheduleSpec::Recurring(_) => None,
        ScheduleSpec::Once(at) => Some(millis(at)),
    }
}

fn callback_hash(cue: &Cue) -> Option<i64> {
    cue.callback.as_ref().map(|callback| destination_hash(&callback.url))
}

fn method(cue: &Cue) -> &'static str {
    cue.callback.as_ref().map_or(Method::Post, |callback| callback.method).as_str()
}

fn takes_outcome(cue: &Cue) -> bool {
    cue.callback.as_ref().is_some_and(|callback| callback.outcome_from_response)
}

fn headers(cue: &Cue) -> String {
    let headers: &[(String, String)] = cue.callback.as_ref().map_or(&[], |callback| &callback.headers);
    Value::from(
        headers
            .iter()
            .map(|(name, value)| Value::from(vec![name.as_str(), value.as_str()]))
            .collect::<Vec<_>>(),
    )
    .to_string()
}

fn backoff(cue: &Cue) -> String {
    Value::from(cue.retry.backoff_minutes.clone()).to_string()
}

fn on_failure(cue: &Cue) -> Result<String> {
    serde_json::to_string(&cue.on_failure)
        .map_err(|error| crate::error::Error::fault_from("on_failure", error))
}
