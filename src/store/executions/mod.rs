//! Executions: the queues and the history in one table, and reported outcomes, at most one per execution.

pub mod attempts;
pub mod claims;
pub mod delivery_queue;
pub mod execution_list;
pub mod policies;
pub mod workers;

use jiff::Timestamp;

use crate::domain::account::stats::Figures;
use crate::domain::cue::Transport;
use crate::domain::cue_fields::Overlap;
use crate::domain::execution::outcome::{
    Evidence, Outcome, OutcomeReport, OutcomeState, Verdict, VerificationMode,
};
use crate::domain::execution::{Execution, ExecutionStatus, NewExecution};
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::row_keys::{ExecutionKey, UserKey};
use crate::error::Result;
use crate::store::db::columns::{FromRow, RowReader, row, select};
use crate::store::db::counters::{QueueName, WriteEvent};
use crate::store::executions::claims::first_check;
use crate::store::{ReadTx, WriteTx};

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
    expires_at,
    outcome_due_at,
    created_at,
    updated_at,
});
pub(super) use columns;

row!(report_columns, "o.", OutcomeReport { success, result, error, metadata, evidence });

row!(verdict_columns, "o.", Verdict { verified_at, valid, reason });

row!(outcome_columns, "o.", Outcome {
    recorded_at, report = (report_columns), verdict = (verdict_columns)
});

row! { detail_columns, "",
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionDetails {
    pub execution: Execution = (columns),
    pub cue_id: String = "c.id",
    pub cue_name: String = "c.name",
    pub max_attempts: u32 = "c.max_attempts",
    pub verification: VerificationMode = "c.verification",
    /// It waits for the end of the earlier executions of its cue.
    pub is_buffered: bool = "e.queue_name IS 'waiting' AND e.due_at = 253370764800000",
    /// It waits for its turn in this flow.
    pub flow_key: Option<String> = "iif(e.queue_name = 'send' AND e.destination_hash < 0, c.flow_key, NULL)",
    pub outcome: Option<Outcome> = (outcome_columns),
} }

macro_rules! details {
    () => {
        select!(
            detail_columns,
            "FROM executions e JOIN cues c ON c.key = e.cue_key
               LEFT JOIN outcomes o ON o.execution_key = e.key WHERE "
        )
    };
}

const DETAILS: &str = details!();

/// In `due_at`: an execution that is never checked, or that waits for the end of another one. The year 9999, because
/// every reader of an execution reads the column as an instant.
pub(in crate::store) const NEVER: Timestamp = Timestamp::constant(253_370_764_800, 0);

pub fn insert(tx: &WriteTx<'_>, new: &NewExecution) -> Result<ExecutionKey> {
    let is_waiting = new.scheduled_for > new.now || new.is_buffered;
    let queue_name = match (is_waiting, new.is_worker) {
        (true, _) => "waiting",
        (false, true) => "claim",
        (false, false) => "send",
    };
    tx.count(WriteEvent::Created(new.triggered_by), 1);
    insert_row(tx, new, ExecutionStatus::Pending, Some(queue_name), None)
}

pub fn insert_failed(tx: &WriteTx<'_>, new: &NewExecution, reason: &str) -> Result<ExecutionKey> {
    tx.counters().add_to_hour(new.user_key, new.now, &Figures { failed: 1, ..Figures::default() });
    insert_row(tx, new, ExecutionStatus::Failed, None, Some(reason))
}

