//! Due cues: finds them, moves them to their next run, records missed runs and ends those that run once.

use jiff::Timestamp;

use crate::domain::account::stats::Figures;
use crate::domain::cue::{CueStatus, StoredSchedule};
use crate::domain::cue_fields::Policies;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::schedule::Occurrences;
use crate::domain::schedule::catch_up::MissReason;
use crate::error::Result;
use crate::store::db::columns::{policies_columns, row, schedule_columns, select};
use crate::store::db::counters::WriteEvent;
use crate::store::{ReadTx, WriteTx};

row! { columns, "",
#[derive(Debug, Clone)]
pub struct DueCue {
    pub key: CueKey = "cues.key",
    pub user_key: UserKey,
    pub next_run: Timestamp,
    pub run_count: i64,
    pub schedule: StoredSchedule = (schedule_columns),
    pub is_worker: bool = "transport = 'worker'",
    /// Fairness key of the callback's host and port; `None` for worker cues.
    pub destination: Option<i64> = "destination_hash",
    pub payload_key: Option<i64>,
    pub task: Option<String>,
    pub agent: Option<String>,
    pub policies: Policies = (policies_columns),
} }
row! { missed_columns, "missed_runs.",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedRuns {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: i64,
    pub reason: String,
} }
pub(in crate::store) use missed_columns;

macro_rules! due_cues {
    ($filter:literal) => {
        concat!(
            "SELECT cues.key, ",
            columns!(),
            " FROM cues LEFT JOIN payloads ON payloads.key = payload_key AND transport = 'worker'
              WHERE status = 'active' AND next_run <= ?1 ",
            $filter
        )
    };
}

pub const LIST: &str = due_cues!("AND next_run > ?3 ORDER BY next_run LIMIT ?2 + 0");

const FIND: &str = due_cues!("AND cues.key = ?2");

pub const NEXT: &str = "SELECT next_run FROM cues WHERE status = 'active' AND next_run IS NOT NULL ORDER BY next_run LIMIT 1";

/// The users and keys of cues that became due after `?1` and up to `?2`, longest overdue first. Reads the index only.
pub const BACKLOG: &str = "SELECT user_key, key FROM cues
      WHERE status = 'active' AND next_run > ?1 AND next_run <= ?2 ORDER BY next_run LIMIT ?3 + 0";

/// A cue that cannot be read is an inner error, so that it does not hold up the others. Longest overdue first.
pub fn list(
    read: &ReadTx<'_>,
    after: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(CueKey, rusqlite::Result<DueCue>)>> {
    read.all(LIST, (until, limit, after))
}

pub fn find(read: &ReadTx<'_>, key: CueKey, now: Timestamp) -> Result<Option<DueCue>> {
    let found: Option<(CueKey, DueCue)> = read.find(FIND, (now, key))?;
    Ok(found.map(|(_, cue)| cue))
}

pub fn backlog(
    read: &ReadTx<'_>,
    after: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(UserKey, CueKey)>> {
    read.all(BACKLOG, (after, until, limit))
}

/// As in [`list`], a cue that cannot be read is an inner error.
pub fn find_all(
    read: &ReadTx<'_>,
    keys: &[CueKey],
    after: Timestamp,
    until: Timestamp,
) -> Result<Vec<(CueKey, rusqlite::Result<DueCue>)>> {
    let mut due = Vec::with_capacity(keys.len());
    for key in keys {
        due.extend(read.find::<(CueKey, rusqlite::Result<DueCue>)>(FIND, (until, key))?);
    }
    due.retain(|(_, cue)| cue.as_ref().map_or(true, |cue| cue.next_run > after));
    Ok(due)
}

pub fn next(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT, ())
}

pub fn advance(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    next_run: Option<Timestamp>,
    runs: usize,
    missed: u64,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "UPDATE cues SET next_run = ?2, run_count = run_count + ?3, missed_count = missed_count + ?4,
                last_run = CASE WHEN ?3 > 0 THEN ?5 ELSE last_run END
          WHERE key = ?1",
        (cue_key, next_run, runs, missed, now),
    )
}

/// Completes a recurring cue that has no further run.
pub fn complete(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    now: Timestamp,
) -> Result<()> {
    let sql = "UPDATE cues SET status = 'completed', updated_at = ?2 WHERE key = ?1";
    tx.run(sql, (cue_key, now))?;
    tx.counters().move_cues(user_key, CueStatus::Active, CueStatus::Completed, 1);
    Ok(())
}

