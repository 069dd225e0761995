//! The delivery queue: promotes due executions, claims ready ones for delivery threads, records attempts and requeues
//! interrupted deliveries. `fair_queue` has the order of the claims, and the engine decides how many deliveries an account
//! and a destination may have.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use crate::domain::account::figures::Figures;
use crate::domain::execution::NextStep;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::outcome::{MAX_RESPONSE_OUTCOME, Outcome};
use crate::domain::json::JsonText;
use crate::domain::webhook::request::AttemptRef;
use crate::error::Result;
use crate::store::db::columns::{from_row, millis, row, row_count};
use crate::store::db::counters::QueueName;
use crate::store::db::hold;
use crate::store::executions::attempts;
use crate::store::executions::unclaimed::first_check;
use crate::store::fair_queue::{AccountRows, FairQueue, Grant, ReadyRow, Rotation};
use crate::store::{ReadTx, WakeSet, WriteTx, fair_queue};

impl ClaimedDelivery {
    pub fn destination_key(&self) -> (i64, i64) {
        (self.attempt_ref.user_key, self.attempt_ref.destination)
    }

    /// The most memory that it takes until its attempt has ended.
    pub fn memory(&self) -> usize {
        self.bytes.saturating_add(if self.takes_outcome { MAX_RESPONSE_OUTCOME * RESPONSE_COPIES } else { 0 })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    pub attempt_ref: AttemptRef,
    pub at: Timestamp,
    /// By the monotonic clock.
    pub duration: SignedDuration,
    pub next: NextStep,
    pub http_status: Option<u16>,
    /// The beginning of the response body.
    pub response_body: Option<String>,
    /// The headers of a response that was no success, as a JSON array of pairs.
    pub response_headers: Option<JsonText>,
    /// The reason of a failure; `None` after a success.
    pub error_message: Option<String>,
    pub cause: Option<FailureCause>,
    /// The outcome that the response reports, if that is taken.
    pub outcome: Option<Outcome>,
}

/// Copies of a response that is taken as an outcome: its bytes, and the report that is read from them.
const RESPONSE_COPIES: usize = 2;

const NEXT_DUE: &str = "SELECT due_at FROM executions WHERE queue_name = 'waiting' ORDER BY due_at LIMIT 1";

// Reads the destination again, because the callback of the cue may have changed since.
const PROMOTE: &str = concat!(
    "UPDATE executions
    SET queue_name = CASE transport WHEN 'worker' THEN 'claim' ELSE 'send' END,
        due_at = CASE transport WHEN 'worker' THEN ",
    first_check!("?1", "executions.cue_key"),
    " ELSE due_at END,
        destination_hash = coalesce((SELECT cues.destination_hash FROM cues WHERE cues.key = executions.cue_key),
                                    destination_hash),
        updated_at = ?1
  WHERE key IN (SELECT key FROM executions WHERE queue_name = 'waiting' AND due_at <= ?1 ORDER BY due_at LIMIT ?2 + 0)
  RETURNING transport = 'worker', status = 'retrying'"
);

const NEXT_USER: &str = "SELECT user_key FROM executions
    WHERE queue_name = 'send' AND user_key >= ?1 ORDER BY user_key LIMIT 1";

// Runs that fall due now come before those of an outage, whatever their destination.
const NEXT_DESTINATION: &str = "SELECT destination_hash FROM executions
    WHERE queue_name = 'send' AND user_key = ?1 AND is_catch_up = ?2 AND destination_hash >= ?3
    ORDER BY destination_hash LIMIT 1";

const READY: &str = "SELECT key FROM executions
    WHERE queue_name = 'send' AND user_key = ?1 AND is_catch_up = ?2 AND destination_hash = ?3 AND key > ?4
    ORDER BY key LIMIT ?5 + 0";

row!(attempt_ref_columns, "executions.", AttemptRef {
    key,
    id,
    cue_key,
    user_key,
    destination = "executions.destination_hash",
    attempt = "attempts + 1",
    scheduled_for,
    by_schedule = "triggered_by = 'schedule'",
    started_at = "coalesce(started_at, ?2)",
});

// While a request is sent, there are three copies of its custom headers: in the request, and two in the HTTP client. Of the
// body there is one.
row! { claimed_columns, "",
/// A claimed attempt: stored as `delivering`, not sent yet. `delivery_request` reads its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub attempt_ref: AttemptRef = "",
    /// The most that its body and its custom headers take in memory while it is sent.
    pub bytes: usize = "coalesce(octet_length(payloads.body), 0) + 3 * coalesce(octet_length(callback_headers), 0)",
    pub takes_outcome: bool = "outcome_from_response IS 1",
} }

// Outer joins, because an execution whose cue is missing must be found as well; otherwise it would stay first in the
// queue for ever. `octet_length` reads the length of a text, not the text.
const FIND: &str = concat!(
    "SELECT ",
    attempt_ref_columns!(),
    claimed_columns!(),
    " FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
           LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.key = ?1"
);

