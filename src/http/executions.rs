//! Executions over HTTP: reading one, reporting on it, and how one is written as JSON. Claims are in `claims`, what
//! follows a report in `verification`.

use serde_json::{Value, json};

use super::cues::render_run;
use super::fields::Fields;
use super::reply::{Reply, instant};
use super::request::Request;
use super::verification::{read_evidence, render_verdict, text};
use crate::actions::executions as actions;
use crate::actions::runs;
use crate::domain::execution::{Status, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::outcome::{Outcome, Report};
use crate::domain::verification::OutcomeState;
use crate::error::Result;
use crate::store::executions::{self, Listed};
use crate::store::history::{self, Filter};

/// `GET /v1/executions/{execution_id}`.
pub async fn show(request: Request) -> Result<Reply> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let found = request.app.store.read(move |read| executions::find(read, caller.user_key, id)).await?;
    Ok(Reply::ok(&execution(&found.ok_or_else(actions::not_found)?)))
}

/// `GET /v1/executions?cue_id&status&status__in&outcome_state&worker_id&triggered_by&limit&offset`.
pub async fn list(request: Request) -> Result<Reply> {
    let (caller, query) = (request.caller()?, request.query());
    let (limit, offset) = (query.integer("limit", 1..=100, 20), query.integer("offset", 0..=i64::MAX, 0));
    let (one, some) = (query.one_of("status", &Status::WORDS), query.some_of("status__in", &Status::WORDS));
    let words = some.unwrap_or_else(|| one.into_iter().collect());
    if one.is_some_and(|one| !words.contains(&one)) {
        query.refuse("status", "is none of status__in: give one of the two");
    }
    let mut words = one.map_or(words, |one| vec![one]);
    words.sort_unstable();
    words.dedup();
    let filter = Filter {
        cue_id: query.text("cue_id", 0..=255).map(str::to_owned),
        statuses: words.into_iter().filter_map(Status::parse).collect(),
        outcome_state: query.one_of("outcome_state", &OutcomeState::WORDS).and_then(OutcomeState::parse),
        worker_id: query.text("worker_id", 0..=255).map(str::to_owned),
        triggered_by: query.one_of("triggered_by", &Trigger::WORDS).and_then(Trigger::parse),
    };
    query.finish()?;
    let (page, total) = request
        .app
        .store
        .read_at_length(move |read| {
            let limit = u32::try_from(limit).unwrap_or(100);
            history::list(read, caller.user_key, &filter, limit, offset.unsigned_abs())
        })
        .await?;
    Ok(Reply::page("executions", page.iter().map(execution).collect(), total, limit, offset))
}

/// `POST /v1/executions/{execution_id}/replay`.
pub async fn replay(request: Request) -> Result<Reply> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let mut body = render_run(&runs::replay(&request.app, caller.user_key, id).await?);
    body["replayed_from"] = id.to_string().into();
    Ok(Reply::ok(&body))
}

/// `POST /v1/executions/{execution_id}/outcome`.
pub async fn report(request: Request) -> Result<Reply> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let report = read_report(request.fields()?)?;
    let recorded = actions::report(&request.app, caller.user_key, id, report).await?;
    Ok(Reply::ok(&json!({
        "execution_id": id.to_string(),
        "outcome": outcome(&recorded.outcome),
        "outcome_recorded": true,
        "outcome_state": recorded.state.as_str(),
    })))
}

/// `POST /v1/executions/{execution_id}/heartbeat`.
pub async fn extend(request: Request) -> Result<Reply> {
    let (caller, id) = (request.caller()?, execution_id(&request)?);
    let worker = request.header("x-worker-id").map(str::to_owned);
    let until = actions::extend(&request.app, caller.user_key, id, worker).await?;
    Ok(Reply::ok(&json!({
        "execution_id": id.to_string(),
        "lease_extended_until": instant(until),
        "acknowledged": true,
    })))
}

/// The execution that the path names. What is no UUID names none.
pub(super) fn execution_id(request: &Request) -> Result<ExecutionId> {
    Ok(ExecutionId::parse(request.param("execution_id")).ok_or_else(actions::not_found)?)
}

/// An execution with all its fields (contract §5); `outcome` only once there is one (spec §2), and so `verdict`.
#[must_use]
pub fn execution(listed: &Listed) -> Value {
    let it = &listed.execution;
    let maybe_instant = |at: Option<jiff::Timestamp>| at.map(instant);
    let mut value = json!({
        "id": it.id.to_string(),
        "cue_id": listed.cue_id,
        "status": it.status.as_str(),
        "scheduled_for": instant(it.scheduled_for),
        "triggered_by": it.triggered_by.as_str(),
        "attempts": it.attempts,
        "http_status": it.http_status,
        "error_message": it.error_message,
        "response_body": it.response_body,
        "started_at": maybe_instant(it.started_at),
        "last_attempt_at": maybe_instant(it.last_attempt_at),
        "delivered_at": maybe_instant(it.delivered_at),
        "next_retry": maybe_instant(it.next_retry),
        "claimed_by_worker": it.claimed_by_worker,
        "claimed_at": maybe_instant(it.claimed_at),
        "lease_expires_at": maybe_instant(it.lease_expires_at),
        "outcome_state": it.outcome_state.map(OutcomeState::as_str),
        "evidence": listed.outcome.as_ref().and_then(|outcome| outcome.report.evidence.fields()),
        "created_at": instant(it.created_at),
        "updated_at": instant(it.updated_at),
    });
    if let Some(reported) = &listed.outcome {
        value["outcome"] = outcome(reported);
        if let Some(verdict) = &reported.verdict {
            value["verdict"] = render_verdict(verdict);
        }
    }
    value
}

fn outcome(Outcome { report, recorded_at, .. }: &Outcome) -> Value {
    let mut value = json!({
        "success": report.success,
        "result": report.result,
        "metadata": report.metadata,
        "recorded_at": instant(*recorded_at),
    });
    if let Some(error) = &report.error {
        value["error"] = error.as_str().into();
    }
    value
}

fn read_report(mut fields: Fields<'_>) -> Result<Report> {
    let success = fields.required_boolean("success");
    let result = text(&mut fields, "result");
    let error = text(&mut fields, "error");
    let metadata = fields.dictionary("metadata").cloned();
    let evidence = read_evidence(&mut fields);
    fields.finish()?;
    // `finish` has refused a report without it.
    Ok(Report { success: success.unwrap_or_default(), result, error, metadata, evidence })
}
