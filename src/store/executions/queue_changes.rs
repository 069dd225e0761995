//! Changes of a queued execution by request: it is sent early, or cancelled. Both change only a row that is in a queue, so
//! an attempt that has begun, which is in none, is never changed.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use crate::domain::account::figures::Figures;
use crate::domain::account::user::ADDRESS_UNCONFIRMED;
use crate::domain::time::saturating_add;
use crate::error::Result;
use crate::store::db::columns::{millis, row_count};
use crate::store::db::counters::QueueName;
use crate::store::executions::delivery_queue::count_released;
use crate::store::{ReadTx, WakeSet, WriteTx};

/// The place of an execution that has not begun its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePlace {
    /// Waits for its `send_at` or its next attempt.
    Waiting { is_retry: bool },
    /// Waits for a delivery thread.
    Send,
    /// Waits for a worker.
    Claim,
}

const PLACE: &str = "SELECT queue_name, status = 'retrying' FROM executions WHERE key = ?1";

// Reads the destination again, as a promotion does: the callback of the cue may have changed. A pending execution is due
// now in place of its `send_at`.
const RELEASE: &str = "UPDATE executions
    SET queue_name = CASE transport WHEN 'worker' THEN 'claim' ELSE 'send' END, due_at = ?2,
        destination_hash = coalesce((SELECT cues.destination_hash FROM cues WHERE cues.key = executions.cue_key),
                                    destination_hash),
        scheduled_for = CASE status WHEN 'pending' THEN min(scheduled_for, ?2) ELSE scheduled_for END, updated_at = ?2
  WHERE key = ?1 AND queue_name = 'waiting'
  RETURNING transport = 'worker', status = 'retrying'";

const CANCEL: &str = "UPDATE executions
    SET status = 'failed', queue_name = NULL, due_at = NULL, error_message = ?2, updated_at = ?3
  WHERE key = ?1 AND queue_name IS NOT NULL";

// The result of an attempt that runs is not recorded then: it records only an execution that is being delivered.
const FAIL_DELIVERING: &str = "UPDATE executions INDEXED BY executions_in_flight
    SET status = 'failed', error_message = ?2, updated_at = ?3, duration_ms = max(?3 - last_attempt_at, 0)
  WHERE user_key = ?1 AND status = 'delivering' AND transport = 'webhook'";

const TO_SEND: &str = "SELECT key, status = 'retrying' FROM executions
    WHERE user_key = ?1 AND queue_name = 'send' LIMIT ?2 + 0";

// The message of an earlier attempt stays.
const HOLD_UP: &str = "UPDATE executions
    SET queue_name = 'waiting', due_at = ?2, updated_at = ?3, error_message = coalesce(error_message, ?4)
  WHERE key = ?1";

const LET_GO: &str = "UPDATE executions SET due_at = ?2, error_message = NULL
  WHERE user_key = ?1 AND queue_name = 'waiting' AND (error_message = ?3 OR status = 'retrying')";

const IS_UNCONFIRMED: &str = "SELECT 1 FROM users WHERE key = ?1 AND confirmed_at IS NULL";

/// Executions held up in one write.
const BATCH: i64 = 500;

pub fn is_unconfirmed(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    read.any(IS_UNCONFIRMED, [user_key])
}

/// Lets the user's executions that are ready to be sent wait: the first until `free_at`, each further one `interval`
/// longer.
pub fn hold_up(
    tx: &WriteTx<'_>,
    user_key: i64,
    (free_at, interval): (Timestamp, SignedDuration),
    now: Timestamp,
) -> Result<()> {
    let ready: Vec<(i64, bool)> = tx.all(TO_SEND, [user_key, BATCH])?;
    let mut due_at = free_at;
    for (key, is_retry) in &ready {
        tx.run(HOLD_UP, params![key, millis(due_at), millis(now), ADDRESS_UNCONFIRMED])?;
        tx.counters().add_queued(QueueName::Retry, i64::from(*is_retry));
        tx.counters().add_queued(QueueName::Send, -1);
        due_at = saturating_add(due_at, interval);
    }
    let may_have_more = i64::try_from(ready.len()) == Ok(BATCH);
    tx.wake(WakeSet { schedule: Some(free_at), send: may_have_more, ..WakeSet::default() });
    Ok(())
}

/// Makes the user's executions due that [`hold_up`] has let wait.
pub fn let_go(tx: &WriteTx<'_>, user_key: i64, now: Timestamp) -> Result<()> {
    tx.run(LET_GO, params![user_key, millis(now), ADDRESS_UNCONFIRMED])?;
    tx.wake(WakeSet { schedule: Some(now), ..WakeSet::default() });
    Ok(())
}

/// The queue that holds the execution in row `key`, if one does.
pub fn find_place(read: &ReadTx<'_>, key: i64) -> Result<Option<QueuePlace>> {
    let found: Option<(Option<String>, bool)> = read.find(PLACE, [key])?;
    Ok(found.and_then(|(queue_name, is_retry)| match queue_name.as_deref() {
        Some("waiting") => Some(QueuePlace::Waiting { is_retry }),
        Some("send") => Some(QueuePlace::Send),
        Some("claim") => Some(QueuePlace::Claim),
        _ => None,
    }))
}

/// Moves a waiting execution to the queue of its transport at once. Returns false if it does not wait.
pub fn release(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    let released: Option<(bool, bool)> = tx.find(RELEASE, params![key, millis(now)])?;
    if let Some((is_worker, is_retry)) = released {
        count_released(tx, is_worker, is_retry);
    }
    Ok(released.is_some())
}

pub fn cancel(tx: &WriteTx<'_>, key: i64, reason: &str, now: Timestamp) -> Result<bool> {
    let Some(place) = find_place(tx, key)? else { return Ok(false) };
    tx.run(CANCEL, params![key, reason, millis(now)])?;
    match place {
        QueuePlace::Send => tx.counters().add_queued(QueueName::Send, -1),
        QueuePlace::Claim => tx.counters().add_queued(QueueName::Claim, -1),
        QueuePlace::Waiting { is_retry } => tx.counters().add_queued(QueueName::Retry, -i64::from(is_retry)),
    }
    Ok(true)
}

/// Fails all executions of a user that are being delivered, also those whose attempt has not begun.
pub fn fail_delivering(tx: &WriteTx<'_>, user_key: i64, reason: &str, now: Timestamp) -> Result<()> {
    let failed = row_count(tx.change(FAIL_DELIVERING, params![user_key, reason, millis(now)])?);
    tx.counters().add_to_hour(user_key, now, &Figures { failed, ..Figures::default() });
    Ok(())
}

#[cfg(test)]
crate::store::test_support::plan_test! { executions_are_found_by_their_row_or_their_user:
    FAIL_DELIVERING => "INDEX executions_in_flight (user_key=?)",
    PLACE => "USING INTEGER PRIMARY KEY (rowid=?)",
    RELEASE => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    CANCEL => "USING INTEGER PRIMARY KEY (rowid=?)",
    TO_SEND => "executions_to_send (user_key=?)",
}
