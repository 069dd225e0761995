//! The requests of a worker (contract §7, §5.5).

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::request::{Answer, ApiRequest, segment};
use crate::domain::json::JsonText;

/// Seconds for which the server holds a poll.
pub const POLL_SECONDS: u64 = 25;

/// Of a poll, in addition to what the server holds it.
const POLL_MARGIN: Duration = Duration::from_secs(15);

/// Of heartbeats and extensions of leases. They are sent one after another: one that has no answer delays all others.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Of the other requests. A run may wait for the answer, and so may the stop of the worker.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An execution of this worker.
#[derive(Debug, Deserialize)]
pub struct Claim {
    pub execution_id: String,
    pub cue_id: String,
    pub cue_name: String,
    pub scheduled_for: String,
    pub attempt: u32,
    pub lease_seconds: u64,
    /// The text as it came, digit for digit.
    pub payload: Box<RawValue>,
}

/// The requests, made in the name of one worker.
pub struct Api<'a> {
    pub client: &'a Client,
    /// The name under which executions are claimed.
    pub claimant: &'a str,
}

impl Api<'_> {
    /// Claims the next execution of a task; `None` if none waits.
    ///
    /// # Errors
    /// If the server refuses the request for another reason, or cannot be reached.
    pub fn claim_next(&self, task: Option<&str>) -> Result<Option<Claim>, ClientError> {
        let mut body = json!({"worker_id": self.claimant});
        if let Some(task) = task {
            body["task"] = task.into();
        }
        self.claim(&ApiRequest::post("/v1/executions/claim").json(body))
    }

    /// Claims an execution; `None` if another worker was faster.
    ///
    /// # Errors
    /// As [`Api::claim_next`].
    pub fn claim_one(&self, id: &str) -> Result<Option<Claim>, ClientError> {
        let body = json!({"worker_id": self.claimant});
        self.claim(&ApiRequest::post(format!("/v1/executions/{}/claim", segment(id))).json(body))
    }

    fn claim(&self, request: &ApiRequest) -> Result<Option<Claim>, ClientError> {
        match self.client.send_once(&request.clone().timeout(TIMEOUT)) {
            Ok(answer) => answer.read().map(Some),
            // Usual among several workers. An execution that is gone was cancelled or deleted.
            Err(ClientError::Refused(refused)) if matches!(refused.status, 404 | 409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The ids of executions that wait, at most `limit`. The server holds the request until there is one.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub fn poll(
        &self,
        task: Option<&str>,
        agent: Option<&str>,
        limit: usize,
        wait: u64,
    ) -> Result<Vec<String>, ClientError> {
        #[derive(Deserialize)]
        struct Listed {
            execution_id: String,
        }
        #[derive(Deserialize)]
        struct List {
            executions: Vec<Listed>,
        }
        let request = ApiRequest::get("/v1/executions/claimable")
            .maybe_query("task", task)
            .maybe_query("agent", agent)
            .query("limit", limit.to_string())
            .query("wait", wait.to_string())
            .timeout(Duration::from_secs(wait) + POLL_MARGIN);
        // A poll that nobody waits for is one of a worker that ends soon: a fault must not end it at once.
        let answer = if wait == 0 { self.client.send(&request) } else { self.client.send_once(&request) };
        let list: List = answer?.read()?;
        Ok(list.executions.into_iter().map(|listed| listed.execution_id).collect())
    }

    /// Announces the worker with its tasks.
    ///
    /// # Errors
    /// If the server refuses the request or cannot be reached.
    pub fn beat(&self, worker_id: &str, tasks: &[&str]) -> Result<(), ClientError> {
        let body = json!({"worker_id": worker_id, "handlers": tasks});
        let request = ApiRequest::post("/v1/worker/heartbeat").json(body).timeout(HEARTBEAT_TIMEOUT);
        self.client.send_once(&request).map(drop)
    }

    /// Extends the lease of an execution. Returns `false` if it is no longer this worker's.
    ///
    /// # Errors
    /// If the server refuses the request for another reason, or cannot be reached.
    pub fn extend_lease(&self, id: &str) -> Result<bool, ClientError> {
        let request = ApiRequest::post(format!("/v1/executions/{}/heartbeat", segment(id)))
            .header("x-worker-id", self.claimant)
            .timeout(HEARTBEAT_TIMEOUT);
        match self.client.send_once(&request) {
            Ok(_) => Ok(true),
            Err(ClientError::Refused(refused))
                if refused.status == 409
                    || matches!(refused.code.as_str(), "not_execution_owner" | "execution_not_found") =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports the outcome of an execution.
    ///
    /// # Errors
    /// If the server refuses the report or cannot be reached.
    pub fn report(&self, id: &str, body: &JsonText) -> Result<Answer, ClientError> {
        let path = format!("/v1/executions/{}/outcome", segment(id));
        self.client.send_once(&ApiRequest::post(path).json(body.as_str()).timeout(TIMEOUT))
    }
}

/// The step of a worker after a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The server is away, busy or on hold: the same request may succeed later.
    Passing { retry_after: Option<Duration> },
    /// The key is not valid, or the request can never succeed.
    Lasting,
}

impl Failure {
    #[must_use]
    pub fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Refused(refused) => match refused.status {
                408 | 409 | 429 | 500.. => Self::Passing { retry_after: refused.retry_after },
                _ => Self::Lasting,
            },
            ClientError::Unreachable { .. }
            | ClientError::NotCued { .. }
            | ClientError::UnexpectedAnswer(_) => Self::Passing { retry_after: None },
            _ => Self::Lasting,
        }
    }
}
