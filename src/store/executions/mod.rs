//! Executions: the queues and the history in one table. `delivery_queue` claims and records deliveries,
//! `delivery_request` reads what they send, `claims` holds the claims and leases of workers, `unclaimed` finds those that
//! nobody claims, `attempts` has earlier attempts, `outcomes` the reports, `execution_list` the filtered lists,
//! `created_range` their bounds in time. `queue_changes` sends an execution early or cancels it, `replay_selection` finds
//! those to replay.

pub mod attempts;
pub mod claims;
pub mod created_range;
pub mod delivery_queue;
pub mod delivery_request;
pub mod execution_list;
mod index_scan;
pub mod outcomes;
pub mod queue_changes;
pub mod replay_selection;
pub mod unclaimed;
pub mod workers;

use jiff::SignedDuration;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::figures::Figures;
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, VerificationMode};
use crate::domain::execution::{Execution, ExecutionStatus, NewExecution, Trigger};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::db::columns::{instant, maybe_instant, millis, parse_maybe_word, parse_word};
use crate::store::db::counters::QueueName;
use crate::store::db::write_stats::WriteEvent;
use crate::store::executions::unclaimed::first_look;
use crate::store::{ReadTx, WriteTx};

/// An execution with its outcome and the columns of its cue that the API shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionDetails {
    pub execution: Execution,
    pub cue_id: String,
    pub cue_name: String,
    /// The number of attempts that its cue allows.
    pub max_attempts: u32,
    /// The mode by which successes of its cue are verified.
    pub verification: VerificationMode,
    pub outcome: Option<Outcome>,
}

/// The columns that [`read_execution`] reads, from executions `e`.
pub(super) const COLUMNS: &str =
    "e.key, e.id, e.cue_key, e.user_key, e.transport = 'worker' AS is_worker, e.status,
    e.due_at, e.scheduled_for, e.triggered_by, e.payload_key, e.task, e.agent, e.attempts, e.started_at,
    e.last_attempt_at, e.delivered_at, e.http_status, e.error_message, e.response_body, e.claimed_by_worker,
    e.claimed_at, e.lease_expires_at, e.outcome_state, e.created_at, e.updated_at, e.duration_ms, e.cause,
    e.replayed_from";

/// Inserts an execution, which is ready at once or waits until `scheduled_for`. Returns its row key.
pub fn insert(tx: &WriteTx<'_>, new: &NewExecution) -> Result<i64> {
    let is_waiting = new.scheduled_for > new.now;
    let queue_name = match (is_waiting, new.is_worker) {
        (true, _) => "waiting",
        (false, true) => "claim",
        (false, false) => "send",
    };
    tx.count(WriteEvent::Created(new.triggered_by), 1);
    insert_row(tx, new, ExecutionStatus::Pending, Some(queue_name), None)
}

/// Inserts an execution that failed before its first attempt, because of `reason`. Returns its row key.
pub fn insert_failed(tx: &WriteTx<'_>, new: &NewExecution, reason: &str) -> Result<i64> {
    tx.counters().add_to_hour(new.user_key, new.now, &Figures { failed: 1, ..Figures::default() });
    insert_row(tx, new, ExecutionStatus::Failed, None, Some(reason))
}

fn insert_row(
    tx: &WriteTx<'_>,
    new: &NewExecution,
    status: ExecutionStatus,
    queue_name: Option<&str>,
    error_message: Option<&str>,
) -> Result<i64> {
    let due_at = (queue_name == Some("waiting")).then(|| millis(new.scheduled_for));
    tx.prepare_cached(concat!(
        "INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, due_at, destination_hash,
                                 task, agent, scheduled_for, triggered_by, payload_key, attempts, error_message,
                                 created_at, updated_at, is_catch_up, replayed_from)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, iif(?6 = 'claim', ",
        first_look!("?15", "?2"),
        ", ?7), ?8, ?9, ?10, ?11, ?12, ?13, 0, ?14, ?15, ?15, ?16, ?17)"
    ))?
    .execute(params![
        new.id.bytes(),
        new.cue_key,
        new.user_key,
        if new.is_worker { "worker" } else { "webhook" },
        status.as_str(),
        queue_name,
        due_at,
        new.destination,
        new.task,
        new.agent,
        millis(new.scheduled_for),
        new.triggered_by.as_str(),
        new.payload_key,
        error_message,
        millis(new.now),
        new.is_catch_up,
        new.replayed_from.as_ref().map(ExecutionId::bytes),
    ])?;
    match queue_name {
        Some("send") => tx.counters().add_queued(QueueName::Send, 1),
        Some("claim") => tx.counters().add_queued(QueueName::Claim, 1),
        // An execution that waits for its `send_at` is not a retry, and the backlog does not count it.
        _ => {}
    }
    Ok(tx.last_insert_rowid())
}

