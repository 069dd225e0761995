//! The JSON of an execution.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::api::instants::{JsonTimestamp, instant};
use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::{FailureCause, shown_body};
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, Verdict};
use crate::domain::json::JsonText;
use crate::service::manual_runs::ManualRun;
use crate::store::executions::ExecutionDetails;

/// All fields of an execution (contract §5.1). `outcome` and `verdict` are absent until they exist.
#[derive(Debug)]
pub struct ExecutionView<'a>(pub &'a ExecutionDetails);

impl Serialize for ExecutionView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let details = self.0;
        let (it, outcome) = (&details.execution, details.outcome.as_ref());
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &it.id.to_string())?;
        object.serialize_entry("cue_id", &details.cue_id)?;
        object.serialize_entry("cue_name", &details.cue_name)?;
        object.serialize_entry("status", &it.status.as_str())?;
        object.serialize_entry("scheduled_for", &JsonTimestamp(it.scheduled_for))?;
        object.serialize_entry("triggered_by", &it.triggered_by.as_str())?;
        object.serialize_entry("replayed_from", &it.replayed_from.map(|original| original.to_string()))?;
        object.serialize_entry("attempts", &it.attempts)?;
        object.serialize_entry("max_attempts", &details.max_attempts)?;
        object.serialize_entry("http_status", &it.http_status)?;
        object.serialize_entry("error_message", &it.error_message)?;
        object.serialize_entry("response_body", &it.response_body.as_deref().map(shown_body))?;
        object.serialize_entry("cause", &it.cause.map(FailureCause::as_str))?;
        object.serialize_entry("duration_ms", &it.duration.map(|duration| duration.as_millis()))?;
        object.serialize_entry("late_ms", &it.lateness().map(|lateness| lateness.as_millis()))?;
        object.serialize_entry("started_at", &it.started_at.map(JsonTimestamp))?;
        object.serialize_entry("last_attempt_at", &it.last_attempt_at.map(JsonTimestamp))?;
        object.serialize_entry("delivered_at", &it.delivered_at.map(JsonTimestamp))?;
        object.serialize_entry("next_retry", &it.next_retry.map(JsonTimestamp))?;
        object.serialize_entry("claimed_by_worker", &it.claimed_by_worker)?;
        object.serialize_entry("claimed_at", &it.claimed_at.map(JsonTimestamp))?;
        object.serialize_entry("lease_expires_at", &it.lease_expires_at.map(JsonTimestamp))?;
        object.serialize_entry("outcome_state", &it.outcome_state.map(OutcomeState::as_str))?;
        object.serialize_entry("evidence", &outcome.and_then(|outcome| outcome.report.evidence.fields()))?;
        object.serialize_entry("created_at", &JsonTimestamp(it.created_at))?;
        object.serialize_entry("updated_at", &JsonTimestamp(it.updated_at))?;
        if let Some(outcome) = outcome.map(OutcomeView) {
            object.serialize_entry("outcome", &outcome)?;
        }
        if let Some(verdict) = outcome.and_then(|outcome| outcome.verdict.as_ref()).map(VerdictView) {
            object.serialize_entry("verdict", &verdict)?;
        }
        object.end()
    }
}

/// The outcome that a worker reported.
#[derive(Debug)]
pub struct OutcomeView<'a>(pub &'a Outcome);

impl Serialize for OutcomeView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Outcome { report, recorded_at, .. } = self.0;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("success", &report.success)?;
        object.serialize_entry("result", &report.result)?;
        object.serialize_entry("metadata", &report.metadata.as_ref())?;
        object.serialize_entry("recorded_at", &JsonTimestamp(*recorded_at))?;
        if let Some(error) = report.error.as_deref() {
            object.serialize_entry("error", &error)?;
        }
        object.end()
    }
}

#[derive(Debug, Serialize)]
pub struct RecordedView<'a> {
    pub execution_id: String,
    pub outcome: OutcomeView<'a>,
    pub outcome_recorded: bool,
    pub outcome_state: &'static str,
}

#[derive(Debug, Serialize)]
pub struct EvidenceView<'a> {
    pub execution_id: String,
    pub outcome_state: &'static str,
    pub evidence_updated: bool,
    pub evidence: Option<&'a JsonText>,
}

/// The verdict of a person about an outcome.
#[derive(Debug)]
pub struct VerdictView<'a>(pub &'a Verdict);

impl Serialize for VerdictView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let verdict = self.0;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("valid", &verdict.valid)?;
        object.serialize_entry("reason", &verdict.reason)?;
        object.serialize_entry("verified_at", &JsonTimestamp(verdict.verified_at))?;
        object.end()
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