pub fn fail_cue(tx: &WriteTx<'_>, cue_key: CueKey, reason: &str, now: Timestamp) -> Result<()> {
    let sql = "UPDATE cues SET status = 'failed', next_run = NULL, warning = ?2, updated_at = ?3
                WHERE key = ?1 AND status = 'active' RETURNING user_key";
    if let Some(user_key) = tx.find(sql, (cue_key, reason, now))? {
        tx.counters().move_cues(user_key, CueStatus::Active, CueStatus::Failed, 1);
    }
    Ok(())
}

row! { once_columns, "",
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnceCue {
    pub at: Timestamp,
    pub is_due: bool = "next_run IS NOT NULL",
    status: CueStatus,
    user_key: UserKey,
} }

pub fn find_once(read: &ReadTx<'_>, cue_key: CueKey) -> Result<Option<OnceCue>> {
    // Reads few columns, because it runs after every delivery.
    read.find(select!(once_columns, "FROM cues WHERE key = ?1 AND at IS NOT NULL"), [cue_key])
}

pub fn end_once(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    cue: &OnceCue,
    status: CueStatus,
    now: Timestamp,
) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, status, 1);
    let sql = "UPDATE cues SET status = ?2, updated_at = ?3 WHERE key = ?1";
    tx.run(sql, (cue_key, status, now))
}

const EXTEND_MISSED: &str = "UPDATE missed_runs SET last = ?3, count = count + ?4
  WHERE key = (SELECT key FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1) AND reason = ?5 AND ?2 > last
    AND last > (SELECT scheduled_for FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1)";

/// Records at `now` the runs of a user's cue for which no execution was created. Does nothing if `missed` is empty.
pub fn insert_missed(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    cue_key: CueKey,
    missed: Occurrences,
    reason: MissReason,
    now: Timestamp,
) -> Result<()> {
    let (Some(first), Some(last)) = (missed.first, missed.last) else { return Ok(()) };
    let count = i64::try_from(missed.count).unwrap_or(i64::MAX);
    let row = (cue_key, first, last, count, reason);
    // While one execution lasts, the runs that it skips are one row.
    if reason != MissReason::Overlap || !tx.changes(EXTEND_MISSED, row)? {
        tx.run(
            "INSERT INTO missed_runs (cue_key, first, last, count, reason) VALUES (?1, ?2, ?3, ?4, ?5)",
            row,
        )?;
    }
    tx.counters().add_to_hour(user_key, now, &Figures { missed: count, ..Figures::default() });
    tx.count(WriteEvent::Missed(reason), missed.count);
    Ok(())
}

pub fn add_missed_count(tx: &WriteTx<'_>, cue_key: CueKey, count: i64) -> Result<()> {
    tx.run("UPDATE cues SET missed_count = missed_count + ?2 WHERE key = ?1", (cue_key, count))
}

pub fn list_missed(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    limit: u32,
    offset: u64,
) -> Result<(Vec<MissedRuns>, i64)> {
    let sql = select!(
        missed_columns,
        "FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0 OFFSET ?3"
    );
    let missed = read.all(sql, (cue_key, limit, offset))?;
    Ok((missed, read.one("SELECT count(*) FROM missed_runs WHERE cue_key = ?1", [cue_key])?))
}

/// A clock that was ahead fired the run, before `cued clock accept` set the cue back (contract §4.12).
pub fn is_fired_ahead(read: &ReadTx<'_>, cue_key: CueKey, at: Timestamp) -> Result<bool> {
    let sql = "SELECT 1 FROM fired_ahead WHERE cue_key = ?1 AND first <= ?2 AND last >= ?2";
    read.any(sql, (cue_key, at))
}

pub fn forget_fired_ahead(tx: &WriteTx<'_>, cue_key: CueKey, next_run: Timestamp) -> Result<()> {
    tx.run("DELETE FROM fired_ahead WHERE cue_key = ?1 AND last < ?2", (cue_key, next_run))
}

pub fn has_fired_ahead(read: &ReadTx<'_>) -> Result<bool> {
    read.any("SELECT 1 FROM fired_ahead LIMIT 1", ())
}
