//! Refusals of the server, each with the place in the file that it is about.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::fields::JsonFields;
use crate::api::refusal::error_body;
use crate::cli::client::commands::apply::faults::{At, Faults, HIDDEN, without_value};
use crate::cli::client::commands::apply::fields::SHORT;
use crate::cli::client::refusals::Fault;
use crate::cli::error::CliError;
use crate::cli::input::placed::{Node, Placed};
use crate::client::request::{ClientError, RefusedRequest};
use crate::domain::api_error::Refusal;
use crate::domain::json;
use crate::domain::webhook::address_policy::AddressPolicy;

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
        let ClientError::Refused(mut refused) = error else { return Ok(()) };
        let is_past = refused.body["error"]["field"] == "at"
            && refused.message.contains("is not in the future");
        let advice = if is_past { ", or remove the cue: its time has passed" } else { "" };
        let found = Found { at, body, short, faults: &mut self.faults };
        found.add(&refused.body, advice);
        if let Some(details) = refused.body["detail"].as_array_mut() {
            details.iter_mut().for_each(|detail| mask(detail, body));
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
            return Err(if self.is_limited {
                CliError::CueLimit(text)
            } else {
                CliError::Refused(text)
            });
        };
        refused.body["error"]["message"] = text.as_str().into();
        refused.say(text);
        Err(CliError::Client(ClientError::Refused(refused)))
    }
}

/// Where the API has found faults: the body of one object, and its place.
struct Found<'a> {
    at: &'a At,
    body: &'a Placed,
    short: &'a BTreeSet<At>,
    faults: &'a mut Faults,
}

impl Found<'_> {
    /// Adds the faults of an error, each at its place and with the name that its field has there.
    fn add(self, error: &Value, advice: &str) {
        let Self { at, body, short, faults } = self;
        let message = error["error"]["message"].as_str().unwrap_or_default();
        for fault in Fault::all(error, message) {
            let path = fault.path();
            let is_short = |field: &str| {
                let field: Vec<Value> = field.split('.').map(Value::from).collect();
                fault.place.starts_with(&field)
                    && short.contains(&at.in_file(body.place_of(&field, true)))
            };
            let name = SHORT.iter().find(|(_, field)| is_short(field));
            let name = name.map(|(short, field)| format!("{short}{}", &path[field.len()..]));
            let reason = format!("{}{advice}", fault.text(name));
            let value = body.find(&fault.place);
            let reason = value.map_or(reason.clone(), |value| without_value(&reason, value));
            faults.add(at.in_file(body.place_of(&fault.place, fault.is_unknown())), reason);
        }
    }
}

/// Finds what the API would refuse of a body, whose reader is `read`, so that nothing is sent.
pub fn check_values<T>(
    (body, at): (&Placed, &At),
    short: &BTreeSet<At>,
    faults: &mut Faults,
    read: impl FnOnce(JsonFields<'_>) -> Result<T, Refusal>,
) {
    let Ok(text) = json::read(body.to_value().to_string().as_bytes()) else { return };
    let Err(refusal) = JsonFields::of_body(text.get()).and_then(read) else { return };
    Found { at, body, short, faults }.add(&error_body(&refusal), "");
}

/// A policy that refuses no address: only the server knows its own.
pub fn all_addresses() -> AddressPolicy {
    let rules = ["public", "private", "loopback", "0.0.0.0/0", "::/0"];
    AddressPolicy::new(&rules.iter().filter_map(|rule| rule.parse().ok()).collect::<Vec<_>>())
}

/// The path of a detail in the body.
fn path_in(detail: &Value) -> Vec<Value> {
    detail["loc"].as_array().into_iter().flatten().skip(1).cloned().collect()
}

/// Hides in a detail what the file may keep secret: a value with a variable, that of a header, and a value that may
/// contain one.
fn mask(detail: &mut Value, body: &Placed) {
    let path = path_in(detail);
    let value = body.find(&path);
    if let (Some(value), Some(reason)) = (value, detail["msg"].as_str()) {
        detail["msg"] = without_value(reason, value).into();
    }
    let is_of_header = path.iter().any(|part| part == "headers");
    let is_shown = |value: &Placed| matches!(value.node, Node::Scalar(_)) && !value.has_variable;
    let is_name = detail["type"] == "extra_forbidden";
    if let Some(input) = detail.get_mut("input").filter(|input| !input.is_null())
        && !is_name
        && (is_of_header || !value.is_some_and(is_shown))
    {
        *input = HIDDEN.into();
    }
}
