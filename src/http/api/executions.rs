//! `/v1/executions`: reading, replay, retry, cancel, outcome, lease, and the steps after a reported outcome. Claims are
//! in `claims`, the attempts in `attempts`, the replay of many in `bulk`.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::view::view;
use crate::api::work::{read_bounded_text, read_evidence, read_report};
use crate::domain::execution::attempt::{FailureCause, shown_body};
use crate::domain::execution::outcome::{
    ARTIFACTS, MAX_TEXT_BYTES, Outcome, OutcomeState, TEXTS, Verdict,
};
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::time::{JsonTimestamp, instant};
use crate::error::Result;
use crate::http::list::{ListBody, Pagination, Query};
use crate::http::message::{MAX_ESCAPED, Request, Response, to_json, with_payload_as};
use crate::service;
use crate::service::manual_runs::{self, ManualRun};
use crate::store::executions::execution_list::{CreatedRange, ExecutionFilter};
use crate::store::executions::{self, ExecutionDetails, claims, execution_list};
use crate::store::{ReadTx, cues};

/// `GET /v1/executions/{execution_id}?payload`.
pub async fn show(request: Request) -> Result<Response> {
    let (id, query) = (request.execution_id()?, request.query());
    let form = query.one_of("payload", &["json", "text"]);
    query.finish()?;
    let found =
        request.read_own(move |read, user_key| executions::find(read, user_key, id)).await?;
    let found = found.ok_or_else(service::executions::not_found)?;
    match form {
        None => Response::from_body(&ExecutionView(&found)),
        Some(form) => show_with_payload(&request, &found, form == "text").await,
    }
}

async fn show_with_payload(
    request: &Request,
    found: &ExecutionDetails,
    is_text: bool,
) -> Result<Response> {
    let id = found.execution.id;
    let bytes =
        request.read_own(move |read, user_key| claims::payload_size(read, user_key, id)).await?;
    request.reserve_response(if is_text { bytes.saturating_mul(MAX_ESCAPED) } else { bytes })?;
    let payload = match (found.execution.cue_key, found.execution.payload_key) {
        (cue_key, Some(key)) => {
            request.read_own(move |read, _| cues::find_payload(read, cue_key, key)).await?
        }
        (_, None) => None,
    };
    let execution = to_json(&ExecutionView(found))?;
    Ok(Response::json(StatusCode::OK, with_payload_as(is_text, execution, payload)?))
}

/// `GET /v1/executions`, with its filters, `limit` and `offset`.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let pagination = query.pagination(20);
    let filter = list_filter(&query);
    query.finish()?;
    let Pagination { limit, offset } = pagination;
    let list = move |read: &ReadTx<'_>| {
        let oldest_claim = execution_list::oldest_claimed_at(read, caller.user_key)?;
        Ok((execution_list::list(read, caller.user_key, &filter, limit, offset)?, oldest_claim))
    };
    let (((page, total), oldest_claim), _turn) = request.read_list(true, list).await?;
    let list = ListBody::new("executions", page.iter().map(ExecutionView))?;
    let list = list.with("oldest_claimed_at", &json!(oldest_claim.map(instant)).to_string());
    Ok(list.with_page("", total, pagination).into_response())
}

