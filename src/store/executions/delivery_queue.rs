//! The delivery queue, its claims and attempts. A request changes only a row that is in a queue; an attempt that has
//! begun is in none.

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::stats::Figures;
use crate::domain::account::user::{ACCOUNT_DISABLED, ADDRESS_UNCONFIRMED};
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::outcome::{MAX_RESPONSE_OUTCOME, Outcome};
use crate::domain::execution::{ExecutionStatus, NextStep, RetryPolicy};
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::row_keys::{ExecutionKey, UserKey};
use crate::domain::time::saturating_add;
use crate::domain::webhook::delivery::{AttemptRef, DeliverySpec};
use crate::error::Result;
use crate::store::db::columns::{callback_columns, row, row_count, select, webhook_secret_columns};
use crate::store::db::counters::QueueName;
use crate::store::db::meta;
use crate::store::executions::claims::first_check;
use crate::store::executions::{NEVER, attempts, policies};
use crate::store::fair_queue::{self, FairQueue, Grant, ReadyRow, Rotation};
use crate::store::{ReadTx, WakeSet, WriteTx};

impl ClaimedDelivery {
    pub fn destination_key(&self) -> (UserKey, i64) {
        (self.attempt_ref.user_key, self.attempt_ref.destination)
    }

    pub fn memory(&self) -> usize {
        self.bytes.saturating_add(if self.takes_outcome {
            MAX_RESPONSE_OUTCOME * RESPONSE_COPIES
        } else {
            0
        })
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
    pub response_body: Option<String>,
    pub response_headers: Option<JsonText>,
    pub error_message: Option<String>,
    pub cause: Option<FailureCause>,
    pub outcome: Option<Outcome>,
    pub has_outcome_deadline: bool,
}

impl AttemptRecord {
    pub fn is_retried(&self) -> bool {
        matches!(self.next, NextStep::RetryAt(_))
    }
}

/// Copies of a response that is taken as an outcome: its bytes, and the report that is read from them.
const RESPONSE_COPIES: usize = 2;

const NEXT_DUE: &str = "SELECT due_at FROM executions WHERE queue_name = 'waiting' AND due_at < ?1 ORDER BY due_at LIMIT 1";

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

// While executions follow a change of their cue: without those that are still ready for the destination before it, whose
// limits would not hold for them.
const READY_AND_FOLLOWING: &str =
    "SELECT executions.key FROM executions LEFT JOIN cues ON cues.key = cue_key
    WHERE queue_name = 'send' AND executions.user_key = ?1 AND is_catch_up = ?2
      AND executions.destination_hash = ?3 AND executions.key > ?4
      AND coalesce(cues.destination_hash, ?3) = ?3
    ORDER BY executions.key LIMIT ?5 + 0";

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

// While a request is sent, there are three copies of its headers (two in the HTTP client) and one of its body.
row! { claimed_columns, "",
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub attempt_ref: AttemptRef = (attempt_ref_columns),
    /// The most that its body and its custom headers take in memory while it is sent.
    pub bytes: usize = "coalesce(octet_length(payloads.body), 0) + 3 * coalesce(octet_length(callback_headers), 0)",
    pub takes_outcome: bool = "outcome_from_response IS 1",
    pub has_outcome_deadline: bool = "outcome_deadline_seconds IS NOT NULL",
    /// No attempt follows one that ends after it.
    pub expires_at: Option<Timestamp> = "executions.scheduled_for + 1000 * max_age_seconds",
    pub max_age_seconds: Option<u32>,
} }

// Outer joins: an execution without a cue must be claimed and failed, or it would stay first in the queue. Reads
// lengths, not texts.
const FIND: &str = select!(
    claimed_columns,
    "FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
           LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.key = ?1"
);

const CLAIM: &str = "UPDATE executions
    SET status = 'delivering', queue_name = NULL, due_at = NULL, attempts = attempts + 1,
        started_at = coalesce(started_at, ?2), last_attempt_at = ?2, updated_at = ?2
  WHERE key = ?1 AND queue_name = 'send'";

