//! `/v1/workers`: heartbeats, list and removal of workers.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::api::instants::{JsonTimestamp, instant};
use crate::domain::execution::worker::{HeartbeatStatus, Worker};
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::http::list::ListBody;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;
use crate::store::ReadTx;
use crate::store::executions::workers;

/// `POST /v1/worker/heartbeat`.
pub async fn heartbeat(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let worker_id = fields.required_string("worker_id", 1..=255);
    let handlers = fields.required_strings("handlers", 0..=100, 0..=255);
    let handlers = json!(handlers.unwrap_or_default()).to_string();
    if let Some(limit) = request.app.config.plans.max_handlers().filter(|limit| handlers.len() > *limit) {
        let message =
            format!("handlers should have at most {limit} bytes as JSON; it has {}", handlers.len());
        fields.reject("handlers", &message);
    }
    fields.finish()?;
    // `finish` has returned an error if it is missing.
    let worker_id = worker_id.unwrap_or_default();
    let server_time =
        service::workers::record_heartbeat(&request.app, caller.user_key, worker_id, handlers).await?;
    Ok(Response::ok(&json!({"acknowledged": true, "server_time": instant(server_time)})))
}

/// `GET /v1/workers`.
pub async fn list(request: Request) -> Result<Response> {
    let (caller, now) = (request.caller()?, request.now);
    let turn = request.list_turn().await?;
    let list = move |read: &ReadTx<'_>| Ok((workers::list(read, caller.user_key)?, turn));
    let ((found, has_more), _turn) = request.app.store.read(list).await?;
    let list = ListBody::new("workers", found.iter().map(|worker| WorkerView::new(worker, now)))?;
    Ok(list.with_more(has_more).into_response())
}

/// `DELETE /v1/workers/{worker_id}`.
pub async fn remove(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    service::workers::remove(&request.app, caller.user_key, request.param("worker_id").to_owned()).await?;
    Ok(Response::no_content())
}

/// A worker in the list (contract §7.5).
#[derive(Debug, Serialize)]
struct WorkerView<'a> {
    worker_id: &'a str,
    handlers: &'a JsonText,
    last_heartbeat: JsonTimestamp,
    seconds_since_heartbeat: i64,
    heartbeat_status: &'static str,
    registered_since: JsonTimestamp,
}

impl<'a> WorkerView<'a> {
    fn new(worker: &'a Worker, now: Timestamp) -> Self {
        Self {
            worker_id: &worker.worker_id,
            handlers: &worker.handlers,
            last_heartbeat: JsonTimestamp(worker.last_heartbeat),
            seconds_since_heartbeat: now.duration_since(worker.last_heartbeat).as_secs().max(0),
            heartbeat_status: HeartbeatStatus::at(worker.last_heartbeat, now).as_str(),
            registered_since: JsonTimestamp(worker.registered_since),
        }
    }
}
