//! The steps after a reported outcome: verdict, return to pending, more evidence.

use serde_json::json;

use crate::api::fields::JsonFields;
use crate::domain::execution::evidence::{
    ARTIFACTS, Evidence, MAX_ARTIFACTS, MAX_RESULT_URL, MAX_TEXT_BYTES, RESULT_URL, TEXTS,
    first_bad_artifact_url, is_storable_url, is_too_long_as_artifacts, trimmed, with_trimmed_urls,
};
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::http::api::executions::execution_response::{EvidenceView, VerdictView};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;

/// Most bytes of the evidence of an execution.
const MAX_EVIDENCE: usize = (TEXTS.len() + 1) * MAX_TEXT_BYTES;

/// `POST /v1/executions/{execution_id}/verify`.
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
    let recorded = service::verification::verify(&request.app, caller.user_key, id, valid, reason).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "outcome_state": recorded.state.as_str(),
        "valid": valid,
        "verdict": recorded.outcome.verdict.as_ref().map(VerdictView::from),
    })))
}

/// `POST /v1/executions/{execution_id}/verification-pending`.
pub async fn set_pending(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, request.execution_id()?);
    let fields = request.optional_fields()?;
    fields.forbid_unknown();
    fields.finish()?;
    let recorded = service::verification::reopen(&request.app, caller.user_key, id).await?;
    Ok(Response::ok(&json!({"execution_id": id.to_string(), "outcome_state": recorded.state.as_str()})))
}

/// `PATCH /v1/executions/{execution_id}/evidence`.
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
    let recorded =
        service::verification::append_evidence(&request.app, caller.user_key, id, evidence).await?;
    Response::from_body(&EvidenceView {
        execution_id: id.to_string(),
        outcome_state: recorded.state.as_str(),
        evidence_updated: updated,
        evidence: recorded.outcome.report.evidence.fields(),
    })
}

/// Reads the evidence from the fields of an outcome report or of a PATCH.
pub(in crate::http) fn read_evidence(fields: &mut JsonFields<'_>) -> Evidence {
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
pub(in crate::http) fn read_bounded_text(fields: &mut JsonFields<'_>, name: &'static str) -> Option<String> {
    let text = fields.string(name, 0..=MAX_TEXT_BYTES)?;
    if text.len() > MAX_TEXT_BYTES {
        fields.reject(name, &format!("text should have at most {MAX_TEXT_BYTES} bytes of UTF-8"));
    }
    Some(text)
}
