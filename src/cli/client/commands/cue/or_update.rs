//! `cued cue add --or-update`: changes the cue that has the slug or the name already.

use serde_json::Value;

use crate::cli::client::command::Call;
use crate::cli::client::commands::cue::change::{changed, editable, print_added, zone_of};
use crate::cli::client::commands::cue::flags;
use crate::cli::client::commands::cue::set::merged;
use crate::cli::client::commands::schedule::{understand_fields, with_caret};
use crate::cli::client::cues::{FoundCue, ambiguous, label_of, named, with_slug};
use crate::cli::error::{CliError, refused};
use crate::cli::printable::printable;
use crate::client::request::ApiRequest;

/// Changes the cue of the slug, or else the only one of the name, to what the flags say. Returns false if there is none.
pub fn update(call: &Call<'_>) -> Result<bool, CliError> {
    let context = call.context;
    let name = call.text("name").unwrap_or_default();
    let cues = match call.text("slug") {
        Some(slug) => with_slug(context, slug)?,
        None => named(context, name)?,
    };
    let found = match cues.as_slice() {
        [] => return Ok(false),
        [cue] => FoundCue::of(cue),
        several => return Err(ambiguous(context, "the name", name, several)),
    };
    let answer = context.fetch(&ApiRequest::get(found.path()).query("execution_limit", "1"))?;
    let cue = answer.value()?;
    let patch = patch(call, &found, &cue)?;
    if patch.as_object().is_none_or(|fields| fields.is_empty()) {
        return print_added(context, &answer, "unchanged").map(|()| true);
    }
    let request = ApiRequest::patch(found.path()).json(&patch);
    let answer = context
        .send(&request)
        .map_err(|error| with_caret(context, error, patch["schedule"]["cron"].as_str()))?;
    let names = names(&changed(&editable(&cue), &editable(&answer.value()?)));
    let result = if names.is_empty() { "unchanged".to_owned() } else { format!("updated: {names}") };
    print_added(context, &answer, &result).map(|()| true)
}

/// The fields that the flags set to another value than the cue has.
fn patch(call: &Call<'_>, found: &FoundCue, cue: &Value) -> Result<Value, CliError> {
    let is_for_workers = flags::is_for_workers(call);
    if is_for_workers != (cue["transport"] == "worker") {
        let is = if is_for_workers { "calls a URL" } else { "is for workers" };
        return Err(refused(format!(
            "{} {is}, which cannot be changed: use another name, or delete that cue first",
            label_of(cue)
        )));
    }
    let task = call.text("task").filter(|_| !call.is_given("payload"));
    let mut fields = merged(flags::body(call)?, cue, task);
    if let Some(schedule) = fields.get_mut("schedule") {
        drop(understand_fields(call.context, schedule, || zone_of(call.context, found))?);
    }
    Ok(changed(cue, &fields))
}

/// `schedule.cron, payload`
fn names(changes: &Value) -> String {
    let mut names = Vec::new();
    for (field, change) in changes.as_object().into_iter().flatten() {
        match change.as_object().filter(|_| field != "payload") {
            Some(parts) => names.extend(parts.keys().map(|part| format!("{field}.{part}"))),
            None => names.push(field.clone()),
        }
    }
    printable(&names.join(", "))
}