/// The user's execution with this id.
pub fn find(read: &ReadTx<'_>, user_key: i64, id: ExecutionId) -> Result<Option<ExecutionDetails>> {
    let sql = select("WHERE e.user_key = ?1 AND e.id = ?2");
    Ok(read.prepare_cached(&sql)?.query_row(params![user_key, id.bytes()], read_details).optional()?)
}

/// The execution in row `key`.
pub fn find_by_key(read: &ReadTx<'_>, key: i64) -> Result<Option<ExecutionDetails>> {
    let sql = select("WHERE e.key = ?1");
    Ok(read.prepare_cached(&sql)?.query_row([key], read_details).optional()?)
}

fn select(filter: &str) -> String {
    format!(
        "SELECT {COLUMNS}, c.id AS cue_id, c.name AS cue_name, c.max_attempts, c.verification,
                o.success, o.result, o.error, o.metadata, o.evidence, o.recorded_at, o.valid, o.reason, o.verified_at
           FROM executions e
           JOIN cues c ON c.key = e.cue_key
           LEFT JOIN outcomes o ON o.execution_key = e.key
          {filter}"
    )
}

fn read_details(row: &Row<'_>) -> rusqlite::Result<ExecutionDetails> {
    Ok(ExecutionDetails {
        execution: read_execution(row)?,
        cue_id: row.get("cue_id")?,
        cue_name: row.get("cue_name")?,
        max_attempts: row.get("max_attempts")?,
        verification: parse_word(row, "verification", VerificationMode::parse)?,
        outcome: outcomes::read_outcome(row)?,
    })
}

/// Reads an execution from a row with `COLUMNS`.
pub fn read_execution(row: &Row<'_>) -> rusqlite::Result<Execution> {
    let status = parse_word(row, "status", ExecutionStatus::parse)?;
    let due_at = maybe_instant(row, "due_at")?;
    Ok(Execution {
        key: row.get("key")?,
        id: read_id(row)?,
        cue_key: row.get("cue_key")?,
        user_key: row.get("user_key")?,
        is_worker: row.get("is_worker")?,
        status,
        scheduled_for: instant(row, "scheduled_for")?,
        triggered_by: parse_word(row, "triggered_by", Trigger::parse)?,
        payload_key: row.get("payload_key")?,
        task: row.get("task")?,
        agent: row.get("agent")?,
        attempts: row.get("attempts")?,
        started_at: maybe_instant(row, "started_at")?,
        last_attempt_at: maybe_instant(row, "last_attempt_at")?,
        delivered_at: maybe_instant(row, "delivered_at")?,
        // A pending execution may also wait, for its `send_at`. That is not a retry.
        next_retry: due_at.filter(|_| status == ExecutionStatus::Retrying),
        http_status: row.get("http_status")?,
        error_message: row.get("error_message")?,
        response_body: row.get("response_body")?,
        duration: row.get::<_, Option<i64>>("duration_ms")?.map(SignedDuration::from_millis),
        cause: parse_maybe_word(row, "cause", FailureCause::parse)?,
        replayed_from: row.get::<_, Option<[u8; 16]>>("replayed_from")?.map(ExecutionId::from_bytes),
        claimed_by_worker: row.get("claimed_by_worker")?,
        claimed_at: maybe_instant(row, "claimed_at")?,
        lease_expires_at: maybe_instant(row, "lease_expires_at")?,
        outcome_state: parse_maybe_word(row, "outcome_state", OutcomeState::parse)?,
        created_at: instant(row, "created_at")?,
        updated_at: instant(row, "updated_at")?,
    })
}

/// Reads the execution id in column `id`.
pub fn read_id(row: &Row<'_>) -> rusqlite::Result<ExecutionId> {
    Ok(ExecutionId::from_bytes(row.get("id")?))
}
