//! The requests of a worker (contract §7, §5.5), and what it does after one that failed.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::client::request::{Answer, ApiRequest, ClientError, segment};
use crate::domain::json::JsonText;

/// Of a poll, in addition to what the server holds it.
const POLL_MARGIN: Duration = Duration::from_secs(15);

/// Of heartbeats and extensions of leases. They are sent one after another: one without an answer delays all others.
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
    /// Claims an execution, or without an id the next one of a task. `None` if another worker was faster, or none waits.
    pub fn claim(&self, id: Option<&str>, task: Option<&str>) -> Result<Option<Claim>, ClientError> {
        let mut body = json!({"worker_id": self.claimant});
        let path = match (id, task) {
            (Some(id), _) => format!("/v1/executions/{}/claim", segment(id)),
            (None, task) => {
                task.inspect(|task| body["task"] = (*task).into());
                "/v1/executions/claim".to_owned()
            }
        };
        match self.client.send_once(&ApiRequest::post(path).json(body).timeout(TIMEOUT)) {
            Ok(answer) => answer.read().map(Some),
            // Usual among several workers. An execution that is gone was cancelled or deleted.
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
            .query("limit", "1")
            .query("wait", wait.to_string())
            .timeout(Duration::from_secs(wait) + POLL_MARGIN);
        // A worker whose polls do not wait ends soon. It must not end at the first fault.
        let answer = if wait == 0 { self.client.send(&request) } else { self.client.send_once(&request) };
        let list: List = answer?.read()?;
        Ok(list.executions.into_iter().next().map(|listed| listed.execution_id))
    }

    /// Announces the worker with its tasks.
    pub fn beat(&self, worker_id: &str, tasks: &[&str]) -> Result<(), ClientError> {
        let body = json!({"worker_id": worker_id, "handlers": tasks});
        let request = ApiRequest::post("/v1/worker/heartbeat").json(body).timeout(HEARTBEAT_TIMEOUT);
        self.client.send_once(&request).map(drop)
    }

    /// Extends the lease of an execution. Returns `false` if it is no longer this worker's.
    pub fn extend_lease(&self, id: &str) -> Result<bool, ClientError> {
        let request = ApiRequest::post(format!("/v1/executions/{}/heartbeat", segment(id)))
            .header("x-worker-id", self.claimant)
            .timeout(HEARTBEAT_TIMEOUT);
        match self.client.send_once(&request) {
            Ok(_) => Ok(true),
            Err(error)
                if error.status() == Some(409)
                    || matches!(error.code(), "not_execution_owner" | "execution_not_found") =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports the outcome of an execution.
    pub fn report(&self, id: &str, body: &JsonText) -> Result<Answer, ClientError> {
        let path = format!("/v1/executions/{}/outcome", segment(id));
        self.client.send_once(&ApiRequest::post(path).json(body.as_str()).timeout(TIMEOUT))
    }
}

/// The same request may succeed later: the server is away, busy or on hold.
pub fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refused) => matches!(refused.status, 408 | 409 | 429 | 500..),
        ClientError::Unreachable { .. }
        | ClientError::NoAnswer { .. }
        | ClientError::NotCued { .. }
        | ClientError::UnexpectedAnswer(_) => true,
        _ => false,
    }
}

/// The pause after `failures` in a row: 1 second, doubled with each of them, or what the server asks for if that is longer;
/// at most a minute, because a wrong header would stop the worker for ever.
pub fn pause_after(failures: u32, retry_after: Option<Duration>) -> Duration {
    let seconds = 2_u64.saturating_pow(failures.saturating_sub(1));
    Duration::from_secs(seconds).max(retry_after.unwrap_or_default()).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_or_are_those_that_the_server_asks_for() {
        let seconds = |failures| pause_after(failures, None).as_secs();
        assert_eq!([1, 2, 3, 6, 7, u32::MAX].map(seconds), [1, 2, 4, 32, 60, 60]);
        let asked = |seconds| pause_after(1, Some(Duration::from_secs(seconds))).as_secs();
        assert_eq!([0, 7, 86_400].map(asked), [1, 7, 60]);
    }
}
