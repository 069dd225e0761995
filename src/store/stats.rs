//! Figures of users, cues and queues. All but those of a cue are read along indexes, never over the history.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::domain::account::stats::{Figures, Grid};
use crate::domain::account::user::{ACCOUNT_DISABLED, KEYS_REVOKED};
use crate::domain::execution::CANCELLED;
use crate::domain::execution::worker::{ACTIVE_FOR, DEAD_AFTER, NOT_CLAIMED};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::accounts::users::{self, CueCounts};
use crate::store::cues::due_cues::{MissedRuns, missed_columns};
use crate::store::db::columns::{row, row_count};
use crate::store::db::counters::hour_columns;
use crate::store::{ReadTx, WriteTx};

/// Executions of a cue that are counted, the newest ones: about 0.3 s. By default a cue keeps 1,000.
const MAX_COUNTED: i64 = 100_000;

/// Intervals of missed runs that are counted, the newest ones. There is one for each outage.
const MAX_INTERVALS: i64 = 10_000;

/// `updated_at` is later if the outcome was verified since; for a delivery the start of the last attempt is nearer
/// then.
macro_rules! ended_at {
    () => {
        "coalesce(e.delivered_at, iif(e.transport = 'webhook' AND e.outcome_state IS NOT NULL, e.last_attempt_at, NULL),
                  e.updated_at)"
    };
}

macro_rules! newest {
    () => {
        concat!(
            "(SELECT e.status, e.attempts, e.scheduled_for, e.started_at, e.last_attempt_at, e.duration_ms,
                     e.triggered_by, e.created_at, e.error_message, e.outcome_state, ",
            ended_at!(),
            " AS ended_at
                FROM executions e WHERE e.cue_key = ?1 ORDER BY e.key DESC LIMIT ?2 + 0)"
        )
    };
}

