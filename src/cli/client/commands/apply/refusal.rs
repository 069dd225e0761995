//! Refusals of the server, each with the place in the file that it is about.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::client::commands::apply::faults::{At, Faults, without_value};
use crate::cli::client::commands::apply::fields::SHORT;
use crate::cli::client::reworded::field_fault;
use crate::cli::client::words::with_runs;
use crate::cli::error::CliError;
use crate::cli::input::placed::Placed;
use crate::client::request::{ClientError, RefusedRequest};

/// The refusals of cues and channels so far.
#[derive(Debug, Default)]
pub struct Refusals {
    faults: Faults,
    /// That of the server that decides on the exit code.
    first: Option<Box<RefusedRequest>>,
    /// A limit of the plan left something out.
    is_limited: bool,
}

/// Whether an error is about the one object of its request, so that others may be accepted.
pub fn is_of_one(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if matches!(refused.status, 400 | 403 | 409 | 413 | 422))
}

impl Refusals {
    pub fn is_empty(&self) -> bool {
        self.faults.count() == 0
    }

    /// Adds what the server would refuse.
    pub fn add_fault(&mut self, at: At, reason: String) {
        self.faults.add(at, reason);
    }

    /// Adds what a limit of the plan leaves out.
    pub fn add_limited(&mut self, at: At, reason: String) {
        self.is_limited = true;
        self.faults.add(at, reason);
    }

    /// Adds a refusal of the object at `at`. `body` is what was sent, `short` are the places of short forms in the files.
    /// Errors: one that is not about this object alone.
    pub fn add(
        &mut self,
        error: ClientError,
        at: &At,
        body: &Placed,
        short: &BTreeSet<At>,
    ) -> Result<(), CliError> {
        if !is_of_one(&error) {
            return Err(error.into());
        }
        let ClientError::Refused(refused) = error else { return Ok(()) };
        let details = refused.body["detail"].as_array().cloned().unwrap_or_default();
        let mut add = |path: &[Value], wants_key: bool, reason: &str| {
            let reason = in_words_of_the_file(reason, path, at, body, short);
            let reason = body.find(path).map_or(reason.clone(), |value| without_value(&reason, value));
            self.faults.add(at.in_file(body.place_of(path, wants_key)), reason);
        };
        for detail in &details {
            let path: Vec<Value> = detail["loc"].as_array().into_iter().flatten().skip(1).cloned().collect();
            let reason = field_fault(detail).unwrap_or_else(|| refused.message.clone());
            add(&path, detail["type"] == "extra_forbidden", &reason);
        }
        if details.is_empty() {
            add(&path_of(&refused), false, &with_runs(&refused.message));
        }
        self.first.get_or_insert(refused);
        Ok(())
    }

    /// Errors: the refusals, if there are any. `consequence` says what was written all the same.
    pub fn check(self, consequence: &str) -> Result<(), CliError> {
        if self.is_empty() {
            return Ok(());
        }
        let text = self.faults.text(consequence);
        let Some(mut refused) = self.first else {
            return Err(if self.is_limited { CliError::CueLimit(text) } else { CliError::Refused(text) });
        };
        refused.body["error"]["message"] = text.as_str().into();
        refused.say(text);
        Err(CliError::Client(ClientError::Refused(refused)))
    }
}

/// The reason with the short form of its field, if the file has that, and with what to do in a file.
fn in_words_of_the_file(
    reason: &str,
    path: &[Value],
    at: &At,
    body: &Placed,
    short: &BTreeSet<At>,
) -> String {
    let is_short = |field: &str| {
        let field: Vec<Value> = field.split('.').map(Value::from).collect();
        path.starts_with(&field) && short.contains(&at.in_file(body.place_of(&field, true)))
    };
    let found = SHORT.iter().find(|(_, field)| reason.starts_with(field) && is_short(field));
    let reason = match found {
        Some((short, field)) => format!("{short}{}", &reason[field.len()..]),
        None => reason.to_owned(),
    };
    reason.replace(
        "is not in the future; use a later instant",
        "is not in the future; use a later instant, or remove the cue: its time has passed",
    )
}

/// The field that a refusal without `detail` is about.
fn path_of(refused: &RefusedRequest) -> Vec<Value> {
    let field = refused.body["error"]["field"].as_str();
    let path = match (refused.code.as_str(), field) {
        (_, Some(field @ ("timezone" | "at" | "every" | "end"))) => format!("schedule.{field}"),
        // A field of the expression.
        (_, Some(_)) => "schedule.cron".to_owned(),
        ("invalid_schedule", None) => "schedule".to_owned(),
        ("invalid_timezone", None) => "schedule.timezone".to_owned(),
        ("invalid_payload_size", None) => "payload".to_owned(),
        // `callback.url must not …`
        ("invalid_callback" | "invalid_callback_url", None) => {
            refused.message.split([' ', ':']).next().unwrap_or_default().to_owned()
        }
        _ => return Vec::new(),
    };
    path.split('.').map(Value::from).collect()
}
