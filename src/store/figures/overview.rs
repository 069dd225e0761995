//! The part of the overview that is about a user: numbers of cues, executions and workers, and the few cues that need
//! attention. Read along indexes that begin with the user or with a cue of the user, never over the history.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::CANCELLED;
use crate::domain::execution::worker::{ACTIVE_FOR, DEAD_AFTER};
use crate::domain::ids::ExecutionId;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::cues::due_cues::{MissedRuns, missed_columns};
use crate::store::db::columns::{millis, row};
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

const CUES: &str = "SELECT active_cues, paused_cues, completed_cues, failed_cues,
        (SELECT count(*) FROM cues JOIN consecutive_failures ON cue_key = cues.key WHERE user_key = ?1)
   FROM users WHERE key = ?1";

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
const MISSED: &str = concat!(
    "SELECT id, name, ",
    missed_columns!(),
    " FROM (SELECT key AS cue, (SELECT max(key) FROM missed_runs WHERE cue_key = cues.key) AS newest
           FROM cues WHERE user_key = ?1 ORDER BY newest DESC LIMIT ?2 + 0) AS cue
   JOIN missed_runs ON missed_runs.cue_key = cue JOIN cues ON cues.key = cue
  ORDER BY missed_runs.key DESC LIMIT ?2 + 0"
);

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

const WORKERS: &str = "SELECT coalesce(sum(last_heartbeat > ?2), 0),
        coalesce(sum(last_heartbeat <= ?2 AND last_heartbeat > ?3), 0), coalesce(sum(last_heartbeat <= ?3), 0)
   FROM workers WHERE user_key = ?1";

row! {
/// Cues by status, and those that fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CueCounts {
    pub active: i64,
    pub paused: i64,
    pub completed: i64,
    pub failed: i64,
    /// Cues whose last ended execution failed.
    pub failing: i64,
} }
row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextRun {
    pub cue_id: String,
    pub name: String,
    pub at: Timestamp,
    pub timezone: String,
} }
row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    pub execution_id: ExecutionId,
    pub at: Timestamp,
    pub cause: Option<String>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
} }
row! {
/// Unfinished executions, each number at most [`MAX_WAITING`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    pub send: i64,
    pub claim: i64,
    pub retry: i64,
    pub delivering: i64,
} }
row! {
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub active: i64,
    pub stale: i64,
    pub dead: i64,
} }

/// The numbers of a user, and the cues that need attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    pub cues: CueCounts,
    pub next: Vec<NextRun>,
    /// The cues with the most failures in a row.
    pub failing: Vec<FailingCue>,
    /// The intervals of missed runs that were recorded last, with the id and name of their cues.
    pub missed: Vec<(String, String, MissedRuns)>,
    pub waiting: WaitingCounts,
    pub workers: WorkerCounts,
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

pub fn read(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<Overview> {
    let before = |age| millis(saturating_sub(now, age));
    Ok(Overview {
        cues: read.one(CUES, [user_key])?,
        next: read.all(NEXT, params![user_key, MAX_NEXT])?,
        failing: failing(read, user_key)?,
        missed: read.all(MISSED, params![user_key, MAX_MISSED])?,
        waiting: read.one(WAITING, params![user_key, MAX_WAITING])?,
        workers: read.one(WORKERS, [user_key, before(ACTIVE_FOR), before(DEAD_AFTER)])?,
    })
}

fn failing(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<FailingCue>> {
    let cues: Vec<(i64, String, String, i64)> = read.all(FAILING, params![user_key, MAX_FAILING])?;
    let with_last = cues.into_iter().map(|(key, cue_id, name, streak)| {
        let last = read.find(LAST_FAILED, params![key, MAX_NEWEST, CANCELLED])?;
        Ok(FailingCue { cue_id, name, streak, last })
    });
    with_last.collect()
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_query_of_the_overview_begins_with_the_user_or_a_cue_of_it:
    CUES => "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
    CUES => "SEARCH cues USING INDEX cues_by_user (user_key=?)",
    NEXT => "cues_by_user_and_status (user_key=? AND status=?)",
    NEXT => "USE TEMP B-TREE FOR ORDER BY",
    FAILING => "SEARCH cues USING INDEX cues_by_user (user_key=?)",
    FAILING => "USE TEMP B-TREE FOR ORDER BY",
    LAST_FAILED => "SEARCH e USING INDEX executions_by_cue (cue_key=?)",
    LAST_FAILED => "USE TEMP B-TREE FOR ORDER BY",
    MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
    MISSED => "SCAN cue",
    MISSED => "USE TEMP B-TREE FOR ORDER BY",
    WAITING => "executions_to_send (user_key=?",
    WAITING => "executions_to_claim (user_key=?",
    WAITING => "executions_waiting_by_user (user_key=?",
    WAITING => "executions_in_flight (user_key=?",
    WORKERS => "SEARCH workers USING PRIMARY KEY (user_key=?)",
}
