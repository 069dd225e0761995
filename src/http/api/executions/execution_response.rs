//! An execution as answers write it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, Verdict};
use crate::http::response::Instant;
use crate::store::executions::Listed;

/// An execution with all its fields (contract §5); `outcome` only once there is one (spec §2), and so `verdict`.
#[derive(Debug, Serialize)]
pub struct ExecutionShown<'a> {
    id: String,
    cue_id: &'a str,
    status: &'static str,
    scheduled_for: Instant,
    triggered_by: &'static str,
    attempts: u32,
    http_status: Option<u16>,
    error_message: Option<&'a str>,
    response_body: Option<&'a str>,
    started_at: Option<Instant>,
    last_attempt_at: Option<Instant>,
    delivered_at: Option<Instant>,
    next_retry: Option<Instant>,
    claimed_by_worker: Option<&'a str>,
    claimed_at: Option<Instant>,
    lease_expires_at: Option<Instant>,
    outcome_state: Option<&'static str>,
    evidence: Option<&'a Map<String, Value>>,
    created_at: Instant,
    updated_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeShown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<VerdictShown<'a>>,
}

/// What a worker reported.
#[derive(Debug, Serialize)]
pub struct OutcomeShown<'a> {
    success: bool,
    result: Option<&'a str>,
    metadata: Option<&'a Map<String, Value>>,
    recorded_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// What a person said of an outcome.
#[derive(Debug, Serialize)]
pub struct VerdictShown<'a> {
    valid: bool,
    reason: Option<&'a str>,
    verified_at: Instant,
}

impl<'a> From<&'a Listed> for ExecutionShown<'a> {
    fn from(listed: &'a Listed) -> Self {
        let (it, outcome) = (&listed.execution, listed.outcome.as_ref());
        Self {
            id: it.id.to_string(),
            cue_id: &listed.cue_id,
            status: it.status.as_str(),
            scheduled_for: Instant(it.scheduled_for),
            triggered_by: it.triggered_by.as_str(),
            attempts: it.attempts,
            http_status: it.http_status,
            error_message: it.error_message.as_deref(),
            response_body: it.response_body.as_deref(),
            started_at: it.started_at.map(Instant),
            last_attempt_at: it.last_attempt_at.map(Instant),
            delivered_at: it.delivered_at.map(Instant),
            next_retry: it.next_retry.map(Instant),
            claimed_by_worker: it.claimed_by_worker.as_deref(),
            claimed_at: it.claimed_at.map(Instant),
            lease_expires_at: it.lease_expires_at.map(Instant),
            outcome_state: it.outcome_state.map(OutcomeState::as_str),
            evidence: outcome.and_then(|outcome| outcome.report.evidence.fields()),
            created_at: Instant(it.created_at),
            updated_at: Instant(it.updated_at),
            outcome: outcome.map(OutcomeShown::from),
            verdict: outcome.and_then(|outcome| outcome.verdict.as_ref()).map(VerdictShown::from),
        }
    }
}

impl<'a> From<&'a Outcome> for OutcomeShown<'a> {
    fn from(Outcome { report, recorded_at, .. }: &'a Outcome) -> Self {
        Self {
            success: report.success,
            result: report.result.as_deref(),
            metadata: report.metadata.as_ref(),
            recorded_at: Instant(*recorded_at),
            error: report.error.as_deref(),
        }
    }
}

impl<'a> From<&'a Verdict> for VerdictShown<'a> {
    fn from(verdict: &'a Verdict) -> Self {
        Self {
            valid: verdict.valid,
            reason: verdict.reason.as_deref(),
            verified_at: Instant(verdict.verified_at),
        }
    }
}