const CLAIM: &str = "UPDATE executions
    SET status = 'delivering', queue_name = NULL, due_at = NULL, attempts = attempts + 1,
        started_at = coalesce(started_at, ?2), last_attempt_at = ?2, updated_at = ?2
  WHERE key = ?1 AND queue_name = 'send'";

// Compares the id as well, because SQLite reuses the row key of a deleted execution.
const RECORD: &str = "UPDATE executions
    SET status = ?4, queue_name = CASE WHEN ?5 IS NULL THEN NULL ELSE 'waiting' END, due_at = ?5, delivered_at = ?6,
        http_status = ?7, response_body = ?8, error_message = ?9, updated_at = ?10,
        duration_ms = ?11, cause = ?12, response_headers = ?13
  WHERE key = ?1 AND id = ?2 AND attempts = ?3 AND status = 'delivering'";

/// The indexes that hold unfinished executions of all users, with their conditions. The history of a single user may be far
/// longer.
const UNFINISHED: [(&str, &str, Option<QueueName>); 4] = [
    ("to_send", "queue_name = 'send'", Some(QueueName::Send)),
    ("waiting", "queue_name = 'waiting'", None),
    ("to_claim", "queue_name = 'claim'", Some(QueueName::Claim)),
    ("leased", "lease_expires_at IS NOT NULL", None),
];

/// A claim ends, and the row has its duration.
fn fail_all(index: &str, condition: &str) -> String {
    format!(
        "UPDATE executions INDEXED BY executions_{index}
            SET status = 'failed', queue_name = NULL, due_at = NULL, lease_expires_at = NULL, error_message = ?2,
                updated_at = ?3,
                duration_ms = iif(lease_expires_at IS NULL, duration_ms, max(?3 - last_attempt_at, 0))
          WHERE user_key = ?1 AND {condition}"
    )
}

const RETRIES: &str = "SELECT count(*) FROM executions INDEXED BY executions_waiting
  WHERE user_key = ?1 AND queue_name = 'waiting' AND status = 'retrying'";

const REQUEUE: &str = "UPDATE executions
    SET status = CASE WHEN attempts > 1 THEN 'retrying' ELSE 'pending' END, queue_name = 'send',
        attempts = attempts - 1, started_at = CASE WHEN attempts > 1 THEN started_at END, updated_at = ?1
  WHERE status = 'delivering' AND transport = 'webhook'";

/// The earliest time at which a waiting execution becomes ready.
pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_DUE, [])
}

/// Moves waiting executions that are due at `now` to their queues, longest overdue first, at most `limit`. Returns
/// their number.
pub fn promote_due(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    let promoted: Vec<(bool, bool)> = tx.all(PROMOTE, params![millis(now), limit])?;
    for (is_worker, is_retry) in &promoted {
        count_released(tx, *is_worker, *is_retry);
    }
    Ok(promoted.len() as u64)
}

/// Counts a waiting execution that was moved to the queue of its transport, and wakes who takes it from there.
pub(super) fn count_released(tx: &WriteTx<'_>, is_worker: bool, is_retry: bool) {
    tx.counters().add_queued(QueueName::Retry, -i64::from(is_retry));
    tx.counters().add_queued(if is_worker { QueueName::Claim } else { QueueName::Send }, 1);
    tx.wake(WakeSet { send: !is_worker, claim: is_worker, ..WakeSet::default() });
}

/// Returns whether any execution is ready to be sent. Always `false` while the database is on hold.
pub fn has_ready(read: &ReadTx<'_>) -> Result<bool> {
    Ok(DeliveryQueue(read).next_user(i64::MIN)?.is_some() && !hold::is_held(read)?)
}

/// Claims the ready executions that `try_acquire` grants by user and destination, in the order of [`fair_queue::take`]:
/// first those that fell due now, then those of an outage. Reads no payload. Claims nothing while the database is on hold.
pub fn claim_batch(
    tx: &WriteTx<'_>,
    now: Timestamp,
    rotation: &mut Rotation,
    try_acquire: impl FnMut(i64, i64) -> Result<Grant>,
) -> Result<Vec<ClaimedDelivery>> {
    if hold::is_held(tx)? {
        return Ok(Vec::new());
    }
    let ready = fair_queue::take(&DeliveryQueue(tx), rotation, try_acquire)?;
    let (mut find, mut claim) = (tx.prepare_cached(FIND)?, tx.prepare_cached(CLAIM)?);
    let mut claimed = Vec::with_capacity(ready.len());
    for ReadyRow { key, .. } in ready {
        claimed.push(find.query_row([key, millis(now)], from_row)?);
        claim.execute(params![key, millis(now)])?;
    }
    tx.counters().add_queued(QueueName::Send, -row_count(claimed.len()));
    Ok(claimed)
}

