//! `/v1/workers`: heartbeats, list and removal of workers.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::actions::workers as actions;
use crate::domain::execution::worker::{HeartbeatStatus, Worker};
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::{Response, instant};
use crate::store::executions::workers;

/// `POST /v1/worker/heartbeat`.
pub async fn heartbeat(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let worker_id = fields.required_string("worker_id", 1..=255);
    let handlers = fields.required_strings("handlers", 0..=100, 0..=255);
    fields.finish()?;
    // `finish` has returned an error if one of them is missing.
    let (worker_id, handlers) = (worker_id.unwrap_or_default(), handlers.unwrap_or_default());
    let server_time = actions::record_heartbeat(&request.app, caller.user_key, worker_id, handlers).await?;
    Ok(Response::ok(&json!({"acknowledged": true, "server_time": instant(server_time)})))
}

/// `GET /v1/workers`.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, now) = (request.caller()?, request.now);
    let found = request.app.store.read(move |read| workers::list(read, caller.user_key)).await?;
    Ok(Response::ok(
        &json!({"workers": found.iter().map(|worker| render_worker(worker, now)).collect::<Vec<_>>()}),
    ))
}

/// `DELETE /v1/workers/{worker_id}`.
pub async fn remove(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    actions::remove(&request.app, caller.user_key, request.param("worker_id").to_owned()).await?;
    Ok(Response::no_content())
}

fn render_worker(worker: &Worker, now: Timestamp) -> Value {
    json!({
        "worker_id": worker.worker_id,
        "handlers": worker.handlers,
        "last_heartbeat": instant(worker.last_heartbeat),
        "seconds_since_heartbeat": now.duration_since(worker.last_heartbeat).as_secs().max(0),
        "heartbeat_status": HeartbeatStatus::at(worker.last_heartbeat, now).as_str(),
        "registered_since": instant(worker.registered_since),
    })
}
