//! Executions: the queues and the history in one table. `delivery_queue` claims and records deliveries,
//! `delivery_request` reads what they send, `claims` holds the claims and leases of workers, `unclaimed` finds those that
//! nobody claims, `attempts` has earlier attempts, `outcomes` the reports, `execution_list` the filtered lists, and those
//! to replay. `queue_changes` sends an execution early or cancels it.

pub mod attempts;
pub mod claims;
pub mod delivery_queue;
pub mod delivery_request;
pub mod execution_list;
pub mod outcomes;
pub mod queue_changes;
pub mod unclaimed;
pub mod workers;

use rusqlite::params;

use crate::domain::account::figures::Figures;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::execution::{Execution, ExecutionStatus, NewExecution};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::db::counters::QueueName;
use crate::store::db::write_stats::WriteEvent;
use crate::store::executions::unclaimed::first_check;
use crate::store::{ReadTx, WriteTx};

// From executions `e`. A pending execution may also wait, for its `send_at`. That is not a retry.
row!(columns, "e.", Execution {
    key,
    id,
    cue_key,
    user_key,
    is_worker = "e.transport = 'worker'",
    status,
    scheduled_for,
    triggered_by,
    payload_key,
    task,
    agent,
    attempts,
    started_at,
    last_attempt_at,
    delivered_at,
    next_retry = "iif(e.status = 'retrying', e.due_at, NULL)",
    http_status,
    error_message,
    response_body,
    duration = "e.duration_ms",
    cause,
    replayed_from,
    claimed_by_worker,
    claimed_at,
    lease_expires_at,
    outcome_state,
    created_at,
    updated_at,
});
pub(super) use columns;

// The execution is the first of the columns.
row! { detail_columns, "",
/// An execution with its outcome and the columns of its cue that the API shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionDetails {
    pub execution: Execution = "",
    pub cue_id: String = "c.id",
    pub cue_name: String = "c.name",
    /// The number of attempts that its cue allows.
    pub max_attempts: u32 = "c.max_attempts",
    /// The mode by which successes of its cue are verified.
    pub verification: VerificationMode = "c.verification",
    pub outcome: Option<Outcome> = "o.recorded_at, o.success, o.result, o.error, o.metadata, o.evidence, o.verified_at, o.valid, o.reason",
} }

macro_rules! select {
    ($filter:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            detail_columns!(),
            " FROM executions e
              JOIN cues c ON c.key = e.cue_key
              LEFT JOIN outcomes o ON o.execution_key = e.key
             WHERE ",
            $filter
        )
    };
}

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
        first_check!("?15", "?2"),
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

pub fn find(read: &ReadTx<'_>, user_key: i64, id: ExecutionId) -> Result<Option<ExecutionDetails>> {
    read.find(select!("e.user_key = ?1 AND e.id = ?2"), params![user_key, id.bytes()])
}

pub fn find_by_key(read: &ReadTx<'_>, key: i64) -> Result<Option<ExecutionDetails>> {
    read.find(select!("e.key = ?1"), [key])
}
