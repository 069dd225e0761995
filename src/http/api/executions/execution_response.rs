//! The JSON of an execution.

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::instants::{JsonTimestamp, instant};
use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::shown_body;
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, Verdict};
use crate::domain::json::JsonText;
use crate::service::manual_runs::ManualRun;
use crate::store::executions::ExecutionDetails;

/// All fields of an execution (contract §5.1). `outcome` and `verdict` are absent until they exist.
#[derive(Debug, Serialize)]
pub struct ExecutionView<'a> {
    id: String,
    cue_id: &'a str,
    cue_name: &'a str,
    status: &'static str,
    scheduled_for: JsonTimestamp,
    triggered_by: &'static str,
    replayed_from: Option<String>,
    attempts: u32,
    max_attempts: u32,
    http_status: Option<u16>,
    error_message: Option<&'a str>,
    response_body: Option<&'a str>,
    cause: Option<&'static str>,
    duration_ms: Option<i128>,
    late_ms: Option<i128>,
    started_at: Option<JsonTimestamp>,
    last_attempt_at: Option<JsonTimestamp>,
    delivered_at: Option<JsonTimestamp>,
    next_retry: Option<JsonTimestamp>,
    claimed_by_worker: Option<&'a str>,
    claimed_at: Option<JsonTimestamp>,
    lease_expires_at: Option<JsonTimestamp>,
    outcome_state: Option<&'static str>,
    evidence: Option<&'a JsonText>,
    created_at: JsonTimestamp,
    updated_at: JsonTimestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<VerdictView<'a>>,
}

/// The outcome that a worker reported.
#[derive(Debug, Serialize)]
pub struct OutcomeView<'a> {
    success: bool,
    result: Option<&'a str>,
    metadata: Option<&'a JsonText>,
    recorded_at: JsonTimestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// The answer to a report.
#[derive(Debug, Serialize)]
pub struct RecordedView<'a> {
    pub execution_id: String,
    pub outcome: OutcomeView<'a>,
    pub outcome_recorded: bool,
    pub outcome_state: &'static str,
}

/// The answer to more evidence.
#[derive(Debug, Serialize)]
pub struct EvidenceView<'a> {
    pub execution_id: String,
    pub outcome_state: &'static str,
    pub evidence_updated: bool,
    pub evidence: Option<&'a JsonText>,
}

/// The verdict of a person about an outcome.
#[derive(Debug, Serialize)]
pub struct VerdictView<'a> {
    valid: bool,
    reason: Option<&'a str>,
    verified_at: JsonTimestamp,
}

impl<'a> From<&'a ExecutionDetails> for ExecutionView<'a> {
    fn from(details: &'a ExecutionDetails) -> Self {
        let (it, outcome) = (&details.execution, details.outcome.as_ref());
        Self {
            id: it.id.to_string(),
            cue_id: &details.cue_id,
            cue_name: &details.cue_name,
            status: it.status.as_str(),
            scheduled_for: JsonTimestamp(it.scheduled_for),
            triggered_by: it.triggered_by.as_str(),
            replayed_from: it.replayed_from.map(|original| original.to_string()),
            attempts: it.attempts,
            max_attempts: details.max_attempts,
            http_status: it.http_status,
            error_message: it.error_message.as_deref(),
            response_body: it.response_body.as_deref().map(shown_body),
            cause: it.cause.map(FailureCause::as_str),
            duration_ms: it.duration.map(|duration| duration.as_millis()),
            late_ms: it.lateness().map(|lateness| lateness.as_millis()),
            started_at: it.started_at.map(JsonTimestamp),
            last_attempt_at: it.last_attempt_at.map(JsonTimestamp),
            delivered_at: it.delivered_at.map(JsonTimestamp),
            next_retry: it.next_retry.map(JsonTimestamp),
            claimed_by_worker: it.claimed_by_worker.as_deref(),
            claimed_at: it.claimed_at.map(JsonTimestamp),
            lease_expires_at: it.lease_expires_at.map(JsonTimestamp),
            outcome_state: it.outcome_state.map(OutcomeState::as_str),
            evidence: outcome.and_then(|outcome| outcome.report.evidence.fields()),
            created_at: JsonTimestamp(it.created_at),
            updated_at: JsonTimestamp(it.updated_at),
            outcome: outcome.map(OutcomeView::from),
            verdict: outcome.and_then(|outcome| outcome.verdict.as_ref()).map(VerdictView::from),
        }
    }
}

impl<'a> From<&'a Outcome> for OutcomeView<'a> {
    fn from(Outcome { report, recorded_at, .. }: &'a Outcome) -> Self {
        Self {
            success: report.success,
            result: report.result.as_deref(),
            metadata: report.metadata.as_ref(),
            recorded_at: JsonTimestamp(*recorded_at),
            error: report.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Verdict> for VerdictView<'a> {
    fn from(verdict: &'a Verdict) -> Self {
        Self {
            valid: verdict.valid,
            reason: verdict.reason.as_deref(),
            verified_at: JsonTimestamp(verdict.verified_at),
        }
    }
}

/// Renders a manual run as `fire` and `replay` return it.
pub fn render_run(run: &ManualRun) -> Value {
    json!({
        "id": run.execution_id.to_string(),
        "execution_id": run.execution_id.to_string(),
        "cue_id": run.cue_id,
        "scheduled_for": instant(run.scheduled_for),
        "status": ExecutionStatus::Pending.as_str(),
        "triggered_by": run.triggered_by.as_str(),
    })
}
