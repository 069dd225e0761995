//! The part of the overview that is about a user: numbers of cues, executions and workers, and the few cues to look at first. Read
//! along indexes that begin with the user or with a cue of the user, never over the history.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::cue::CueStatus;
use crate::domain::execution::queue_change::CANCELLED;
use crate::domain::execution::worker::{ACTIVE_FOR, DEAD_AFTER};
use crate::domain::ids::ExecutionId;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::cues::due_cues::MissedRuns;
use crate::store::db::columns::{instant, millis};
use crate::store::figures::cue_figures::ended_at;

/// Cues in the lists of the next runs and of failing cues, and intervals of missed runs: what fits on a screen.
const MAX_NEXT: u32 = 10;
const MAX_FAILING: u32 = 10;
const MAX_MISSED: u32 = 5;

/// Queued executions are counted up to this number: 10 ms for those that wait for a retry, whose rows are read.
pub const MAX_WAITING: u32 = 10_000;

/// The newest executions of a failing cue, among which the one that failed last is looked for.
const MAX_NEWEST: u32 = 200;

macro_rules! count {
    ($index:literal, $filter:literal) => {
        concat!(
            "(SELECT count(*) FROM (SELECT 1 FROM executions INDEXED BY ",
            $index,
            " WHERE user_key = ?1 AND ",
            $filter,
            " LIMIT ?2 + 0))"
        )
    };
}

const CUES: &str = "SELECT count(*) FROM cues WHERE user_key = ?1 AND status = ?2";

const COUNT_FAILING: &str =
    "SELECT count(*) FROM cues JOIN consecutive_failures ON cue_key = cues.key WHERE user_key = ?1";

const NEXT: &str = "SELECT id, name, next_run, timezone FROM cues
  WHERE user_key = ?1 AND status = 'active' AND next_run IS NOT NULL ORDER BY next_run LIMIT ?2 + 0";

const FAILING: &str =
    "SELECT cues.key, id, name, failures FROM cues JOIN consecutive_failures ON cue_key = cues.key
  WHERE user_key = ?1 ORDER BY failures DESC, cues.key LIMIT ?2 + 0";

// A cancelled execution is no failure of the cue. A worker may report an error with that word, and then has an outcome. An
// execution that was created earlier may end later, after its retries.
const LAST_FAILED: &str = concat!(
    "SELECT id, ended_at, cause, http_status, error_message
       FROM (SELECT e.id, e.key, e.status, e.cause, e.http_status, e.error_message, e.outcome_state, ",
    ended_at!(),
    " AS ended_at FROM executions e WHERE e.cue_key = ?1 ORDER BY e.key DESC LIMIT ?2 + 0)
      WHERE status = 'failed' AND NOT (error_message IS ?3 AND outcome_state IS NULL)
      ORDER BY ended_at DESC, key DESC LIMIT 1"
);

// The newest intervals belong to the cues with the newest ones. After an outage every cue has one: the rows of the others
// are not read. Cues without any come last.
const MISSED: &str = "SELECT id, name, first, last, count, reason
   FROM (SELECT key AS cue, (SELECT max(key) FROM missed_runs WHERE cue_key = cues.key) AS newest
           FROM cues WHERE user_key = ?1 ORDER BY newest DESC LIMIT ?2 + 0) AS cue
   JOIN missed_runs ON missed_runs.cue_key = cue JOIN cues ON cues.key = cue
  ORDER BY missed_runs.key DESC LIMIT ?2 + 0";

const WAITING: &str = concat!(
    "SELECT ",
    count!("executions_to_send", "queue_name = 'send'"),
    ", ",
    count!("executions_to_claim", "queue_name = 'claim'"),
    ", ",
    count!("executions_waiting_by_user", "queue_name = 'waiting' AND status = 'retrying'"),
    ", ",
    count!("executions_in_flight", "status = 'delivering'")
);

const WORKERS: &str =
    "SELECT count(*), coalesce(sum(last_heartbeat > ?2), 0), coalesce(sum(last_heartbeat <= ?3), 0)
   FROM workers WHERE user_key = ?1";

/// The numbers of a user, and the cues that need attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    pub cues: CueCounts,
    /// The next runs, earliest first.
    pub next: Vec<NextRun>,
    /// The cues with the most failures in a row.
    pub failing: Vec<FailingCue>,
    /// The intervals of missed runs that were recorded last, with the id and name of their cues.
    pub missed: Vec<(String, String, MissedRuns)>,
    pub waiting: WaitingCounts,
    pub workers: WorkerCounts,
}

/// Cues by status, and those that fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CueCounts {
    pub active: i64,
    pub paused: i64,
    pub completed: i64,
    pub failed: i64,
    /// Cues whose last ended execution failed.
    pub failing: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextRun {
    pub cue_id: String,
    pub name: String,
    pub at: Timestamp,
    pub timezone: String,
}

/// A cue with failures since its last success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingCue {
    pub cue_id: String,
    pub name: String,
    /// Executions that failed in a row.
    pub streak: i64,
    /// `None` if it is no longer kept, or not among the newest executions.
    pub last: Option<LastFailure>,
}