// One that was queued when it ended has no times. A worker may report an error with one of the words: it has an
// outcome.
const ENDED: &str = concat!(
    "SELECT (ended_at - ?3) / ?5, sum(status = 'success'), sum(status = 'failed'),
            sum(iif(was_queued, attempts, max(attempts - 1, 0))), 0,
            count(first_start), coalesce(sum(max(first_start - scheduled_for, 0)), 0),
            coalesce(max(max(first_start - scheduled_for, 0)), 0),
            coalesce(sum(iif(was_queued, NULL, coalesce(duration_ms, max(ended_at - last_attempt_at, 0)))), 0)
       FROM (SELECT *, iif(was_queued, NULL, started_at) AS first_start
               FROM (SELECT *, status = 'failed' AND outcome_state IS NULL AND error_message IN (?6, ?7, ?8, ?9)
                            AS was_queued
                       FROM ",
    newest!(),
    ")) WHERE (status = 'success' OR status = 'failed') AND ended_at >= ?3 AND ended_at < ?4 GROUP BY 1"
);

const CUE_MISSED: &str = "SELECT (last - ?3) / ?5, sum(count)
   FROM (SELECT last, count FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0)
  WHERE last >= ?3 AND last < ?4 GROUP BY 1";

// A replay is no run of the cue.
const KEPT: &str = concat!(
    "SELECT count(*), coalesce(sum(triggered_by <> 'replay'), 0), min(created_at),
            (SELECT run_count FROM cues WHERE key = ?1)
       FROM ",
    newest!()
);

/// And whether earlier executions of the span are no longer kept. The caller checks that the cue is the user's.
pub fn cue_series(read: &ReadTx<'_>, cue_key: CueKey, grid: &Grid) -> Result<(Vec<Figures>, bool)> {
    let mut series = vec![Figures::default(); grid.len()];
    let (first, end) = grid.millis();
    let length = (end - first) / i64::try_from(grid.len()).unwrap_or(i64::MAX).max(1);
    let words = [CANCELLED, NOT_CLAIMED, ACCOUNT_DISABLED, KEYS_REVOKED];
    let [cancelled, unclaimed, disabled, revoked] = words;
    let bounds =
        (cue_key, MAX_COUNTED, first, end, length, cancelled, unclaimed, disabled, revoked);
    let mut counted: Vec<(i64, Figures)> = read.all(ENDED, bounds)?;
    let missed: Vec<(i64, i64)> =
        read.all(CUE_MISSED, (cue_key, MAX_INTERVALS, first, end, length))?;
    let missed =
        missed.into_iter().map(|(place, missed)| (place, Figures { missed, ..Figures::default() }));
    counted.extend(missed);
    for (place, figures) in counted {
        if let Some(place) = usize::try_from(place).ok().and_then(|place| series.get_mut(place)) {
            place.add(&figures);
        }
    }
    Ok((series, has_lost(read, cue_key, first)?))
}

fn has_lost(read: &ReadTx<'_>, cue_key: CueKey, first: i64) -> Result<bool> {
    let (kept, runs, oldest, run_count): (i64, i64, Option<i64>, Option<i64>) =
        read.one(KEPT, (cue_key, MAX_COUNTED))?;
    let is_cut = kept >= MAX_COUNTED || run_count.is_some_and(|run_count| run_count > runs);
    Ok(is_cut && oldest.is_none_or(|oldest| oldest > first))
}

/// Users looked at in one step of the clean-up: about a millisecond.
const USER_BATCH: i64 = 1_000;

const HOUR_BATCH: i64 = 500;

const LIST_HOURS: &str = concat!(
    "SELECT hour, ",
    hour_columns!(),
    " FROM hourly_stats WHERE user_key = ?1 AND hour >= ?2 AND hour < ?3"
);

// By user: an index by hour alone would be one more page to write in every hour of a user.
const EXPIRED_HOURS: &str =
    "SELECT key, EXISTS (SELECT 1 FROM hourly_stats WHERE user_key = users.key AND hour < ?2)
   FROM users WHERE key > ?1 ORDER BY key LIMIT ?3 + 0";

const DELETE_HOURS: &str = "DELETE FROM hourly_stats WHERE user_key = ?1 AND hour IN (
    SELECT hour FROM hourly_stats WHERE user_key = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0)";

pub fn user_series(read: &ReadTx<'_>, user_key: UserKey, grid: &Grid) -> Result<Vec<Figures>> {
    let mut series = vec![Figures::default(); grid.len()];
    let (first, end) = grid.hours();
    for (hour, figures) in read.all::<(i64, Figures)>(LIST_HOURS, (user_key, first, end))? {
        if let Some(place) = grid.place(hour).and_then(|place| series.get_mut(place)) {
            place.add(&figures);
        }
    }
    Ok(series)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredHours {
    pub users: Vec<UserKey>,
    pub last: Option<UserKey>,
}

pub fn find_expired_hours(read: &ReadTx<'_>, after: UserKey, hour: i64) -> Result<ExpiredHours> {
    let found: Vec<(UserKey, bool)> = read.all(EXPIRED_HOURS, (after, hour, USER_BATCH))?;
    let last = found.last().map(|(user_key, _)| *user_key);
    let expired = found.into_iter().filter(|(_, is_expired)| *is_expired);
    Ok(ExpiredHours { users: expired.map(|(user_key, _)| user_key).collect(), last })
}

/// Deletes hours of `users` before `hour`, one batch. Returns whether there may be more.
pub fn delete_expired_hours(tx: &WriteTx<'_>, users: &[UserKey], hour: i64) -> Result<bool> {
    let mut left = HOUR_BATCH;
    for user_key in users {
        left -= row_count(tx.change(DELETE_HOURS, (user_key, hour, left))?);
        if left <= 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Cues in the lists of the next runs and of failing cues, and intervals of missed runs: what fits on a screen.
const MAX_NEXT: u32 = 10;
const MAX_FAILING: u32 = 10;
const MAX_MISSED: u32 = 5;

/// Queued executions are counted up to this number: 10 ms for those that wait for a retry, whose rows are read.
pub const MAX_WAITING: u32 = 10_000;

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

const COUNT_FAILING: &str =
    "SELECT count(*) FROM cues JOIN consecutive_failures ON cue_key = cues.key WHERE user_key = ?1";

const NEXT: &str = "SELECT id, name, next_run, timezone FROM cues
  WHERE user_key = ?1 AND status = 'active' AND next_run IS NOT NULL ORDER BY next_run LIMIT ?2 + 0";

const FAILING: &str =
    "SELECT cues.key, id, name, failures FROM cues JOIN consecutive_failures ON cue_key = cues.key
  WHERE user_key = ?1 ORDER BY failures DESC, cues.key LIMIT ?2 + 0";

// A cancelled execution is no failure; a worker's report with that word has an outcome. An earlier execution may end
// later, after its retries.
const LAST_FAILED: &str = concat!(
    "SELECT id, ended_at, cause, http_status, error_message
       FROM (SELECT e.id, e.key, e.status, e.cause, e.http_status, e.error_message, e.outcome_state, ",
    ended_at!(),
    " AS ended_at FROM executions e WHERE e.cue_key = ?1 ORDER BY e.key DESC LIMIT ?2 + 0)
      WHERE status = 'failed' AND NOT (error_message IS ?3 AND outcome_state IS NULL)
      ORDER BY ended_at DESC, key DESC LIMIT 1"
);

// After an outage every cue has an interval: only the rows of the cues with the newest ones are read.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WaitingCounts {
    pub send: i64,
    pub claim: i64,
    pub retry: i64,
    pub delivering: i64,
} }
row! {
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCounts {
    pub active: i64,
    pub stale: i64,
    pub dead: i64,
} }

#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    pub cues: CueCounts,
    pub failing_count: i64,
    pub next: Vec<NextRun>,
    pub failing: Vec<FailingCue>,
    pub missed: Vec<(String, String, MissedRuns)>,
    pub waiting: WaitingCounts,
    pub workers: WorkerCounts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingCue {
    pub cue_id: String,
    pub name: String,
    pub streak: i64,
    /// `None` if it is no longer kept, or not among the newest executions.
    pub last: Option<LastFailure>,
}

pub fn overview(read: &ReadTx<'_>, user_key: UserKey, now: Timestamp) -> Result<Overview> {
    let before = |age| saturating_sub(now, age);
    Ok(Overview {
        cues: users::stored_cue_counts(read, user_key)?,
        failing_count: read.one(COUNT_FAILING, [user_key])?,
        next: read.all(NEXT, (user_key, MAX_NEXT))?,
        failing: failing(read, user_key)?,
        missed: read.all(MISSED, (user_key, MAX_MISSED))?,
        waiting: read.one(WAITING, (user_key, MAX_WAITING))?,
        workers: read.one(WORKERS, (user_key, before(ACTIVE_FOR), before(DEAD_AFTER)))?,
    })
}

fn failing(read: &ReadTx<'_>, user_key: UserKey) -> Result<Vec<FailingCue>> {
    let cues: Vec<(CueKey, String, String, i64)> = read.all(FAILING, (user_key, MAX_FAILING))?;
    let with_last = cues.into_iter().map(|(key, cue_id, name, streak)| {
        let last = read.find(LAST_FAILED, (key, MAX_NEWEST, CANCELLED))?;
        Ok(FailingCue { cue_id, name, streak, last })
    });
    with_last.collect()
}

/// Age of an attempt from which health reports the execution as stale (contract §8).
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(300);

row! {
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    pub pending_outbox: i64,
    /// Executions in `delivering` for over 300 s.
    pub stale_executions: i64,
    pub pending_retries: i64,
    pub pending_worker_claims: i64,
    pub active_workers: i64,
    pub any_workers: bool,
    pub claimable_since: Option<Timestamp>,
} }

// Queues that can hold millions have a counter in `backlog`. Executions in progress are few, so they are counted.
const QUEUE: &str = "SELECT (SELECT count FROM backlog WHERE name = 'send'),
        (SELECT count(*) FROM executions WHERE status = 'delivering' AND last_attempt_at < ?1),
        (SELECT count FROM backlog WHERE name = 'retry'),
        (SELECT count FROM backlog WHERE name = 'claim'),
        (SELECT count(*) FROM workers WHERE last_heartbeat > ?2),
        EXISTS (SELECT 1 FROM workers),
        (SELECT updated_at FROM executions WHERE queue_name = 'claim' ORDER BY updated_at LIMIT 1)";

impl QueueStats {
    pub fn oldest_claim(&self, now: Timestamp) -> Option<SignedDuration> {
        Some(now.duration_since(self.claimable_since?).max(SignedDuration::ZERO))
    }
}

pub fn queue_stats(read: &ReadTx<'_>, now: Timestamp) -> Result<QueueStats> {
    let before = |age| saturating_sub(now, age);
    read.one(QUEUE, [before(STALE_AFTER), before(ACTIVE_FOR)])
}

pub fn is_delivering(read: &ReadTx<'_>) -> Result<bool> {
    // What is ready in a flow may wait for its turn.
    let sql = "SELECT EXISTS (SELECT 1 FROM executions WHERE queue_name = 'send' AND destination_hash >= 0)
                   OR EXISTS (SELECT 1 FROM executions WHERE status = 'delivering' AND transport = 'webhook')";
    read.one(sql, ())
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_statement_uses_its_index:
    ENDED => "SEARCH e USING INDEX executions_by_cue (cue_key=?)",
    ENDED => "USE TEMP B-TREE FOR GROUP BY",
    CUE_MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
    CUE_MISSED => "USE TEMP B-TREE FOR GROUP BY",
    KEPT => "SEARCH e USING INDEX executions_by_cue (cue_key=?)",
    LIST_HOURS => "SEARCH hourly_stats USING PRIMARY KEY (user_key=? AND hour>? AND hour<?)",
    EXPIRED_HOURS => "SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
    EXPIRED_HOURS => "SEARCH hourly_stats USING PRIMARY KEY (user_key=? AND hour<?)",
    DELETE_HOURS => "SEARCH hourly_stats USING PRIMARY KEY (user_key=? AND hour=?)",
    COUNT_FAILING => "SEARCH cues USING INDEX cues_by_user (user_key=?)",
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
    QUEUE => "SEARCH backlog USING PRIMARY KEY (name=?)",
    QUEUE => "SCAN executions USING INDEX executions_in_flight",
    QUEUE => "SEARCH workers USING INDEX workers_by_heartbeat (last_heartbeat>?)",
    QUEUE => "SCAN workers USING INDEX workers_by_heartbeat",
    QUEUE => "SCAN executions USING INDEX executions_claimable_since",
}