// Compares the id as well, because SQLite reuses the row key of a deleted execution. The expiry of one that is tried again
// may have passed, and been ignored, during the attempt.
const RECORD: &str = "UPDATE executions
    SET status = ?4, queue_name = CASE WHEN ?5 IS NULL THEN NULL ELSE 'waiting' END, due_at = ?5, delivered_at = ?6,
        http_status = ?7, response_body = ?8, error_message = ?9, updated_at = ?10,
        duration_ms = ?11, cause = ?12, response_headers = ?13,
        expires_at = CASE WHEN ?5 IS NOT NULL
                          THEN scheduled_for + 1000 * (SELECT max_age_seconds FROM cues WHERE cues.key = cue_key) END
  WHERE key = ?1 AND id = ?2 AND attempts = ?3 AND status = 'delivering'";

/// Indexes of unfinished executions with their conditions. The history of a single user may be far longer.
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
                updated_at = ?3, blocks_cue = NULL, expires_at = NULL,
                duration_ms = iif(lease_expires_at IS NULL, duration_ms, max(?3 - last_attempt_at, 0))
          WHERE user_key = ?1 AND {condition}"
    )
}

const RETRIES: &str = "SELECT count(*) FROM executions INDEXED BY executions_waiting
  WHERE user_key = ?1 AND queue_name = 'waiting' AND status = 'retrying'";

const REQUEUE: &str = "UPDATE executions
    SET status = CASE WHEN attempts > 1 THEN 'retrying' ELSE 'pending' END, queue_name = 'send',
        attempts = attempts - 1, started_at = CASE WHEN attempts > 1 THEN started_at END, updated_at = ?1,
        destination_hash = coalesce((SELECT cues.destination_hash FROM cues WHERE cues.key = cue_key), destination_hash),
        expires_at = scheduled_for + 1000 * (SELECT max_age_seconds FROM cues WHERE cues.key = cue_key)
  WHERE status = 'delivering' AND transport = 'webhook'";

pub fn next_due_at(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_DUE, [NEVER])
}

/// Longest overdue first, at most `limit`. Returns their number.
pub fn promote_due(tx: &WriteTx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    let promoted: Vec<(bool, bool)> = tx.all(PROMOTE, (now, limit))?;
    for (is_worker, is_retry) in &promoted {
        count_released(tx, *is_worker, *is_retry);
    }
    Ok(promoted.len() as u64)
}

fn count_released(tx: &WriteTx<'_>, is_worker: bool, is_retry: bool) {
    tx.counters().add_queued(QueueName::Retry, -i64::from(is_retry));
    tx.counters().add_queued(if is_worker { QueueName::Claim } else { QueueName::Send }, 1);
    tx.wake(WakeSet { send: !is_worker, claim: is_worker, ..WakeSet::default() });
}

/// Returns whether any execution is ready to be sent. Always `false` while the database is on hold.
pub fn has_ready(read: &ReadTx<'_>) -> Result<bool> {
    Ok(read.find::<i64>(NEXT_USER, [i64::MIN])?.is_some() && !meta::is_held(read)?)
}

/// In the order of [`fair_queue::take`]. Reads no payload. Claims nothing while the database is on hold.
pub fn claim_batch(
    tx: &WriteTx<'_>,
    now: Timestamp,
    rotation: &mut Rotation,
    try_acquire: impl FnMut(UserKey, i64) -> Result<Grant>,
) -> Result<Vec<ClaimedDelivery>> {
    if meta::is_held(tx)? {
        return Ok(Vec::new());
    }
    let ready_sql = if policies::has_changed(tx)? { READY_AND_FOLLOWING } else { READY };
    let queue = FairQueue {
        priorities: 2,
        next_user: &|from| tx.find(NEXT_USER, [from]),
        next_destination: &|rows, from| {
            tx.find(NEXT_DESTINATION, (rows.user_key, rows.priority, from))
        },
        ready: &|rows, destination, after, limit| {
            tx.all(ready_sql, (rows.user_key, rows.priority, destination, after, limit))
        },
    };
    let ready = fair_queue::take(&queue, rotation, try_acquire)?;
    let mut claimed = Vec::with_capacity(ready.len());
    for ReadyRow { key, .. } in ready {
        claimed.push(tx.one(FIND, (key, now))?);
        tx.run(CLAIM, (key, now))?;
    }
    tx.counters().add_queued(QueueName::Send, -row_count(claimed.len()));
    Ok(claimed)
}