fn insert_row(
    tx: &WriteTx<'_>,
    new: &NewExecution,
    status: ExecutionStatus,
    queue_name: Option<&str>,
    error_message: Option<&str>,
) -> Result<ExecutionKey> {
    let waits_until = if new.is_buffered { NEVER } else { new.scheduled_for };
    let due_at = (queue_name == Some("waiting")).then_some(waits_until);
    let policies = Some(new.policies).filter(|_| queue_name.is_some());
    let blocked = policies.filter(|policies| policies.overlap != Overlap::Allow);
    let expires_at = policies.and_then(|policies| policies.expires_at(new.scheduled_for));
    let transport = if new.is_worker { Transport::Worker } else { Transport::Webhook };
    let sql = concat!(
        "INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, due_at, destination_hash,
                                 task, agent, scheduled_for, triggered_by, payload_key, attempts, error_message,
                                 created_at, updated_at, is_catch_up, replayed_from, blocks_cue, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, iif(?6 = 'claim', ",
        first_check!("?15", "?2"),
        ", ?7), ?8, ?9, ?10, ?11, ?12, ?13, 0, ?14, ?15, ?15, ?16, ?17, ?18, ?19)"
    );
    let parameters = (
        (new.id, new.cue_key, new.user_key, transport, status, queue_name, due_at, new.destination),
        (
            &new.task,
            &new.agent,
            new.scheduled_for,
            new.triggered_by,
            new.payload_key,
            error_message,
        ),
        (new.now, new.is_catch_up, new.replayed_from, blocked.map(|_| new.cue_key), expires_at),
    );
    tx.run(sql, parameters)?;
    // An execution that waits for its `send_at` is not a retry, and the backlog does not count it.
    if let Some(queue) = queue_name.and_then(QueueName::parse) {
        tx.counters().add_queued(queue, 1);
    }
    Ok(ExecutionKey::new(tx.last_insert_rowid()))
}

pub fn find(
    read: &ReadTx<'_>,
    user_key: UserKey,
    id: ExecutionId,
) -> Result<Option<ExecutionDetails>> {
    read.find(concat!(details!(), "e.user_key = ?1 AND e.id = ?2"), (user_key, id))
}

pub fn find_by_key(read: &ReadTx<'_>, key: ExecutionKey) -> Result<Option<ExecutionDetails>> {
    read.find(concat!(details!(), "e.key = ?1"), [key])
}

pub fn insert_outcome(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    outcome: &Outcome,
) -> Result<bool> {
    let OutcomeReport { success, result, error, metadata, evidence } = &outcome.report;
    tx.changes(
        "INSERT INTO outcomes (execution_key, success, result, error, metadata, evidence, recorded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (execution_key) DO NOTHING",
        (execution_key, success, result, error, metadata, evidence.fields(), outcome.recorded_at),
    )
}

pub fn replace_outcome(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    outcome: &Outcome,
) -> Result<()> {
    tx.run("DELETE FROM outcomes WHERE execution_key = ?1", [execution_key])?;
    insert_outcome(tx, execution_key, outcome).map(drop)
}

/// In any state: removes it from the queue and ends its lease. A success also sets `delivered_at`.
pub fn complete_execution(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    status: ExecutionStatus,
    outcome: &Outcome,
) -> Result<()> {
    let report = &outcome.report;
    // A worker whose claim has expired may still report, while the execution waits for another worker.
    let sql = "SELECT 1 FROM executions WHERE key = ?1 AND queue_name = 'claim'";
    let is_queued = tx.any(sql, [execution_key])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(is_queued));
    tx.run(
        "UPDATE executions
            SET status = ?2, queue_name = NULL, due_at = NULL, lease_expires_at = NULL, error_message = ?5,
                delivered_at = iif(?3, ?4, NULL), updated_at = ?4, duration_ms = max(?4 - claimed_at, 0)
          WHERE key = ?1",
        (execution_key, status, report.success, outcome.recorded_at, report.error_message()),
    )
}

pub fn set_outcome_state(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    state: OutcomeState,
    now: Timestamp,
) -> Result<()> {
    tx.run(
        "UPDATE executions SET outcome_state = ?2, outcome_due_at = NULL, updated_at = ?3 WHERE key = ?1",
        (execution_key, state, now),
    )
}

pub fn save_outcome(
    tx: &WriteTx<'_>,
    execution_key: ExecutionKey,
    outcome: &Outcome,
) -> Result<()> {
    let verdict = outcome.verdict.as_ref();
    let (valid, reason) = (verdict.map(|it| it.valid), verdict.and_then(|it| it.reason.as_ref()));
    tx.run(
        "UPDATE outcomes SET evidence = ?2, valid = ?3, reason = ?4, verified_at = ?5 WHERE execution_key = ?1",
        (
            execution_key,
            outcome.report.evidence.fields(),
            valid,
            reason,
            verdict.map(|it| it.verified_at),
        ),
    )
}

impl FromRow for Evidence {
    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        Ok(columns.get::<Option<JsonText>>()?.map(Self::from).unwrap_or_default())
    }
}
