//! The figures of one cue, counted over its kept executions. A scan: the caller uses a slow read.

use rusqlite::params;

use crate::domain::account::figures::{Figures, Grid};
use crate::domain::account::user::{ACCOUNT_DISABLED, KEYS_REVOKED};
use crate::domain::execution::CANCELLED;
use crate::domain::execution::worker::NOT_CLAIMED;
use crate::error::Result;
use crate::store::ReadTx;

/// Executions of a cue that are counted, the newest ones: about 0.3 s. By default a cue keeps 1,000.
const MAX_COUNTED: i64 = 100_000;

/// Intervals of missed runs that are counted, the newest ones. There is one for each outage.
const MAX_INTERVALS: i64 = 10_000;

/// The end of an ended execution `e`. `updated_at` is later if the outcome was verified since; for a delivery the start
/// of the last attempt is nearer then.
macro_rules! ended_at {
    () => {
        "coalesce(e.delivered_at, iif(e.transport = 'webhook' AND e.outcome_state IS NOT NULL, e.last_attempt_at, NULL),
                  e.updated_at)"
    };
}
pub(super) use ended_at;

/// The newest executions of cue ?1, and what they count.
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

// An execution that was queued when it ended has no times, and another attempt would have followed each of its attempts. A
// worker may report an error with one of the words, and then has an outcome.
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

const MISSED: &str = "SELECT (last - ?3) / ?5, sum(count)
   FROM (SELECT last, count FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0)
  WHERE last >= ?3 AND last < ?4 GROUP BY 1";

// A replay is no run of the cue.
const KEPT: &str = concat!(
    "SELECT count(*), coalesce(sum(triggered_by <> 'replay'), 0), min(created_at),
            (SELECT run_count FROM cues WHERE key = ?1)
       FROM ",
    newest!()
);

/// The figures of the cue in row `cue_key`, in each step of `grid`, and whether earlier executions of the span are not
/// counted because they are no longer kept. The caller checks that the cue is the user's.
pub fn series(read: &ReadTx<'_>, cue_key: i64, grid: &Grid) -> Result<(Vec<Figures>, bool)> {
    let mut series = vec![Figures::default(); grid.len()];
    let (first, end) = grid.millis();
    let length = (end - first) / i64::try_from(grid.len()).unwrap_or(i64::MAX).max(1);
    let words = [CANCELLED, NOT_CLAIMED, ACCOUNT_DISABLED, KEYS_REVOKED];
    let [cancelled, unclaimed, disabled, revoked] = words;
    let bounds = params![cue_key, MAX_COUNTED, first, end, length, cancelled, unclaimed, disabled, revoked];
    let mut counted: Vec<(i64, Figures)> = read.all(ENDED, bounds)?;
    let missed: Vec<(i64, i64)> = read.all(MISSED, [cue_key, MAX_INTERVALS, first, end, length])?;
    let missed = missed.into_iter().map(|(place, missed)| (place, Figures { missed, ..Figures::default() }));
    counted.extend(missed);
    for (place, figures) in counted {
        if let Some(place) = usize::try_from(place).ok().and_then(|place| series.get_mut(place)) {
            place.add(&figures);
        }
    }
    Ok((series, has_lost(read, cue_key, first)?))
}

/// Returns whether executions of the cue that were created after `first` are missing or not counted.
fn has_lost(read: &ReadTx<'_>, cue_key: i64, first: i64) -> Result<bool> {
    let (kept, runs, oldest, run_count): (i64, i64, Option<i64>, Option<i64>) =
        read.one(KEPT, [cue_key, MAX_COUNTED])?;
    let is_cut = kept >= MAX_COUNTED || run_count.is_some_and(|run_count| run_count > runs);
    Ok(is_cut && oldest.is_none_or(|oldest| oldest > first))
}

#[cfg(test)]
crate::store::test_support::plan_test! { only_rows_of_the_cue_are_read:
    ENDED => "SEARCH e USING INDEX executions_by_cue (cue_key=?)",
    ENDED => "USE TEMP B-TREE FOR GROUP BY",
    MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
    MISSED => "USE TEMP B-TREE FOR GROUP BY",
    KEPT => "SEARCH e USING INDEX executions_by_cue (cue_key=?)",
}
