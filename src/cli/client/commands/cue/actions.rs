//! `cued cue pause`, `resume` and `rm`, which make one request for a cue and one for several, and `cued cue fire`.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cli::client::arguments::{FoundCue, find_all, label_of};
use crate::cli::client::command::Call;
use crate::cli::client::commands::run::wait::{RunWatch, deadline, print_end};
use crate::cli::client::context::Context;
use crate::cli::client::live_output::end_on_signals;
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::cli::output::table::text_of;
use crate::cli::output::{Format, count, print_line};
use crate::cli::printable::printable;
use crate::client::request::{Answer, ApiRequest};

/// A change of the status, in the words of the API and of sentences.
pub struct Change {
    action: &'static str,
    title: &'static str,
    done: &'static str,
    from: &'static str,
    to: &'static str,
}

pub const PAUSE: Change =
    Change { action: "pause", title: "Pause", done: "paused", from: "active", to: "paused" };
pub const RESUME: Change =
    Change { action: "resume", title: "Resume", done: "resumed", from: "paused", to: "active" };

pub fn change(call: &Call<'_>, change: &Change) -> Result<(), CliError> {
    let context = call.context;
    let cues = find_all(context, &call.texts("cues"))?;
    if let [cue] = cues.as_slice() {
        let answer = context.send(&ApiRequest::patch(cue.path()).json(json!({ "status": change.to })))?;
        return context.output.done(&answer, "id", |cue| {
            let next = context.output.times.instant(&text_of(cue, "next_run"));
            let next = if next.is_empty() { next } else { format!("; next run {next}") };
            format!("{} {}{next}", change.done, label_of(cue))
        });
    }
    let mut body = json!({ "action": change.action, "ids": ids(&cues) });
    if call.is_set("all") {
        // The server refuses if the number of cues in this status is another than the confirmed one.
        let request = ApiRequest::get("/v1/cues").query("status", change.from).query("limit", "1");
        let total = context.look_up(&request)?.value()?["total"].as_i64().unwrap_or(0);
        if total > 0 {
            let cues = count(total, &format!("{} cue", change.from));
            context.confirm(&format!("{} all {cues}?", change.title))?;
        }
        body = json!({ "action": change.action, "expected": total, "filter": { "status": change.from } });
    }
    let answer = context.send(&ApiRequest::post("/v1/cues/bulk").json(body).idempotent())?;
    report(context, change.done, &answer, &cues)
}

pub fn delete(call: &Call<'_>) -> Result<(), CliError> {
    let context = call.context;
    let cues = find_all(context, &call.texts("cues"))?;
    if context.asks() {
        context.confirm(&question(context, &cues)?)?;
    }
    if let [cue] = cues.as_slice() {
        let answer = context.send(&ApiRequest::delete(cue.path()))?;
        return match context.output.format {
            Format::Id => print_line(&cue.id),
            _ => context.output.done(&answer, "id", |_| format!("deleted {}", cue.label())),
        };
    }
    let request = ApiRequest::post("/v1/cues/bulk-delete").json(json!({ "ids": ids(&cues) }));
    report(context, "deleted", &context.send(&request.idempotent())?, &cues)
}

pub fn fire(call: &Call<'_>) -> Result<(), CliError> {
    let (context, output) = (call.context, &call.context.output);
    let mut body = json!({});
    if let Some(payload) = call.text("payload") {
        body["payload_override"] = values::structured("--payload", payload)?;
        body["merge_strategy"] = if call.is_set("replace") { "replace" } else { "merge" }.into();
    }
    if let Some(at) = call.text("at") {
        body["send_at"] = at.into();
    }
    let Some(cue) = &call.cue else { return Ok(()) };
    let request = ApiRequest::post(format!("{}/fire", cue.path())).json(body).idempotent();
    if call.is_set("wait") && !context.is_curl() {
        end_on_signals()?;
        // The watch begins before the run, so that no end is missed.
        let timeout: Option<&SignedDuration> = call.get("timeout");
        let watch = RunWatch::open(context, &cue.id, deadline(context, timeout))?;
        let run = context.send(&request)?.value()?;
        return print_end(context, &watch.until_ended(&text_of(&run, "execution_id"))?);
    }
    output.object(&context.send(&request)?, "execution_id", |run| {
        vec![
            ("execution", text_of(run, "execution_id").into()),
            ("cue", cue.label().into()),
            ("scheduled for", output.times.instant(&text_of(run, "scheduled_for")).into()),
        ]
    })
}

/// The question names each cue and the number of its executions.
fn question(context: &Context, cues: &[FoundCue]) -> Result<String, CliError> {
    let mut described = Vec::new();
    for cue in cues {
        let request = ApiRequest::get(cue.path()).query("execution_limit", "1");
        let cue = context.look_up(&request)?.value()?;
        let executions = count(cue["execution_total"].as_i64().unwrap_or(0), "execution");
        described.push(format!("{}, {}, with {executions}", label_of(&cue), text_of(&cue, "status")));
    }
    Ok(match described.as_slice() {
        [cue] => format!("Delete {cue}?"),
        cues => format!("These {} cues are deleted:\n  {}\nDelete them?", cues.len(), cues.join("\n  ")),
    })
}

fn ids(cues: &[FoundCue]) -> Value {
    cues.iter().map(|cue| cue.id.as_str()).collect()
}

/// Prints a line for each cue; of all cues their number and the refused ones.
/// Errors: if a cue was refused.
fn report(context: &Context, done: &str, answer: &Answer, cues: &[FoundCue]) -> Result<(), CliError> {
    let value = answer.value()?;
    let array = |field: &str| value[field].as_array().into_iter().flatten();
    // A deletion skips the cues that do not exist.
    let skipped =
        array("skipped").map(|id| json!({"id": id, "code": "cue_not_found", "message": "Cue not found"}));
    let refused: Vec<Value> = array("failed").cloned().chain(skipped).collect();
    let changed = || cues.iter().filter(|cue| refused.iter().all(|it| it["id"] != cue.id.as_str()));
    match context.output.format {
        Format::Table | Format::Wide => {
            changed().try_for_each(|cue| print_line(&format!("{done} {}", cue.label())))?;
            if cues.is_empty() {
                print_line(&format!("{done} {}", count(value["done"].as_i64().unwrap_or(0), "cue")))?;
            }
            for it in &refused {
                let label = cues.iter().find(|cue| it["id"] == cue.id.as_str()).map(FoundCue::label);
                let label = label.unwrap_or_else(|| text_of(it, "id"));
                print_line(&format!("refused {label}: {}", printable(&text_of(it, "message"))))?;
            }
        }
        Format::Id => changed().try_for_each(|cue| print_line(&cue.id))?,
        _ => context.output.object(answer, "", |_| Vec::new())?,
    }
    let matched = if cues.is_empty() { value["matched"].to_string() } else { cues.len().to_string() };
    let message = match refused.len() {
        0 => return Ok(()),
        1 => format!("1 of {matched} cues was refused"),
        number => format!("{number} of {matched} cues were refused"),
    };
    let is_unknown = refused.iter().all(|cue| cue["code"] == "cue_not_found");
    Err(if is_unknown { CliError::NotFound(message) } else { CliError::Refused(message) })
}
