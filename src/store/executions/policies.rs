//! The policies of a cue, in the rows of its executions: which of them hold up its next run, when they expire, and until
//! when their outcomes are due (contract §4.16).

use jiff::Timestamp;

use crate::domain::execution::Execution;
use crate::domain::execution::outcome::OutcomeState;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::error::Result;
use crate::store::db::columns::{row, row_count};
use crate::store::db::counters::QueueName;
use crate::store::executions::{NEVER, columns};
use crate::store::{ReadTx, WriteTx};

/// Executions of a cue that follow a change in one write. More would delay other writes.
const CHANGE_BATCH: u32 = 1_000;

// One that a clock ahead has started is under way, whatever its date. One that has lost its claim is not.
const IS_RUNNING: &str =
    "SELECT 1 FROM executions WHERE blocks_cue = ?1 AND (scheduled_for <= ?2 OR status = 'delivering')
    AND NOT (queue_name IS 'waiting' AND due_at = ?3) AND NOT (queue_name IS 'claim' AND attempts > 0) LIMIT 1";

// Runs by hand and replays are not held up.
const HAS_LOST: &str = "SELECT 1 FROM executions
  WHERE blocks_cue = ?1 AND queue_name = 'claim' AND attempts > 0 AND triggered_by = 'schedule' LIMIT 1";

const HOLD_LOST: &str = "UPDATE executions SET queue_name = 'waiting', due_at = ?2, updated_at = ?3
  WHERE blocks_cue = ?1 AND queue_name = 'claim' AND attempts > 0 AND triggered_by = 'schedule'";

// The newest first: it is the one that waits.
const BUFFERED: &str =
    "SELECT key FROM executions WHERE blocks_cue = ?1 AND queue_name = 'waiting' AND due_at = ?2
    ORDER BY scheduled_for DESC LIMIT 1";

const END: &str = "UPDATE executions SET blocks_cue = NULL, expires_at = NULL WHERE key = ?1";

const POLICIES: &str = "SELECT blocks_cue FROM executions
  WHERE key = ?1 AND (blocks_cue IS NOT NULL OR expires_at IS NOT NULL)";

const NEXT_EXPIRY: &str =
    "SELECT expires_at FROM executions WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";

const EXPIRED: &str = concat!(
    "SELECT ",
    columns!(),
    ", c.key IS NULL, coalesce(c.max_age_seconds, 0) FROM executions e LEFT JOIN cues c ON c.key = e.cue_key
      WHERE e.expires_at <= ?1 ORDER BY e.expires_at LIMIT ?2 + 0"
);

const IGNORE_EXPIRY: &str = "UPDATE executions SET expires_at = NULL WHERE key = ?1";

const EXPECT_OUTCOME: &str = "UPDATE executions
    SET outcome_due_at = ?2 + 1000 * (SELECT outcome_deadline_seconds * (disabled_at IS NULL)
                                        FROM cues JOIN users ON users.key = cues.user_key WHERE cues.key = cue_key)
  WHERE key = ?1 AND outcome_state IS NULL
  RETURNING outcome_due_at";

const NEXT_OUTCOME: &str = "SELECT outcome_due_at FROM executions WHERE outcome_due_at IS NOT NULL ORDER BY outcome_due_at LIMIT 1";

const OVERDUE_OUTCOMES: &str = "SELECT e.key, e.user_key, coalesce(c.outcome_deadline_seconds, 0)
   FROM executions e LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.outcome_due_at <= ?1 ORDER BY e.outcome_due_at LIMIT ?2 + 0";

const MISS_OUTCOME: &str = "UPDATE executions SET outcome_state = ?2, outcome_due_at = NULL, updated_at = ?3 WHERE key = ?1";

const MISS_OUTCOMES_OF_USER: &str = "UPDATE executions INDEXED BY executions_without_outcome
    SET outcome_state = ?2, outcome_due_at = NULL, updated_at = ?3
  WHERE user_key = ?1 AND outcome_due_at IS NOT NULL";

const CHANGED: &str =
    "INSERT OR REPLACE INTO changed_policies (cue_key, before) VALUES (?1, 9223372036854775807)";

const FIRST_CHANGED: &str = "SELECT cue_key, before FROM changed_policies ORDER BY cue_key LIMIT 1";

const OLDEST_OF_BATCH: &str = "SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT 1 OFFSET ?3 - 1";

// An execution that waits for a claim is checked at once.
const FOLLOW: &str = "UPDATE executions
    SET due_at = iif(queue_name = 'claim', NULL, due_at),
        destination_hash = iif(queue_name = 'send', c.destination_hash, executions.destination_hash),
        blocks_cue = iif(executions.status IN ('success', 'failed') OR c.overlap = 'allow', NULL, c.key),
        expires_at = iif(executions.status IN ('success', 'failed'), NULL,
                         executions.scheduled_for + 1000 * c.max_age_seconds),
        outcome_due_at = iif(outcome_due_at IS NULL, NULL, delivered_at + 1000 * c.outcome_deadline_seconds)
   FROM cues c
  WHERE c.key = executions.cue_key
    AND (executions.status NOT IN ('success', 'failed') OR outcome_due_at IS NOT NULL)
    AND executions.key IN (SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3 + 0)";

const SET_BEFORE: &str = "UPDATE changed_policies SET before = ?2 WHERE cue_key = ?1";

const END_CHANGE: &str = "DELETE FROM changed_policies WHERE cue_key = ?1";

