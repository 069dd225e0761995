//! `/v1/workers`: heartbeats, list and removal of workers.

use jiff::Timestamp;
use serde_json::json;

use crate::api::view::view;
use crate::api::work::Heartbeat;
use crate::domain::execution::worker::{HeartbeatStatus, Worker};
use crate::domain::time::{JsonTimestamp, instant};
use crate::error::Result;
use crate::http::list::ListBody;
use crate::http::message::{Request, Response};
use crate::service;
use crate::store::ReadTx;
use crate::store::executions::workers;

pub async fn heartbeat(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let heartbeat = Heartbeat::read(request.fields()?, request.app.config.plans.max_handlers())?;
    let (worker_id, handlers) = (heartbeat.worker_id, json!(heartbeat.handlers).to_string());
    let server_time =
        service::workers::record_heartbeat(&request.app, user_key, worker_id, handlers).await?;
    Ok(Response::ok(&json!({"acknowledged": true, "server_time": instant(server_time)})))
}

pub async fn list(request: Request) -> Result<Response> {
    let (user_key, now) = (request.user_key()?, request.now);
    let list = move |read: &ReadTx<'_>| workers::list(read, user_key);
    let ((found, has_more), _turn) = request.read_list(false, list).await?;
    let list = ListBody::new("workers", found.iter().map(|worker| WorkerView(worker, now)))?;
    Ok(list.with_more(has_more).into_response())
}

pub async fn remove(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    service::workers::remove(&request.app, user_key, request.param("worker_id").to_owned()).await?;
    Ok(Response::no_content())
}

view! {
    /// A worker in the list (contract §7.5) at an instant.
    WorkerView(worker: &Worker, now: Timestamp) {
        "worker_id": worker.worker_id,
        "handlers": worker.handlers,
        "last_heartbeat": JsonTimestamp(worker.last_heartbeat),
        "seconds_since_heartbeat": now.duration_since(worker.last_heartbeat).as_secs().max(0),
        "heartbeat_status": HeartbeatStatus::at(worker.last_heartbeat, *now).as_str(),
        "registered_since": JsonTimestamp(worker.registered_since),
    }
}
