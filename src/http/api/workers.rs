//! `/v1/workers`: heartbeats, list and removal of workers.

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;

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

/// A worker in the list (contract §7.5) at an instant.
#[derive(Debug)]
struct WorkerView<'a>(&'a Worker, Timestamp);

impl Serialize for WorkerView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Self(worker, now) = self;
        let silence = now.duration_since(worker.last_heartbeat).as_secs().max(0);
        let status = HeartbeatStatus::at(worker.last_heartbeat, *now);
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("worker_id", &worker.worker_id)?;
        object.serialize_entry("handlers", &worker.handlers)?;
        object.serialize_entry("last_heartbeat", &JsonTimestamp(worker.last_heartbeat))?;
        object.serialize_entry("seconds_since_heartbeat", &silence)?;
        object.serialize_entry("heartbeat_status", status.as_str())?;
        object.serialize_entry("registered_since", &JsonTimestamp(worker.registered_since))?;
        object.end()
    }
}
