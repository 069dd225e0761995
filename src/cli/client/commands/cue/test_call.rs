//! `cued cue test`: calls the URL of a cue, or any URL, at once.

use serde_json::{Value, json};

use crate::cli::client::arguments::{find, label_of};
use crate::cli::client::command::{Call, Entry, own, place, row};
use crate::cli::client::commands::cue::change;
use crate::cli::client::commands::cue::flags::{call_flags, set_headers, with_part};
use crate::cli::client::context::Context;
use crate::cli::client::forms::{Form, Lines, details};
use crate::cli::client::words::message_of;
use crate::cli::error::{CliError, Result, refused, usage};
use crate::cli::output::print;
use crate::cli::output::table::{Cell, details as as_text, headers, text_of};
use crate::cli::printable::printable_text;
use crate::client::request::ApiRequest;

const HELP: &str = "Call the URL of a cue at once, or any URL, and show the response\n\nThe call is signed as a run is, \
                        with the header X-CueAPI-Test: true. It is stored nowhere and counts as no run. With a cue, the \
                        flags replace its method, its headers of the same names, its payload and its timeout. A call ends \
                        after 25 s at the latest. Exits with 0 if the receiver returns 2xx, with 8 if it does not.";

const LINES: Lines = &[
    ("result", Form::Status("result")),
    ("HTTP status", Form::Text("http_status")),
    ("took", Form::Millis("duration_ms")),
    ("error", Form::Of(message_of)),
];

const WIDE_LINES: Lines = &[
    ("cause", Form::Words("cause")),
    ("started", Form::Time("started_at")),
    ("request", Form::Template("{request.method} {request.url}")),
    ("sent", Form::Of(|result| headers(&result["request"]["headers"]))),
    ("received", Form::Of(|result| headers(&result["response_headers"]))),
];

pub fn test_entry() -> Entry {
    let cue = place("cue", "CUE", "Id or name of a cue, for its call and its payload");
    let cue = cue.required(false).conflicts_with("url");
    row("test", HELP).args([own(cue)].into_iter().chain(call_flags().map(with_part))).code(test)
}

fn test(call: &Call<'_>) -> Result {
    let (context, output) = (call.context, &call.context.output);
    let request = ApiRequest::post("/v1/callbacks/test").json(body(call)?);
    let answer = context.send(&request)?;
    let result = answer.value()?;
    if output.format.is_for_programs() {
        output.object(&answer, "result", |_| Vec::new())?;
    } else {
        print(&shown(context, &result))?;
    }
    if result["result"] == "success" {
        return Ok(());
    }
    Err(CliError::WaitedFailed(if output.format.is_for_programs() {
        format!("the test call failed: {}", message_of(&result))
    } else {
        // The lines above have the reason.
        "the test call failed".to_owned()
    }))
}

/// The callback of the cue, or of the URL, with what the flags change.
fn body(call: &Call<'_>) -> Result<Value> {
    let mut body = match call.text("cue") {
        None if !call.is_given("url") => return Err(usage("name a cue, or add --url URL")),
        None => json!({}),
        Some(name) => {
            let cue = change::fetch(call.context, &find(call.context, name)?)?;
            if cue["transport"] == "worker" {
                let label = label_of(&cue);
                return Err(refused(format!(
                    "{label} is a cue for workers and calls no URL; fire it instead"
                )));
            }
            json!({ "callback": cue["callback"], "payload": cue["payload"] })
        }
    };
    call.set_fields(&mut body)?;
    set_headers(call, &mut body).map(|()| body)
}

fn shown(context: &Context, result: &Value) -> String {
    let mut lines: Vec<(&'static str, Cell)> = details(LINES, context, result);
    if context.output.is_wide() {
        lines.extend(details(WIDE_LINES, context, result));
    }
    let body = printable_text(&text_of(result, "response_body"));
    let gap = if body.is_empty() { "" } else { "\n" };
    let cut = if result["response_truncated"] == true { "(the rest is not shown)\n" } else { "" };
    format!("{}{gap}{body}{cut}", as_text(&lines, &context.output.styles))
}