/// Reads the filters of a list. Problems are collected in `query`.
fn list_filter(query: &Query) -> ExecutionFilter {
    let status = query.one_of("status", &ExecutionStatus::WORDS);
    let status_in = query.some_of("status__in", &ExecutionStatus::WORDS);
    let allowed = status_in.unwrap_or_else(|| status.into_iter().collect());
    if status.is_some_and(|status| !allowed.contains(&status)) {
        query.reject("status", "is not in status__in; send only one of the two");
    }
    let mut statuses = status.map_or(allowed, |status| vec![status]);
    statuses.sort_unstable();
    statuses.dedup();
    let created = CreatedRange { since: query.instant("since"), until: query.instant("until") };
    if matches!(created, CreatedRange { since: Some(since), until: Some(until) } if until <= since)
    {
        query.reject("until", "must be later than since");
    }
    let original = query.raw("replayed_from");
    let replayed_from = original.and_then(ExecutionId::parse);
    if original.is_some() && replayed_from.is_none() {
        query.reject("replayed_from", "must be the id of an execution, a UUID with hyphens");
    }
    ExecutionFilter {
        cue_id: query.cue_id(),
        statuses: statuses.into_iter().filter_map(ExecutionStatus::parse).collect(),
        outcome_state: query
            .one_of("outcome_state", &OutcomeState::WORDS)
            .and_then(OutcomeState::parse),
        worker_id: query.text("worker_id", 0..=255).map(str::to_owned),
        triggered_by: query.one_of("triggered_by", &Trigger::WORDS).and_then(Trigger::parse),
        cause: query.one_of("cause", &FailureCause::WORDS).and_then(FailureCause::parse),
        replayed_from,
        of_failing_cues: query.boolean("failing_cues").unwrap_or(false),
        tags: query.tags(),
        created,
    }
}

pub async fn replay(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let mut body = render_run(&manual_runs::replay(&request.app, user_key, id).await?);
    body["replayed_from"] = id.to_string().into();
    Ok(Response::ok(&body))
}

pub async fn retry(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    request.optional_fields()?;
    let (run, status) = manual_runs::retry(&request.app, user_key, id).await?;
    let mut body = render_run(&run);
    body["status"] = status.as_str().into();
    Ok(Response::ok(&body))
}

pub async fn cancel(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    request.optional_fields()?;
    let cancelled = manual_runs::cancel(&request.app, user_key, id).await?;
    Response::from_body(&ExecutionView(&cancelled))
}

pub async fn report(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let report = read_report(request.fields()?)?;
    // The response repeats the report.
    request.reserve_response(request.body().len())?;
    let recorded = service::executions::report(&request.app, user_key, id, report).await?;
    Response::from_body(&RecordedView {
        execution_id: id.to_string(),
        outcome: OutcomeView(&recorded.outcome),
        outcome_recorded: true,
        outcome_state: recorded.state.as_str(),
    })
}

pub async fn extend_lease(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let worker = request.header("x-worker-id").map(str::to_owned);
    let until = service::executions::extend(&request.app, user_key, id, worker).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "lease_extended_until": instant(until),
        "acknowledged": true,
    })))
}

/// Most bytes of the evidence of an execution.
const MAX_EVIDENCE: usize = (TEXTS.len() + 1) * MAX_TEXT_BYTES;

pub async fn verify(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let mut fields = request.optional_fields()?;
    let valid = fields.boolean("valid").unwrap_or(true);
    let reason = read_bounded_text(&mut fields, "reason");
    // An absent `valid` means approval, so a misspelled one must be an error.
    fields.forbid_unknown();
    fields.finish()?;
    // The response repeats the reason.
    request.reserve_response(request.body().len())?;
    let recorded = service::executions::verify(&request.app, user_key, id, valid, reason).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "outcome_state": recorded.state.as_str(),
        "valid": valid,
        "verdict": recorded.outcome.verdict.as_ref().map(VerdictView),
    })))
}

pub async fn set_pending(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let fields = request.optional_fields()?;
    fields.forbid_unknown();
    fields.finish()?;
    let recorded = service::executions::reopen(&request.app, user_key, id).await?;
    Ok(Response::ok(
        &json!({"execution_id": id.to_string(), "outcome_state": recorded.state.as_str()}),
    ))
}