pub fn record(tx: &WriteTx<'_>, attempt_record: &AttemptRecord, now: Timestamp) -> Result<bool> {
    let AttemptRef { key, id, attempt, .. } = attempt_record.attempt_ref;
    let (due_at, delivered_at) = match attempt_record.next {
        NextStep::Success => (None, Some(attempt_record.at)),
        NextStep::RetryAt(due_at) => (Some(due_at), None),
        NextStep::Failed => (None, None),
    };
    let AttemptRecord {
        http_status, response_body, response_headers, error_message, cause, ..
    } = attempt_record;
    let is_recorded = tx.changes(
        RECORD,
        (
            (key, id, attempt, attempt_record.next.status(), due_at, delivered_at, http_status),
            (response_body, error_message, now, attempt_record.duration, cause, response_headers),
        ),
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

pub fn fail_all_for_user(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    reason: &str,
    now: Timestamp,
) -> Result<()> {
    tx.counters().add_queued(QueueName::Retry, -tx.one::<i64>(RETRIES, [user_key])?);
    for (index, condition, queue_name) in UNFINISHED {
        let failed = tx.change(&fail_all(index, condition), (user_key, reason, now))?;
        let failed = row_count(failed);
        if let Some(queue_name) = queue_name {
            tx.counters().add_queued(queue_name, -failed);
        }
        tx.counters().add_to_hour(user_key, now, &Figures { failed, ..Figures::default() });
    }
    Ok(())
}

/// The interrupted attempt does not count, but is listed. Call it at the start only, before anything is claimed: it
/// would send a running delivery twice.
pub fn requeue_interrupted(tx: &WriteTx<'_>, now: Timestamp) -> Result<usize> {
    attempts::keep_cut(tx)?;
    let requeued = tx.change(REQUEUE, [now])?;
    tx.counters().add_queued(QueueName::Send, row_count(requeued));
    tx.wake(WakeSet { send: requeued > 0, ..WakeSet::default() });
    Ok(requeued)
}

pub struct LoadedDelivery {
    pub claimed: ClaimedDelivery,
    /// An error if there is nothing to send or the rows cannot be read: that execution fails, and the others are sent.
    pub spec: std::result::Result<(DeliverySpec, RetryPolicy), String>,
}

row!(spec_columns, "", DeliverySpec {
    callback = (callback_columns),
    cue_id = "cues.id",
    payload = "payloads.body",
    secrets = (webhook_secret_columns),
});

// Outer joins distinguish a deleted cue from a deleted execution. Compares the id: SQLite reuses the key of a deleted
// row.
const FIND_REQUEST: &str = concat!(
    "SELECT disabled_at, ",
    spec_columns!(),
    ", max_attempts, backoff_minutes, backoff_seconds
      FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
           LEFT JOIN users ON users.key = executions.user_key
           LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.key = ?1 AND executions.id = ?2 AND attempts = ?3 AND executions.status = 'delivering'"
);

// The kept attempt first: after a cut attempt the row of the execution has the start of that one.
row! { shown_columns, "executions.",
pub struct ShownDelivery {
    pub attempt_ref: AttemptRef = "executions.key, executions.id, executions.cue_key, executions.user_key, 0, ?3, \
        executions.scheduled_for, executions.triggered_by = 'schedule', executions.scheduled_for",
    pub spec: DeliverySpec = (spec_columns),
    pub attempts: u32,
    pub status: ExecutionStatus,
    pub started_at: Option<Timestamp> = "coalesce((SELECT started_at FROM attempts \
        WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 1), \
        CASE WHEN ?3 = executions.attempts THEN executions.last_attempt_at END)",
    pub was_cut: bool = "(SELECT 1 FROM attempts \
        WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 0) IS NOT NULL",
    /// The latest change of the cue, or pause, or run on request.
    pub cue_updated_at: Timestamp = "cues.updated_at",
} }

const SHOW_REQUEST: &str = select!(
    shown_columns,
    "FROM executions JOIN cues ON cues.key = executions.cue_key
          JOIN users ON users.key = executions.user_key
          LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.id = ?2 AND executions.user_key = ?1 AND executions.transport = 'webhook'"
);

/// When the account was disabled, and the request, if it can be read.
type RequestRow = (Option<Timestamp>, rusqlite::Result<(DeliverySpec, RetryPolicy)>);

pub fn load_request(read: &ReadTx<'_>, claimed: ClaimedDelivery) -> Result<LoadedDelivery> {
    let AttemptRef { key, id, attempt, .. } = claimed.attempt_ref;
    let found: Option<RequestRow> = read.find(FIND_REQUEST, (key, id, attempt))?;
    let spec = match found {
        None => Err("the execution was deleted".to_owned()),
        // Disabling an account fails its queued executions. This one was in flight then.
        Some((Some(_), _)) => Err(ACCOUNT_DISABLED.to_owned()),
        Some((None, spec)) => spec.map_err(|error| error.to_string()),
    };
    Ok(LoadedDelivery { claimed, spec })
}

pub fn show_request(
    read: &ReadTx<'_>,
    user_key: UserKey,
    id: ExecutionId,
    attempt: u32,
) -> Result<Option<ShownDelivery>> {
    let mut shown: Option<ShownDelivery> = read.find(SHOW_REQUEST, (user_key, id, attempt))?;
    if let Some(ShownDelivery { attempt_ref, started_at: Some(started_at), .. }) = &mut shown {
        attempt_ref.started_at = *started_at;
    }
    Ok(shown)
}

const PLACE: &str = "SELECT queue_name, status = 'retrying' FROM executions WHERE key = ?1";

// Reads the destination again: the callback may have changed. A pending execution is due now, not at its `send_at`.
const RELEASE: &str = "UPDATE executions
    SET queue_name = CASE transport WHEN 'worker' THEN 'claim' ELSE 'send' END, due_at = ?2,
        destination_hash = coalesce((SELECT cues.destination_hash FROM cues WHERE cues.key = executions.cue_key),
                                    destination_hash),
        expires_at = CASE status WHEN 'pending' THEN expires_at - max(scheduled_for - ?2, 0) ELSE expires_at END,
        scheduled_for = CASE status WHEN 'pending' THEN min(scheduled_for, ?2) ELSE scheduled_for END, updated_at = ?2
  WHERE key = ?1 AND queue_name = 'waiting'
  RETURNING transport = 'worker', status = 'retrying'";

const FAIL_QUEUED: &str = "UPDATE executions
    SET status = 'failed', queue_name = NULL, due_at = NULL, error_message = ?2, updated_at = ?3,
        cause = coalesce(?4, cause)
  WHERE key = ?1 AND queue_name IS NOT NULL";

// The result of an attempt that runs is not recorded then: it records only an execution that is being delivered.
const FAIL_DELIVERING: &str = "UPDATE executions INDEXED BY executions_in_flight
    SET status = 'failed', error_message = ?2, updated_at = ?3, duration_ms = max(?3 - last_attempt_at, 0),
        blocks_cue = NULL, expires_at = NULL
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

const BATCH: i64 = 500;

pub fn is_unconfirmed(read: &ReadTx<'_>, user_key: UserKey) -> Result<bool> {
    read.any(IS_UNCONFIRMED, [user_key])
}

/// The first waits until `free_at`, each further one `interval` longer.
pub fn hold_up(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    free_at: Timestamp,
    interval: SignedDuration,
    now: Timestamp,
) -> Result<()> {
    let ready: Vec<(ExecutionKey, bool)> = tx.all(TO_SEND, (user_key, BATCH))?;
    let mut due_at = free_at;
    for (key, is_retry) in &ready {
        tx.run(HOLD_UP, (key, due_at, now, ADDRESS_UNCONFIRMED))?;
        tx.counters().add_queued(QueueName::Retry, i64::from(*is_retry));
        tx.counters().add_queued(QueueName::Send, -1);
        due_at = saturating_add(due_at, interval);
    }
    let may_have_more = i64::try_from(ready.len()) == Ok(BATCH);
    tx.wake(WakeSet { schedule: Some(free_at), send: may_have_more, ..WakeSet::default() });
    Ok(())
}

pub fn let_go(tx: &WriteTx<'_>, user_key: UserKey, now: Timestamp) -> Result<()> {
    tx.run(LET_GO, (user_key, now, ADDRESS_UNCONFIRMED))?;
    tx.wake(WakeSet { schedule: Some(now), ..WakeSet::default() });
    Ok(())
}

pub fn release(tx: &WriteTx<'_>, key: ExecutionKey, now: Timestamp) -> Result<bool> {
    let released: Option<(bool, bool)> = tx.find(RELEASE, (key, now))?;
    if let Some((is_worker, is_retry)) = released {
        count_released(tx, is_worker, is_retry);
    }
    Ok(released.is_some())
}

/// Ends an execution without another attempt. Returns `false` if it is in no queue.
pub fn fail_queued(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    reason: &str,
    cause: Option<FailureCause>,
    now: Timestamp,
) -> Result<bool> {
    let found: Option<(Option<String>, bool)> = tx.find(PLACE, [key])?;
    let Some((Some(queue_name), is_retry)) = found else { return Ok(false) };
    tx.run(FAIL_QUEUED, (key, reason, now, cause))?;
    match QueueName::parse(&queue_name) {
        Some(queue) => tx.counters().add_queued(queue, -1),
        // Of those that wait, only retries are counted.
        None => tx.counters().add_queued(QueueName::Retry, -i64::from(is_retry)),
    }
    Ok(true)
}

pub fn fail_delivering(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    reason: &str,
    now: Timestamp,
) -> Result<()> {
    let failed = row_count(tx.change(FAIL_DELIVERING, (user_key, reason, now))?);
    tx.counters().add_to_hour(user_key, now, &Figures { failed, ..Figures::default() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::{assert_plans, lengths_read, plan, plan_test};

    plan_test! { no_statement_scans_or_sorts_the_history:
        NEXT_DUE => "executions_waiting",
        PROMOTE => "executions_waiting (due_at<?)",
        NEXT_USER => "INDEX executions_to_send (user_key>?)",
        NEXT_DESTINATION => "executions_to_send (user_key=? AND is_catch_up=? AND destination_hash>?)",
        READY => "executions_to_send (user_key=? AND is_catch_up=? AND destination_hash=? AND key>?)",
        READY_AND_FOLLOWING => "executions_to_send (user_key=? AND is_catch_up=? AND destination_hash=? AND key>?)",
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

    #[test]
    fn a_request_is_read_by_keys_alone() {
        for step in plan(FIND_REQUEST) {
            assert!(step.starts_with("SEARCH") && step.contains("INTEGER PRIMARY KEY"), "{step}");
        }
        for step in plan(SHOW_REQUEST) {
            let by_key = step.contains("INTEGER PRIMARY KEY")
                || step.contains("(id=?)")
                || step.contains("attempts");
            assert!((step.starts_with("SEARCH") && by_key) || step.contains("SUBQUERY"), "{step}");
        }
    }

    plan_test! { executions_are_found_by_their_row_or_their_user:
        FAIL_DELIVERING => "INDEX executions_in_flight (user_key=?)",
        PLACE => "USING INTEGER PRIMARY KEY (rowid=?)",
        RELEASE => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
        FAIL_QUEUED => "USING INTEGER PRIMARY KEY (rowid=?)",
        TO_SEND => "executions_to_send (user_key=?)",
    }
}
