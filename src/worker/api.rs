//! The requests of a worker (contract §7, §5.5).

use std::time::Duration;

use serde_json::json;

use crate::api::work::{Claim, ClaimRequest, Heartbeat};
use crate::client::Client;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, segment};
use crate::domain::json::JsonText;

/// Timeout of a poll, in addition to the time for which the server holds it.
const POLL_MARGIN: Duration = Duration::from_secs(15);

/// Timeout of heartbeats and lease extensions. They are sent one after another: one without a response delays all
/// others.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the other requests. A run may wait for the response, and so may the stop of the worker.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The requests, made in the name of one worker.
pub struct Api<'a> {
    pub client: &'a Client,
    /// The name under which executions are claimed.
    pub claimant: &'a str,
}

impl Api<'_> {
    /// Claims an execution, or without an id the next one of a task. `None` if another worker was faster, or none
    /// waits.
    pub fn claim(
        &self,
        id: Option<&str>,
        task: Option<&str>,
    ) -> Result<Option<Claim>, ClientError> {
        let task = task.filter(|_| id.is_none()).map(str::to_owned);
        let body = json!(ClaimRequest { worker_id: Some(self.claimant.to_owned()), task });
        let path = id.map_or("/v1/executions/claim".to_owned(), |id| execution(id, "claim"));
        match self.client.send_once(&ApiRequest::post(path).json(body).timeout(TIMEOUT)) {
            Ok(answer) => answer.read().map(Some),
            // An execution that is gone was cancelled or deleted.
            Err(error) if matches!(error.status(), Some(404 | 409)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The id of an execution that can be claimed. The server holds the request for `wait` seconds until there is one.
    pub fn poll(
        &self,
        task: Option<&str>,
        agent: Option<&str>,
        wait: u64,
    ) -> Result<Option<String>, ClientError> {
        let request = ApiRequest::get("/v1/executions/claimable")
            .maybe_query("task", task)
            .maybe_query("agent", agent)
            .query("limit", "1")
            .query("wait", wait.to_string())
            .timeout(Duration::from_secs(wait) + POLL_MARGIN);
        // A worker whose polls do not wait ends soon. It must not end at the first fault.
        let answer =
            if wait == 0 { self.client.send(&request) } else { self.client.send_once(&request) };
        Ok(answer?.value()?["executions"][0]["execution_id"].as_str().map(str::to_owned))
    }

    pub fn beat(&self, heartbeat: &Heartbeat) -> Result<(), ClientError> {
        let request = ApiRequest::post("/v1/worker/heartbeat")
            .json(json!(heartbeat))
            .timeout(HEARTBEAT_TIMEOUT);
        self.client.send_once(&request).map(drop)
    }

    /// Extends the lease of an execution. Returns `false` if it is no longer this worker's.
    pub fn extend_lease(&self, id: &str) -> Result<bool, ClientError> {
        let request =
            ApiRequest::post(execution(id, "heartbeat")).header("x-worker-id", self.claimant);
        match self.client.send_once(&request.timeout(HEARTBEAT_TIMEOUT)) {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(409) => Ok(false),
            Err(error) if matches!(error.code(), "not_execution_owner" | "execution_not_found") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub fn report(&self, id: &str, body: &JsonText) -> Result<ApiResponse, ClientError> {
        let request = ApiRequest::post(execution(id, "outcome")).json(body.as_str());
        self.client.send_once(&request.timeout(TIMEOUT))
    }
}

fn execution(id: &str, operation: &str) -> String {
    format!("/v1/executions/{}/{operation}", segment(id))
}