/// Returns whether an execution of the cue holds up its next run at `now`. One that waits for it, or for a later instant,
/// does not.
pub fn is_running(read: &ReadTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<bool> {
    read.any(IS_RUNNING, (cue_key, now, NEVER))
}

/// The execution that waits for the end of the earlier ones.
pub fn buffered(read: &ReadTx<'_>, cue_key: CueKey) -> Result<Option<ExecutionKey>> {
    read.find(BUFFERED, (cue_key, NEVER))
}

/// Returns whether a scheduled execution of the cue waits for another worker, because it has lost its claim.
pub fn has_lost(read: &ReadTx<'_>, cue_key: CueKey) -> Result<bool> {
    read.any(HAS_LOST, [cue_key])
}

/// Before another execution of the cue starts: the scheduled ones that have lost their claims wait for its end.
pub fn hold_lost(tx: &WriteTx<'_>, cue_key: CueKey, now: Timestamp) -> Result<()> {
    let held = tx.change(HOLD_LOST, (cue_key, NEVER, now))?;
    tx.counters().add_queued(QueueName::Claim, -row_count(held));
    Ok(())
}

/// After the end of an execution. Returns the cue that it has held up. Most executions have no policies.
pub fn end(tx: &WriteTx<'_>, key: ExecutionKey) -> Result<Option<CueKey>> {
    let Some(cue_key) = tx.find::<Option<CueKey>>(POLICIES, [key])? else { return Ok(None) };
    tx.run(END, [key])?;
    Ok(cue_key)
}

/// The next instant at which an execution expires, or an outcome is overdue.
pub fn next_deadline(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let (expiry, outcome): (Option<Timestamp>, Option<Timestamp>) =
        (read.find(NEXT_EXPIRY, ())?, read.find(NEXT_OUTCOME, ())?);
    Ok(expiry.into_iter().chain(outcome).min())
}

row! {
#[derive(Debug, Clone)]
pub struct ExpiredExecution {
    pub execution: Execution,
    /// True if its cue has been deleted: its row is about to be.
    pub is_deleted: bool,
    pub max_age_seconds: u32,
} }

pub fn list_expired(
    read: &ReadTx<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<ExpiredExecution>> {
    read.all(EXPIRED, (now, limit))
}

/// An attempt that has begun in time may still succeed.
pub fn ignore_expiry(tx: &WriteTx<'_>, key: ExecutionKey) -> Result<()> {
    tx.run(IGNORE_EXPIRY, [key])
}

/// After a delivery at `now`. Returns until when an outcome is due, if the cue has such a deadline and none is reported:
/// at once for a disabled user, who cannot report one.
pub fn expect_outcome(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    Ok(tx.find::<Option<Timestamp>>(EXPECT_OUTCOME, (key, now))?.flatten())
}

row! {
#[derive(Debug, Clone, Copy)]
pub struct OverdueOutcome {
    pub key: ExecutionKey,
    pub user_key: UserKey,
    pub deadline_seconds: u32,
} }

pub fn list_overdue_outcomes(
    read: &ReadTx<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<OverdueOutcome>> {
    read.all(OVERDUE_OUTCOMES, (now, limit))
}

pub fn miss_outcome(tx: &WriteTx<'_>, key: ExecutionKey, now: Timestamp) -> Result<()> {
    tx.run(MISS_OUTCOME, (key, OutcomeState::Missing, now))
}

/// No outcome of the user is waited for any longer.
pub fn miss_outcomes_of_user(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    tx.run(MISS_OUTCOMES_OF_USER, (user_key, OutcomeState::Missing, now))
}

/// The executions of the cue follow its changed policies: the newest at once, the others by [`continue_change`].
pub fn follow_change(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    tx.run(CHANGED, [cue_key])?;
    follow_batch(tx, cue_key, ExecutionKey::new(i64::MAX))
}

pub fn has_changed(read: &ReadTx<'_>) -> Result<bool> {
    read.any(FIRST_CHANGED, ())
}

/// Returns false if all executions follow the changes.
pub fn continue_change(tx: &WriteTx<'_>) -> Result<bool> {
    let changed: Option<(CueKey, ExecutionKey)> = tx.find(FIRST_CHANGED, ())?;
    let Some((cue_key, before)) = changed else { return Ok(false) };
    follow_batch(tx, cue_key, before)?;
    Ok(true)
}

fn follow_batch(tx: &WriteTx<'_>, cue_key: CueKey, before: ExecutionKey) -> Result<()> {
    let batch = (cue_key, before, CHANGE_BATCH);
    let oldest: Option<ExecutionKey> = tx.find(OLDEST_OF_BATCH, batch)?;
    tx.run(FOLLOW, batch)?;
    match oldest {
        Some(oldest) => tx.run(SET_BEFORE, (cue_key, oldest)),
        None => tx.run(END_CHANGE, [cue_key]),
    }
}

#[cfg(test)]
crate::store::test_support::plan_test! { executions_with_policies_are_found_by_index:
    IS_RUNNING => "executions_blocking (blocks_cue=?)",
    BUFFERED => "executions_blocking (blocks_cue=?)",
    HAS_LOST => "executions_blocking (blocks_cue=?)",
    HOLD_LOST => "executions_blocking (blocks_cue=?)",
    END => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    POLICIES => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    NEXT_EXPIRY => "executions_expiring",
    EXPIRED => "executions_expiring (expires_at<?)",
    NEXT_OUTCOME => "executions_without_outcome",
    OVERDUE_OUTCOMES => "executions_without_outcome (outcome_due_at<?)",
    MISS_OUTCOMES_OF_USER => "executions_without_outcome",
    EXPECT_OUTCOME => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    FIRST_CHANGED => "SCAN changed_policies",
    OLDEST_OF_BATCH => "executions_by_cue (cue_key=? AND key<?)",
    FOLLOW => "executions_by_cue (cue_key=? AND key<?)",
}
