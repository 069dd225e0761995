//! `cued clock accept`: sets back what a clock that was ahead has written (contract §4.12), in batches that can be
//! repeated: a crash leaves a file that is still ahead of its clock.

use jiff::Timestamp;

use crate::domain::account::session::LIFETIME;
use crate::domain::cue::{ScheduleSpec, StoredSchedule};
use crate::domain::execution::LEASE;
use crate::domain::row_keys::{CueKey, ExecutionKey};
use crate::domain::schedule::{Occurrences, Schedule, ScheduleRule};
use crate::domain::time::{just_before, saturating_add};
use crate::error::Result;
use crate::store::db::columns::schedule_columns;
use crate::store::db::meta;
use crate::store::{Store, WriteTx};

/// Cues in one transaction; the histories of those that are moved are counted.
const CUES: i64 = 100;

/// Executions in one transaction. Most are only read.
const EXECUTIONS: i64 = 5_000;

const LIST_CUES: &str = concat!(
    "SELECT key, next_run, ",
    schedule_columns!(),
    " FROM cues WHERE key > ?1 ORDER BY key LIMIT ?2 + 0"
);

const LIST_MISSED: &str =
    "SELECT key, first, count FROM missed_runs WHERE cue_key = ?1 AND last > ?2";

const CUT_MISSED: &str = "UPDATE missed_runs SET last = ?2, count = ?3 WHERE key = ?1";

const DELETE_MISSED: &str = "DELETE FROM missed_runs WHERE key = ?1";

const SET_CUE: &str = "UPDATE cues SET next_run = coalesce(?2, next_run), missed_count = missed_count - ?3 WHERE key = ?1";

const DATE_CUES: &str = "UPDATE cues
    SET created_at = min(created_at, ?3), updated_at = min(updated_at, ?3), last_run = min(last_run, ?3)
  WHERE key > ?1 AND key <= ?2 AND (created_at > ?3 OR updated_at > ?3 OR last_run > ?3)";

const LAST_OF_BATCH: &str =
    "SELECT max(key) FROM (SELECT key FROM executions WHERE key > ?1 ORDER BY key LIMIT ?2 + 0)";

const NOTE_FIRED: &str = "INSERT OR IGNORE INTO fired_ahead (cue_key, first, last)
    SELECT cue_key, scheduled_for, scheduled_for FROM executions
     WHERE key > ?1 AND key <= ?2 AND scheduled_for > ?3 AND triggered_by = 'schedule'
       AND EXISTS (SELECT 1 FROM cues WHERE cues.key = cue_key AND at IS NULL)";

// The `send_at` of a manual fire is its user's and stays, but for calls that were put off. A check that comes too early
// plans the next one. A lease is cut to the longest of a claim of now.
const DATE_EXECUTIONS: &str = "UPDATE executions
    SET created_at = min(created_at, ?3), updated_at = min(updated_at, ?3),
        lease_expires_at = min(lease_expires_at, ?4),
        expires_at = iif(queue_name IS 'waiting' AND status = 'pending' AND triggered_by <> 'schedule', expires_at,
            min(expires_at, ?3 + 1000 * (SELECT max_age_seconds FROM cues WHERE cues.key = cue_key))),
        outcome_due_at = min(outcome_due_at,
                             ?3 + 1000 * (SELECT outcome_deadline_seconds FROM cues WHERE cues.key = cue_key)),
        due_at = iif(queue_name = 'claim' OR (status = 'retrying' AND updated_at > ?3)
                     OR error_message = 'address_unconfirmed', min(due_at, ?3), due_at)
  WHERE key > ?1 AND key <= ?2
    AND (created_at > ?3 OR updated_at > ?3 OR lease_expires_at > ?4 OR outcome_due_at > ?3 OR (queue_name = 'claim' AND due_at > ?3))";

