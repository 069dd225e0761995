//! `/v1/executions`: reading, replay, outcome, lease, and the steps after a reported outcome. Claims are in `claims`, the
//! attempts in `attempts`, retry, cancel and the replay of many in `queue_changes`.

pub mod attempts;
pub mod claims;
pub(in crate::http) mod execution_response;
pub mod queue_changes;

use serde_json::json;

use crate::api::fields::JsonFields;
use crate::api::instants::instant;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::evidence::{
    ARTIFACTS, Evidence, MAX_ARTIFACTS, MAX_RESULT_URL, MAX_TEXT_BYTES, RESULT_URL, TEXTS,
    first_bad_artifact_url, is_storable_url, is_too_long_as_artifacts, trimmed, with_trimmed_urls,
};
use crate::domain::execution::outcome::OutcomeReport;
use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::http::api::executions::execution_response::{
    EvidenceView, ExecutionView, OutcomeView, RecordedView, VerdictView, render_run,
};
use crate::http::input::query::Query;
use crate::http::list::ListBody;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;
use crate::service::manual_runs;
use crate::store::executions;
use crate::store::executions::execution_list;
use crate::store::executions::execution_list::{CreatedRange, ExecutionFilter};

pub async fn show(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let found =
        request.app.store.read_inline(move |read| executions::find(read, caller.user_key, id)).await?;
    Response::from_body(&ExecutionView(&found.ok_or_else(service::executions::not_found)?))
}

/// `GET /v1/executions`, with its filters, `limit` and `offset`.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let pagination = query.pagination(20);
    let filter = list_filter(&query);
    query.finish()?;
    let turn = request.slow_list_turn().await?;
    let ((page, total), _turn) = request
        .app
        .store
        .read_slow(move |read| {
            let (limit, offset) = (pagination.limit, pagination.offset);
            Ok((execution_list::list(read, caller.user_key, &filter, limit, offset)?, turn))
        })
        .await?;
    let list = ListBody::new("executions", page.iter().map(ExecutionView))?;
    Ok(list.with_page("", total, pagination).into_response())
}

/// Reads the filters of a list. Problems are collected in `query`.
fn list_filter(query: &Query) -> ExecutionFilter {
    let status = query.one_of("status", &ExecutionStatus::WORDS);
    let status_in = query.some_of("status__in", &ExecutionStatus::WORDS);
    let allowed = status_in.unwrap_or_else(|| status.into_iter().collect());
    if status.is_some_and(|status| !allowed.contains(&status)) {
        query.reject("status", "status is not in status__in; send only one of the two");
    }
    let mut statuses = status.map_or(allowed, |status| vec![status]);
    statuses.sort_unstable();
    statuses.dedup();
    let created = CreatedRange { since: query.instant("since"), until: query.instant("until") };
    if matches!(created, CreatedRange { since: Some(since), until: Some(until) } if until <= since) {
        query.reject("until", "until should be later than since");
    }
    let original = query.raw("replayed_from");
    let replayed_from = original.and_then(ExecutionId::parse);
    if original.is_some() && replayed_from.is_none() {
        query.reject("replayed_from", "replayed_from should be the id of an execution, a UUID with hyphens");
    }
    ExecutionFilter {
        cue_id: query.text("cue_id", 0..=255).map(str::to_owned),
        statuses: statuses.into_iter().filter_map(ExecutionStatus::parse).collect(),
        outcome_state: query.one_of("outcome_state", &OutcomeState::WORDS).and_then(OutcomeState::parse),
        worker_id: query.text("worker_id", 0..=255).map(str::to_owned),
        triggered_by: query.one_of("triggered_by", &Trigger::WORDS).and_then(Trigger::parse),
        cause: query.one_of("cause", &FailureCause::WORDS).and_then(FailureCause::parse),
        replayed_from,
        of_failing_cues: query.boolean("failing_cues").unwrap_or(false),
        created,
    }
}

pub async fn replay(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let mut body = render_run(&manual_runs::replay(&request.app, caller.user_key, id).await?);
    body["replayed_from"] = id.to_string().into();
    Ok(Response::ok(&body))
}

pub async fn report(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let report = read_report(request.fields()?)?;
    // The response repeats the report.
    request.reserve_response(request.body().len())?;
    let recorded = service::executions::report(&request.app, caller.user_key, id, report).await?;
    Response::from_body(&RecordedView {
        execution_id: id.to_string(),
        outcome: OutcomeView(&recorded.outcome),
        outcome_recorded: true,
        outcome_state: recorded.state.as_str(),
    })
}

pub async fn extend_lease(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let worker = request.header("x-worker-id").map(str::to_owned);
    let until = service::executions::extend(&request.app, caller.user_key, id, worker).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "lease_extended_until": instant(until),
        "acknowledged": true,
    })))
}

