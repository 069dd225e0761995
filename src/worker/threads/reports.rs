//! Delivers the report of a run: again until the server has it.

use std::time::Duration;

use serde_json::json;

use crate::client::error::ClientError;
use crate::worker::api::Failure;
use crate::worker::backoff::Backoff;
use crate::worker::outcome::Report;
use crate::worker::state::Shared;

/// Delivers the report. Returns `false` if it was given up; it is then in the log.
pub fn deliver(worker: &Shared, id: &str, report: &Report, ended_at: Duration) -> bool {
    let mut backoff = Backoff::default();
    let mut refusals = 0;
    let mut body = report.body.clone();
    loop {
        let error = match worker.api().report(id, &body) {
            Ok(answer) => {
                (worker.on_recorded)(&answer);
                return true;
            }
            Err(error) => error,
        };
        match Fault::of(&error) {
            // By this worker, if the answer was lost, or by another one.
            Fault::Reported => return true,
            Fault::Gone => {
                tracing::warn!(execution_id = id, %error, "the execution is gone, and its outcome with it");
                return true;
            }
            Fault::Passing(retry_after) => {
                tracing::warn!(execution_id = id, %error, "the report was not accepted; trying again");
                if worker.wait_to_report(backoff.fail(retry_after), ended_at) {
                    continue;
                }
            }
            Fault::Content => {
                tracing::warn!(execution_id = id, %error, "the report was refused; sending less of it");
                refusals += 1;
                match refusals {
                    1 => body = report.bare(&error.to_string()).body,
                    // The server accepts this one even when the account has no room for more.
                    2 => body = (&json!({"success": report.success})).into(),
                    _ => return given_up(id, report),
                }
                continue;
            }
            Fault::Lasting => worker.give_up(error),
        }
        return given_up(id, report);
    }
}

/// Writes the report to the log, from which a person can send it.
fn given_up(id: &str, report: &Report) -> bool {
    tracing::error!(execution_id = id, report = report.body.as_str(), "the report was not recorded");
    false
}

enum Fault {
    Reported,
    Gone,
    Passing(Option<Duration>),
    /// Something in the report.
    Content,
    Lasting,
}

impl Fault {
    fn of(error: &ClientError) -> Self {
        match (error, Failure::of(error)) {
            (ClientError::Refused(refused), _) if refused.code == "outcome_already_reported" => {
                Self::Reported
            }
            (ClientError::Refused(refused), _) if refused.code == "execution_not_found" => Self::Gone,
            (ClientError::Refused(refused), _) if matches!(refused.status, 400 | 403 | 413 | 422) => {
                Self::Content
            }
            (_, Failure::Passing { retry_after }) => Self::Passing(retry_after),
            (_, Failure::Lasting) => Self::Lasting,
        }
    }
}