const DATES: [(&str, &str); 16] = [
    ("users", "created_at"),
    ("outbox", "created_at"),
    ("outbox", "due_at"),
    ("alerts", "created_at"),
    ("channels", "due_at"),
    ("channels", "window_at"),
    ("channels", "last_sent_at"),
    ("channels", "last_failed_at"),
    ("notices", "ready_at"),
    ("consecutive_failures", "since"),
    ("failure_mails", "created_at"),
    ("workers", "last_heartbeat"),
    ("workers", "registered_since"),
    ("idempotency_keys", "created_at"),
    ("device_logins", "created_at"),
    ("login_mails", "requested_at"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedClock {
    pub newest: Option<Timestamp>,
    pub cues: usize,
    pub missed: usize,
}

/// Computes next runs from `now`, cuts missed runs to those up to it, and brings waiting work forward.
pub fn accept(store: &Store, now: Timestamp) -> Result<AcceptedClock> {
    let newest = store.read(meta::last_seen).wait()?.filter(|newest| *newest > now);
    let mut accepted = AcceptedClock { newest, cues: 0, missed: 0 };
    if let Some(newest) = newest {
        // The rows that it is read from may be dated back before the end.
        store.write(move |tx| meta::record_last_seen(tx, newest)).wait()?;
        let mut after = Some(CueKey::default());
        while let Some(key) = after {
            let (last, cues, missed) = store.write(move |tx| set_back_cues(tx, key, now)).wait()?;
            (accepted.cues, accepted.missed) = (accepted.cues + cues, accepted.missed + missed);
            after = last;
        }
        let mut after = Some(ExecutionKey::default());
        while let Some(key) = after {
            after = store.write(move |tx| set_back_executions(tx, key, now)).wait()?;
        }
    }
    let finish = move |tx: &WriteTx<'_>| {
        for (table, column) in DATES {
            tx.run(&format!("UPDATE {table} SET {column} = ?1 WHERE {column} > ?1"), [now])?;
        }
        tx.run(
            "UPDATE told_failures SET remind_at = remind_at - told_at + ?1, told_at = ?1 WHERE told_at > ?1",
            [now],
        )?;
        let session_end = saturating_add(now, LIFETIME);
        tx.run("UPDATE sessions SET created_at = min(created_at, ?1), seen_at = min(seen_at, ?1), expires_at = ?2
                     WHERE expires_at > ?2", [now, session_end])?;
        tx.run("DELETE FROM links WHERE kind = 'session' AND expires_at > ?1", [session_end])?;
        meta::accept_clock(tx, now)
    };
    store.write(finish).wait()?;
    Ok(accepted)
}

fn set_back_cues(
    tx: &WriteTx<'_>,
    after: CueKey,
    now: Timestamp,
) -> Result<(Option<CueKey>, usize, usize)> {
    let cues: Vec<(CueKey, Option<Timestamp>, StoredSchedule)> =
        tx.all(LIST_CUES, (after, CUES))?;
    let (mut moved, mut cut) = (0, 0);
    for (cue_key, next_run, schedule) in &cues {
        // A schedule that cannot be computed fails its cue when it is due.
        let (false, Ok(mut schedule)) =
            (matches!(schedule.when, ScheduleSpec::Once(_)), schedule.read())
        else {
            continue;
        };
        if let ScheduleRule::Every(interval) = &schedule.rule
            && schedule.bounds.start.is_none()
            && interval.from() > now
        {
            schedule.begin(now);
            tx.run("UPDATE cues SET counts_from = ?2 WHERE key = ?1", (cue_key, now))?;
        }
        let next_run = next_run
            .filter(|next| *next > now)
            .and_then(|next| Some((next, schedule.next_after(now)?)));
        let earlier = next_run.and_then(|(next, earlier)| (earlier < next).then_some(earlier));
        let (intervals, runs) = cut_missed(tx, *cue_key, &schedule, now)?;
        if earlier.is_some() || intervals > 0 {
            tx.run(SET_CUE, (cue_key, earlier, runs))?;
        }
        (moved, cut) = (moved + usize::from(earlier.is_some()), cut + intervals);
    }
    let last = cues.last().map(|(key, ..)| *key);
    if let Some(last) = last {
        tx.run(DATE_CUES, (after, last, now))?;
    }
    Ok((last, moved, cut))
}

fn cut_missed(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<(usize, i64)> {
    let rows: Vec<(i64, Timestamp, i64)> = tx.all(LIST_MISSED, (cue_key, now))?;
    let mut taken = 0;
    for (key, first, count) in &rows {
        let Occurrences { last, count: left, .. } = schedule.occurrences(just_before(*first), now);
        let left = i64::try_from(left).unwrap_or(i64::MAX).min(*count);
        match last.filter(|_| left > 0) {
            Some(last) => tx.run(CUT_MISSED, (key, last, left))?,
            None => tx.run(DELETE_MISSED, [key])?,
        };
        taken += count - left;
    }
    Ok((rows.len(), taken))
}

fn set_back_executions(
    tx: &WriteTx<'_>,
    after: ExecutionKey,
    now: Timestamp,
) -> Result<Option<ExecutionKey>> {
    let last: Option<ExecutionKey> = tx.one(LAST_OF_BATCH, (after, EXECUTIONS))?;
    if let Some(last) = last {
        tx.run(NOTE_FIRED, (after, last, now))?;
        tx.run(DATE_EXECUTIONS, (after, last, now, saturating_add(now, LEASE)))?;
    }
    Ok(last)
}

#[cfg(test)]
crate::store::test_support::plan_test! { batches_are_found_by_key:
    LIST_CUES => "SEARCH cues USING INTEGER PRIMARY KEY (rowid>?)",
    LIST_MISSED => "missed_runs_by_cue (cue_key=?)",
    DATE_CUES => "SEARCH cues USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    LAST_OF_BATCH => "SEARCH executions USING INTEGER PRIMARY KEY (rowid>?)",
    NOTE_FIRED => "SEARCH executions USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    DATE_EXECUTIONS => "SEARCH executions USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
}