/// A failed execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    pub execution_id: ExecutionId,
    pub at: Timestamp,
    pub cause: Option<String>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
}

/// Unfinished executions, each number at most [`MAX_WAITING`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    pub send: i64,
    pub claim: i64,
    pub retry: i64,
    pub delivering: i64,
}

/// Workers by liveness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub active: i64,
    pub stale: i64,
    pub dead: i64,
}

/// Reads the overview of a user.
pub fn read(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<Overview> {
    Ok(Overview {
        cues: count_cues(read, user_key)?,
        next: next_runs(read, user_key)?,
        failing: failing(read, user_key)?,
        missed: missed(read, user_key)?,
        waiting: waiting(read, user_key)?,
        workers: workers(read, user_key, now)?,
    })
}

fn count_cues(read: &ReadTx<'_>, user_key: i64) -> Result<CueCounts> {
    let count = |status: CueStatus| {
        read.prepare_cached(CUES)?.query_row(params![user_key, status.as_str()], |row| row.get(0))
    };
    Ok(CueCounts {
        active: count(CueStatus::Active)?,
        paused: count(CueStatus::Paused)?,
        completed: count(CueStatus::Completed)?,
        failed: count(CueStatus::Failed)?,
        failing: read.prepare_cached(COUNT_FAILING)?.query_row([user_key], |row| row.get(0))?,
    })
}

fn next_runs(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<NextRun>> {
    let mut next = read.prepare_cached(NEXT)?;
    let next = next.query_map(params![user_key, MAX_NEXT], |row| {
        Ok(NextRun {
            cue_id: row.get("id")?,
            name: row.get("name")?,
            at: instant(row, "next_run")?,
            timezone: row.get("timezone")?,
        })
    })?;
    Ok(next.collect::<rusqlite::Result<_>>()?)
}

fn failing(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<FailingCue>> {
    let mut list = read.prepare_cached(FAILING)?;
    let mut rows = list.query(params![user_key, MAX_FAILING])?;
    let mut failing = Vec::new();
    while let Some(row) = rows.next()? {
        let mut last = read.prepare_cached(LAST_FAILED)?;
        let last =
            last.query_row(params![row.get::<_, i64>(0)?, MAX_NEWEST, CANCELLED], read_failure).optional()?;
        failing.push(FailingCue { cue_id: row.get(1)?, name: row.get(2)?, streak: row.get(3)?, last });
    }
    Ok(failing)
}

fn read_failure(row: &Row<'_>) -> rusqlite::Result<LastFailure> {
    Ok(LastFailure {
        execution_id: ExecutionId::from_bytes(row.get("id")?),
        at: instant(row, "ended_at")?,
        cause: row.get("cause")?,
        http_status: row.get("http_status")?,
        error_message: row.get("error_message")?,
    })
}

fn missed(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<(String, String, MissedRuns)>> {
    let mut missed = read.prepare_cached(MISSED)?;
    let missed = missed.query_map(params![user_key, MAX_MISSED], |row| {
        let runs = MissedRuns {
            first: instant(row, "first")?,
            last: instant(row, "last")?,
            count: row.get("count")?,
            reason: row.get("reason")?,
        };
        Ok((row.get("id")?, row.get("name")?, runs))
    })?;
    Ok(missed.collect::<rusqlite::Result<_>>()?)
}

fn waiting(read: &ReadTx<'_>, user_key: i64) -> Result<WaitingCounts> {
    Ok(read.prepare_cached(WAITING)?.query_row(params![user_key, MAX_WAITING], |row| {
        Ok(WaitingCounts {
            send: row.get(0)?,
            claim: row.get(1)?,
            retry: row.get(2)?,
            delivering: row.get(3)?,
        })
    })?)
}

fn workers(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<WorkerCounts> {
    let before = |age| millis(saturating_sub(now, age));
    let bounds = params![user_key, before(ACTIVE_FOR), before(DEAD_AFTER)];
    Ok(read.prepare_cached(WORKERS)?.query_row(bounds, |row| {
        let (all, active, dead): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(WorkerCounts { active, stale: all - active - dead, dead })
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn every_query_of_the_overview_begins_with_the_user_or_a_cue_of_it() {
        for sql in [CUES, COUNT_FAILING, NEXT, FAILING, LAST_FAILED, MISSED, WAITING, WORKERS] {
            let steps = plan(sql);
            // A subquery in memory, and the one row of a SELECT without a table.
            let is_own =
                |table: &str| ["CONSTANT", "cue", "(subquery"].iter().any(|own| table.starts_with(own));
            let scans = steps.iter().filter_map(|step| step.strip_prefix("SCAN "));
            assert!(scans.clone().all(is_own), "{sql}: {steps:?}");
            for step in steps.iter().filter(|step| step.starts_with("SEARCH")) {
                let keys = ["(user_key=?", "(cue_key=?", "(rowid=?)"];
                assert!(keys.iter().any(|key| step.contains(key)), "{sql}: {step}");
            }
        }
        assert!(plan(CUES)[0].contains("COVERING INDEX cues_by_user_and_status (user_key=? AND status=?)"));
    }
}
