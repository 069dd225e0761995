//! What follows a report, over HTTP: a verdict, its withdrawal, further evidence; and how evidence is read.

use serde_json::{Map, Value, json};

use crate::actions::verification as actions;
use crate::domain::execution::evidence::{ARTIFACTS, Evidence, MAX_ARTIFACTS, TEXTS};
use crate::domain::execution::outcome::{TEXT_BYTES, compact_object};
use crate::error::Result;
use crate::http::api::executions::execution_id;
use crate::http::api::executions::execution_response::VerdictView;
use crate::http::input::json_fields::JsonFields;
use crate::http::request::Request;
use crate::http::response::Response;

/// `POST /v1/executions/{execution_id}/verify`.
pub async fn verify(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let mut fields = request.optional_fields()?;
    let valid = fields.boolean("valid").unwrap_or(true);
    let reason = text(&mut fields, "reason");
    // A misspelt `valid` must not pass for the approval that its absence means.
    fields.forbid_rest();
    fields.finish()?;
    let recorded = actions::verify(&request.app, caller.user_key, id, valid, reason).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "outcome_state": recorded.state.as_str(),
        "verdict": recorded.outcome.verdict.as_ref().map(VerdictView::from),
    })))
}

/// `POST /v1/executions/{execution_id}/verification-pending`.
pub async fn make_pending(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let fields = request.optional_fields()?;
    fields.forbid_rest();
    fields.finish()?;
    let recorded = actions::reopen(&request.app, caller.user_key, id).await?;
    Ok(Response::ok(&json!({"execution_id": id.to_string(), "outcome_state": recorded.state.as_str()})))
}

/// `PATCH /v1/executions/{execution_id}/evidence`.
pub async fn append_evidence(request: Request) -> Result<Response> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let mut fields = request.fields()?;
    let evidence = read_evidence(&mut fields);
    for field in TEXTS.into_iter().chain([ARTIFACTS]).filter(|field| evidence.is_blank_in(field)) {
        fields.refuse(field, "evidence is not taken away: leave the field out, or give what it shows");
    }
    fields.forbid_rest();
    fields.finish()?;
    let updated = evidence.fields().is_some();
    let recorded = actions::append_evidence(&request.app, caller.user_key, id, evidence).await?;
    Ok(Response::ok(&json!({
        "execution_id": id.to_string(),
        "outcome_state": recorded.state.as_str(),
        "evidence_updated": updated,
        "evidence": recorded.outcome.report.evidence.fields(),
    })))
}

/// The evidence among the fields of a report, or of a body of its own.
pub(in crate::http) fn read_evidence(fields: &mut JsonFields<'_>) -> Evidence {
    let mut evidence = Map::new();
    for name in TEXTS {
        if let Some(text) = text(fields, name) {
            evidence.insert(name.to_owned(), text.into());
        }
    }
    if let Some(artifacts) = fields.list(ARTIFACTS, 0..=MAX_ARTIFACTS) {
        let artifacts = Map::from_iter([(ARTIFACTS.to_owned(), Value::from(artifacts))]);
        if compact_object(&artifacts).len() > TEXT_BYTES {
            fields.refuse(ARTIFACTS, &format!("at most {TEXT_BYTES} bytes of JSON are kept"));
        }
        evidence.extend(artifacts);
    }
    evidence.into()
}

/// A text of at most [`TEXT_BYTES`], which is fewer characters where they take more than a byte.
pub(in crate::http) fn text(fields: &mut JsonFields<'_>, name: &'static str) -> Option<String> {
    let text = fields.string(name, 0..=TEXT_BYTES)?;
    if text.len() > TEXT_BYTES {
        fields.refuse(name, &format!("at most {TEXT_BYTES} bytes of UTF-8 are kept"));
    }
    Some(text)
}