pub async fn append_evidence(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.execution_id()?);
    let mut fields = request.fields()?;
    let evidence = read_evidence(&mut fields);
    for field in TEXTS.into_iter().chain([ARTIFACTS]).filter(|field| evidence.is_blank_in(field)) {
        fields.reject(field, "cannot be removed; omit it or send a value");
    }
    fields.forbid_unknown();
    fields.finish()?;
    // The response shows the new evidence and the older one.
    request.reserve_response(request.body().len() + MAX_EVIDENCE)?;
    let updated = evidence.fields().is_some();
    let recorded =
        service::executions::append_evidence(&request.app, user_key, id, evidence).await?;
    Response::from_body(&EvidenceView {
        execution_id: id.to_string(),
        outcome_state: recorded.state.as_str(),
        evidence_updated: updated,
        evidence: recorded.outcome.report.evidence.fields(),
    })
}

view! {
    /// All fields of an execution (contract §5.1). `outcome` and `verdict` are absent until they exist.
    pub ExecutionView(details: &ExecutionDetails) {
        "id": details.execution.id.to_string(),
        "cue_id": details.cue_id,
        "cue_name": details.cue_name,
        "status": details.execution.status.as_str(),
        "scheduled_for": JsonTimestamp(details.execution.scheduled_for),
        "triggered_by": details.execution.triggered_by.as_str(),
        "replayed_from": details.execution.replayed_from.map(|original| original.to_string()),
        "attempts": details.execution.attempts,
        "max_attempts": details.max_attempts,
        "http_status": details.execution.http_status,
        "error_message": details.execution.error_message,
        "response_body": details.execution.response_body.as_deref().map(shown_body),
        "cause": details.execution.cause.map(FailureCause::as_str),
        "duration_ms": details.execution.duration.map(|duration| duration.as_millis()),
        "late_ms": details.execution.lateness().map(|lateness| lateness.as_millis()),
        "started_at": details.execution.started_at.map(JsonTimestamp),
        "last_attempt_at": details.execution.last_attempt_at.map(JsonTimestamp),
        "delivered_at": details.execution.delivered_at.map(JsonTimestamp),
        "next_retry": details.execution.next_retry.map(JsonTimestamp),
        "waits_for": WaitView::of(details),
        "expires_at": details.execution.expires_at.map(JsonTimestamp),
        "outcome_due_at": details.execution.outcome_due_at.map(JsonTimestamp),
        "claimed_by_worker": details.execution.claimed_by_worker,
        "claimed_at": details.execution.claimed_at.map(JsonTimestamp),
        "lease_expires_at": details.execution.lease_expires_at.map(JsonTimestamp),
        "outcome_state": details.execution.outcome_state.map(OutcomeState::as_str),
        "evidence": details.outcome.as_ref().and_then(|outcome| outcome.report.evidence.fields()),
        "created_at": JsonTimestamp(details.execution.created_at),
        "updated_at": JsonTimestamp(details.execution.updated_at),
        "outcome" [optional]: details.outcome.as_ref().map(OutcomeView),
        "verdict" [optional]: details.outcome.as_ref().and_then(|it| it.verdict.as_ref()).map(VerdictView),
    }
}

/// Why an execution that is due has not started.
#[derive(Debug, Serialize)]
struct WaitView<'a> {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> WaitView<'a> {
    fn of(details: &'a ExecutionDetails) -> Option<Self> {
        match (details.is_buffered, details.flow_key.as_deref()) {
            (true, _) => Some(Self { reason: "overlap", key: None }),
            (false, Some(key)) => Some(Self { reason: "flow", key: Some(key) }),
            (false, None) => None,
        }
    }
}

view! {
    /// The outcome that a worker reported.
    pub OutcomeView(outcome: &Outcome) {
        "success": outcome.report.success,
        "result": outcome.report.result,
        "metadata": outcome.report.metadata.as_ref(),
        "recorded_at": JsonTimestamp(outcome.recorded_at),
        "error" [optional]: outcome.report.error.as_deref(),
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

view! {
    /// The verdict of a person about an outcome.
    pub VerdictView(verdict: &Verdict) {
        "valid": verdict.valid,
        "reason": verdict.reason,
        "verified_at": JsonTimestamp(verdict.verified_at),
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
