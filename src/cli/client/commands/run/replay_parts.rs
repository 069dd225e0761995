//! The failed runs of a replay in parts, by the time of their creation.
//!
//! The server replays what a filter matches if it is as many as expected. A part is so small that its request ends soon:
//! the bar moves, and Ctrl-C waits for a moment only. The parts do not overlap and leave no gap, and their ends are fixed
//! before the first is replayed, so no run is replayed twice and no replay is replayed.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::client::error::{ClientError, RefusedRequest};
use crate::client::request::{Answer, ApiRequest};

/// Runs of a part, unless more were created in the same millisecond.
const PART: u64 = 1_000;

/// Which failed runs.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub cue_id: Option<String>,
    pub cause: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// The runs created at `since` or later, and before `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub runs: u64,
}

/// A place in the list of failed runs, newest first.
struct Place {
    /// Runs in the whole list. Cancelled ones count here.
    total: u64,
    /// Creation of the run at the place, if there is one.
    created_at: Option<Timestamp>,
}

impl Selection {
    /// The parts, oldest first, without empty ones.
    /// Errors: if a request fails.
    pub fn parts(&self, context: &Context) -> Result<Vec<Part>, CliError> {
        let newest = self.place(context, self.since, self.until, 0)?;
        let mut parts = Vec::new();
        let (mut left, mut since, mut until) = (newest.total, self.since, self.until);
        if left > PART && until.is_none() {
            // Replays of the first parts are no part of the later ones.
            until = newest.created_at.and_then(|at| at.checked_add(SignedDuration::from_millis(1)).ok());
        }
        let mut size = PART;
        while left > size {
            let next = self.place(context, since, until, left - size - 1)?.created_at;
            let Some(end) = next else { break };
            if since.is_some_and(|since| end <= since) {
                // So many have the same creation time.
                size *= 2;
                continue;
            }
            parts.push(self.part(context, since, Some(end))?);
            (left, since, size) = (left - size, Some(end), PART);
        }
        parts.push(self.part(context, since, until)?);
        parts.retain(|part| part.runs > 0);
        Ok(parts)
    }

    /// The command that replays the runs of a range.
    pub fn command(&self, since: Option<Timestamp>, until: Option<Timestamp>) -> String {
        let flag =
            |name: &str, value: Option<String>| value.map(|it| format!(" --{name} {it}")).unwrap_or_default();
        format!(
            "cued run replay --failed{}{}{}{}",
            flag("cue", self.cue_id.clone()),
            flag("cause", self.cause.clone()),
            flag("since", since.map(|at| at.to_string())),
            flag("until", until.map(|at| at.to_string()))
        )
    }

    fn part(
        &self,
        context: &Context,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Part, CliError> {
        let part = Part { since, until, runs: 0 };
        // The lists count cancelled runs, too. A number that is wrong is refused with the right one.
        let request = ApiRequest::post("/v1/executions/replay").json(part.body(self));
        match context.look_up(&request) {
            Ok(_) => Ok(part),
            Err(CliError::Client(ClientError::Refused(refused))) => {
                let runs = matched(&refused).ok_or(ClientError::Refused(refused))?;
                Ok(Part { runs, ..part })
            }
            Err(error) => Err(error),
        }
    }

    fn place(
        &self,
        context: &Context,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        offset: u64,
    ) -> Result<Place, CliError> {
        let request = ApiRequest::get("/v1/executions")
            .query("status", "failed")
            .maybe_query("cue_id", self.cue_id.clone())
            .maybe_query("cause", self.cause.clone())
            .maybe_query("since", since.map(|at| at.to_string()))
            .maybe_query("until", until.map(|at| at.to_string()))
            .query("limit", "1")
            .query("offset", offset.to_string());
        let list = context.look_up(&request)?.value()?;
        let created_at = list["executions"][0]["created_at"].as_str();
        Ok(Place {
            total: list["total"].as_u64().unwrap_or(0),
            created_at: created_at.and_then(|at| at.parse().ok()),
        })
    }
}

impl Part {
    /// The body of the request that replays the part, if it still has as many runs.
    pub fn body(&self, selection: &Selection) -> Value {
        let mut filter = json!({"status": "failed"});
        let fields = [
            ("cue_id", selection.cue_id.clone()),
            ("cause", selection.cause.clone()),
            ("since", self.since.map(|at| at.to_string())),
            ("until", self.until.map(|at| at.to_string())),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                filter[name] = value.into();
            }
        }
        json!({"filter": filter, "expected": self.runs})
    }
}

/// Most requests for a part: retention may delete runs between two of them.
const MAX_TRIES: u32 = 5;

/// Replays one part or some ids. If a part has become smaller meanwhile, because runs were deleted, the rest of it is
/// replayed; a larger one has runs that the user has not agreed to.
/// Errors: if the server refuses the request or cannot be reached.
pub fn replay_step(context: &Context, body: &Value) -> Result<Answer, CliError> {
    let mut body = body.clone();
    let mut tries = 1;
    loop {
        let request = ApiRequest::post("/v1/executions/replay").json(&body).idempotent();
        let refused = match context.send(&request) {
            Err(CliError::Client(ClientError::Refused(refused))) => refused,
            result => return result,
        };
        match (matched(&refused), body["expected"].as_u64()) {
            (Some(runs), Some(expected)) if runs < expected && tries < MAX_TRIES => {
                body["expected"] = runs.into()
            }
            _ => return Err(ClientError::Refused(refused).into()),
        }
        tries += 1;
    }
}

/// The number that the filter matches, of a refusal because of another one: the first number of the message.
fn matched(refused: &RefusedRequest) -> Option<u64> {
    if refused.code != "invalid_state" {
        return None;
    }
    let digits =
        refused.message.split(|char: char| !char.is_ascii_digit()).find(|digits| !digits.is_empty())?;
    digits.parse().ok()
}