fn read_report(mut fields: JsonFields<'_>) -> Result<OutcomeReport> {
    let success = fields.required_boolean("success");
    let result = read_bounded_text(&mut fields, "result");
    let error = read_bounded_text(&mut fields, "error");
    let metadata = fields.dictionary("metadata").map(JsonText::from);
    let evidence = read_evidence(&mut fields);
    fields.finish()?;
    // `finish` has returned an error if `success` is missing.
    Ok(OutcomeReport { success: success.unwrap_or_default(), result, error, metadata, evidence })
}

/// Most bytes of the evidence of an execution.
const MAX_EVIDENCE: usize = (TEXTS.len() + 1) * MAX_TEXT_BYTES;

pub async fn verify(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let mut fields = request.optional_fields()?;
    let valid = fields.boolean("valid").unwrap_or(true);
    let reason = read_bounded_text(&mut fields, "reason");
    // An absent `valid` means approval, so a misspelled one must be an error.
    fields.forbid_unknown();
    fields.finish()?;
    // The response repeats the reason.
    request.reserve_response(request.body().len())?;
    let recorded = service::executions::verify(&request.app, caller.user_key, id, valid, reason).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "outcome_state": recorded.state.as_str(),
        "valid": valid,
        "verdict": recorded.outcome.verdict.as_ref().map(VerdictView),
    })))
}

pub async fn set_pending(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let fields = request.optional_fields()?;
    fields.forbid_unknown();
    fields.finish()?;
    let recorded = service::executions::reopen(&request.app, caller.user_key, id).await?;
    Ok(Response::ok(&json!({"execution_id": id.to_string(), "outcome_state": recorded.state.as_str()})))
}

pub async fn append_evidence(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let mut fields = request.fields()?;
    let evidence = read_evidence(&mut fields);
    for field in TEXTS.into_iter().chain([ARTIFACTS]).filter(|field| evidence.is_blank_in(field)) {
        fields.reject(field, "evidence cannot be removed; omit the field or send a value");
    }
    fields.forbid_unknown();
    fields.finish()?;
    // The response shows the new evidence and the older one.
    request.reserve_response(request.body().len() + MAX_EVIDENCE)?;
    let updated = evidence.fields().is_some();
    let recorded = service::executions::append_evidence(&request.app, caller.user_key, id, evidence).await?;
    Response::from_body(&EvidenceView {
        execution_id: id.to_string(),
        outcome_state: recorded.state.as_str(),
        evidence_updated: updated,
        evidence: recorded.outcome.report.evidence.fields(),
    })
}

/// Reads the evidence from the fields of an outcome report or of a PATCH.
fn read_evidence(fields: &mut JsonFields<'_>) -> Evidence {
    let mut evidence: Vec<(&str, JsonText)> = Vec::new();
    for name in TEXTS {
        if let Some(text) = read_bounded_text(fields, name) {
            if name == RESULT_URL && !is_storable_url(&text) {
                fields.reject(
                    name,
                    &format!("send an absolute http or https URL of at most {MAX_RESULT_URL} characters"),
                );
            }
            let stored =
                if name == RESULT_URL { Some(trimmed(&text)) } else { fields.any(name).map(Into::into) };
            evidence.extend(stored.map(|stored| (name, stored)));
        }
    }
    if let Some(artifacts) = fields.list(ARTIFACTS, 0..=MAX_ARTIFACTS) {
        if is_too_long_as_artifacts(artifacts) {
            fields
                .reject(ARTIFACTS, &format!("artifacts should have at most {MAX_TEXT_BYTES} bytes of JSON"));
        }
        if let Some(index) = first_bad_artifact_url(artifacts) {
            fields.reject(
                ARTIFACTS,
                &format!(
                    "artifacts[{index}].url should be an absolute http or https URL of at most \
                     {MAX_RESULT_URL} characters"
                ),
            );
        }
        evidence.push((ARTIFACTS, with_trimmed_urls(artifacts)));
    }
    JsonText::object(evidence.iter().map(|(name, value)| (*name, value.get())).collect()).into()
}

/// Reads a text of at most [`MAX_TEXT_BYTES`] bytes. Checks bytes after characters, because a character may need several.
fn read_bounded_text(fields: &mut JsonFields<'_>, name: &'static str) -> Option<String> {
    let text = fields.string(name, 0..=MAX_TEXT_BYTES)?;
    if text.len() > MAX_TEXT_BYTES {
        fields.reject(name, &format!("text should have at most {MAX_TEXT_BYTES} bytes of UTF-8"));
    }
    Some(text)
}