/// Records an attempt. Returns `false` if the execution was deleted or is no longer in this attempt.
pub fn record(tx: &WriteTx<'_>, attempt_record: &AttemptRecord, now: Timestamp) -> Result<bool> {
    let AttemptRef { key, id, attempt, .. } = attempt_record.attempt_ref;
    let (due_at, delivered_at) = match attempt_record.next {
        NextStep::Success => (None, Some(attempt_record.at)),
        NextStep::RetryAt(due_at) => (Some(due_at), None),
        NextStep::Failed => (None, None),
    };
    let is_recorded = tx.changes(
        RECORD,
        params![
            key,
            id.bytes(),
            attempt,
            attempt_record.next.status().as_str(),
            due_at.map(millis),
            delivered_at.map(millis),
            attempt_record.http_status,
            attempt_record.response_body,
            attempt_record.error_message,
            millis(now),
            i64::try_from(attempt_record.duration.as_millis()).unwrap_or(i64::MAX),
            attempt_record.cause.map(FailureCause::as_str),
            attempt_record.response_headers.as_ref().map(JsonText::as_str),
        ],
    )?;
    if is_recorded {
        if due_at.is_some() {
            attempts::keep_latest(tx, key, attempt, None)?;
        }
        tx.counters().add_queued(QueueName::Retry, i64::from(due_at.is_some()));
        tx.wake(WakeSet { schedule: due_at, ..WakeSet::default() });
    }
    Ok(is_recorded)
}

pub fn fail_all_for_user(tx: &WriteTx<'_>, user_key: i64, reason: &str, now: Timestamp) -> Result<()> {
    tx.counters().add_queued(QueueName::Retry, -tx.one::<i64>(RETRIES, [user_key])?);
    for (index, condition, queue_name) in UNFINISHED {
        let failed =
            row_count(tx.change(&fail_all(index, condition), params![user_key, reason, millis(now)])?);
        if let Some(queue_name) = queue_name {
            tx.counters().add_queued(queue_name, -failed);
        }
        tx.counters().add_to_hour(user_key, now, &Figures { failed, ..Figures::default() });
    }
    Ok(())
}

/// Puts deliveries that were interrupted by the end of an earlier process back into the queue, and returns their
/// number. The interrupted attempt does not count, but the list of attempts shows it. Call it at the start only, before
/// anything is claimed: it would send a running delivery twice.
pub fn requeue_interrupted(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    attempts::keep_cut(tx)?;
    let requeued = tx.change(REQUEUE, [millis(now)])?;
    tx.counters().add_queued(QueueName::Send, row_count(requeued));
    tx.wake(WakeSet { send: requeued > 0, ..WakeSet::default() });
    Ok(requeued)
}

/// The executions that are ready to be sent. Priority 1 are the runs of an outage.
struct DeliveryQueue<'a, 'b>(&'a ReadTx<'b>);

impl FairQueue for DeliveryQueue<'_, '_> {
    const PRIORITIES: u8 = 2;

    fn next_user(&self, from: i64) -> Result<Option<i64>> {
        self.0.find(NEXT_USER, [from])
    }

    fn next_destination(&self, rows: AccountRows, from: i64) -> Result<Option<i64>> {
        self.0.find(NEXT_DESTINATION, params![rows.user_key, rows.priority, from])
    }

    fn ready(&self, rows: AccountRows, destination: i64, after: i64, limit: usize) -> Result<VecDeque<i64>> {
        let AccountRows { user_key, priority } = rows;
        let keys = self.0.all(READY, params![user_key, priority, destination, after, row_count(limit)])?;
        Ok(VecDeque::from(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::{assert_plans, lengths_read, plan_test};

    plan_test! { no_statement_scans_or_sorts_the_history:
        NEXT_DUE => "executions_waiting",
        PROMOTE => "executions_waiting (due_at<?)",
        NEXT_USER => "INDEX executions_to_send (user_key>?)",
        NEXT_DESTINATION => "executions_to_send (user_key=? AND is_catch_up=? AND destination_hash>?)",
        READY => "executions_to_send (user_key=? AND is_catch_up=? AND destination_hash=? AND key>?)",
        FIND => "executions USING INTEGER PRIMARY KEY",
        CLAIM => "executions USING INTEGER PRIMARY KEY",
        RECORD => "executions USING INTEGER PRIMARY KEY",
        // The index holds only what is in flight.
        REQUEUE => "executions_in_flight",
    }

    #[test]
    fn unfinished_executions_of_a_user_are_found_by_index() {
        for (index, condition, _) in UNFINISHED {
            assert_plans(&[(&fail_all(index, condition), &format!("INDEX executions_{index}"))]);
        }
    }

    #[test]
    fn a_claim_reads_neither_payloads_nor_headers() {
        assert_eq!(lengths_read(FIND), 2);
        for name in ["body", "callback_headers"] {
            assert_eq!(FIND.matches(name).count(), 1, "only its length: {FIND}");
            assert!(!CLAIM.contains(name), "{CLAIM}");
        }
    }
}
