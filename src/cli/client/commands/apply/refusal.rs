//! What is wrong with the requests of the files, each fault with its place there: found before a request is made, or by the
//! server.

use serde_json::{Value, json};

use crate::api::apply::read_apply;
use crate::api::fields::JsonFields;
use crate::cli::client::commands::apply::faults::{At, Faults, without_value};
use crate::cli::client::commands::apply::fields::SHORT;
use crate::cli::client::commands::apply::file::{Object, Wanted};
use crate::cli::client::commands::apply::plan::Batch;
use crate::cli::client::refusals::Fault;
use crate::cli::error::CliError;
use crate::cli::input::placed::Placed;
use crate::client::request::{ClientError, RefusedRequest};
use crate::domain::api_error::ErrorCode;
use crate::domain::json::read;
use crate::domain::webhook::address_policy::AddressPolicy;

/// The refusals of cues and channels so far.
#[derive(Debug, Default)]
pub struct Refusals {
    faults: Faults,
    /// That of the server that decides on the exit code.
    first: Option<Box<RefusedRequest>>,
}

impl Refusals {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Adds those of a batch, and leaves their objects out of it. Returns whether the rest may be accepted.
    pub fn add(
        &mut self,
        mut refused: Box<RefusedRequest>,
        batch: &mut Batch<'_>,
        wanted: &Wanted,
        counts_limits: bool,
    ) -> bool {
        let counts = |error: &&Value| counts_limits || !is_limit(error);
        let errors: Vec<Value> = errors_of(&refused).iter().filter(counts).cloned().collect();
        add_errors(&errors, batch, wanted, &mut self.faults);
        let objects: Vec<_> = errors.iter().map(|error| batch.object_of(error)).collect();
        objects.iter().flatten().for_each(|object| batch.leave_out(object));
        let first = errors.first().and_then(|error| ErrorCode::parse(error["code"].as_str()?));
        if let Some(code) = first {
            let (code, status) = code.text_and_status();
            (refused.code, refused.status) = (code.to_owned(), status);
        }
        self.first.get_or_insert(refused);
        objects.iter().all(Option::is_some) && !batch.objects.is_empty()
    }

    pub fn text(&self, consequence: &str) -> String {
        self.faults.text(consequence)
    }

    /// Errors: the refusals, if there are any. `consequence` says what was written all the same.
    pub fn check(self, consequence: &str) -> Result<(), CliError> {
        let text = self.text(consequence);
        let Some(mut refused) = self.first else { return Ok(()) };
        let code = refused.code.clone();
        refused.body = json!({"error": {"code": code, "message": text, "status": refused.status}});
        refused.say(text);
        Err(ClientError::Refused(refused).into())
    }
}

/// The errors of an answer; none of another one.
fn errors_of(refused: &RefusedRequest) -> &[Value] {
    refused.body["errors"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether a refusal has errors of a request. With `counts_limits` those of the limits of the plan count, too.
pub fn has_errors(refused: &RefusedRequest, counts_limits: bool) -> bool {
    errors_of(refused).iter().any(|error| counts_limits || !is_limit(error))
}

fn is_limit(error: &Value) -> bool {
    error["code"] == "cue_limit_exceeded" || error["code"] == "storage_limit_exceeded"
}

/// Finds what the server would refuse of a batch by itself, so that nothing is sent. Only the server knows the addresses
/// that it may reach.
pub fn check_batch(batch: &Batch<'_>, wanted: &Wanted, faults: &mut Faults) {
    let rules = ["public", "private", "loopback", "0.0.0.0/0", "::/0"];
    let all =
        AddressPolicy::new(&rules.iter().filter_map(|rule| rule.parse().ok()).collect::<Vec<_>>());
    let Ok(body) = read(batch.body(false, false).to_string().as_bytes()) else { return };
    let Ok(fields) = JsonFields::of_body(body.get()) else { return };
    if let Err(errors) = read_apply(fields, &all) {
        let errors = errors.to_json()["errors"].take();
        add_errors(errors.as_array().map_or(&[], Vec::as_slice), batch, wanted, faults);
    }
}

/// Adds the errors of a request, each at its place in the files and with the name that its field has there.
fn add_errors(errors: &[Value], batch: &Batch<'_>, wanted: &Wanted, faults: &mut Faults) {
    let is_about_cue = |error: &&Value| is_limit(error) && batch.object_of(error).is_some();
    let of_limit = errors.iter().filter(is_about_cue).count();
    let mut limited: Option<(At, String)> = None;
    for error in errors {
        let Some(Object { at, body, .. }) = batch.object_of(error) else {
            let text = Fault::of_apply(error, 1).text(None);
            wanted.start.iter().for_each(|at| faults.add(at.clone(), text.clone()));
            continue;
        };
        let fault = Fault::of_apply(error, 3);
        if is_limit(error) && of_limit > 1 {
            let reason =
                format!("{}; this is the first of {of_limit} cues without room", fault.text(None));
            if limited.as_ref().is_none_or(|(first, _)| at < first) {
                limited = Some((at.clone(), reason));
            }
            continue;
        }
        add_fault(&fault, at, body, wanted, faults);
    }
    if let Some((at, reason)) = limited {
        faults.add(at, reason);
    }
}

fn add_fault(fault: &Fault, at: &At, body: &Placed, wanted: &Wanted, faults: &mut Faults) {
    let path = fault.path();
    let is_short = |field: &str| {
        let field: Vec<Value> = field.split('.').map(Value::from).collect();
        let place = at.in_file(body.place_of(&field, true));
        fault.place.starts_with(&field) && wanted.short.contains(&place)
    };
    let name = SHORT.iter().find(|(_, field)| is_short(field));
    let name = name.map(|(short, field)| format!("{short}{}", &path[field.len()..]));
    let mut reason = fault.text(name);
    if path == "schedule.at" && reason.contains("is not in the future") {
        reason += ", or remove the cue: its time has passed";
    }
    if let Some(value) = body.find(&fault.place) {
        reason = without_value(&reason, value);
    }
    faults.add(at.in_file(body.place_of(&fault.place, fault.is_unknown())), reason);
}
