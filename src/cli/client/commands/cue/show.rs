//! `cued cue show`.

use clap::Args;
use serde_json::Value;

use crate::cli::client::arguments::cue_name;
use crate::cli::client::commands::cue::list::{schedule, target};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::output::cells;
use crate::cli::output::cells::text_of;
use crate::cli::output::style::Style;
use crate::cli::output::table::Cell;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Show {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    /// Latest runs that are shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    runs: u8,
}

impl Show {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let cue = cue_name::find(context, &self.cue)?;
        let request = ApiRequest::get(cue.path()).query("execution_limit", self.runs.to_string());
        let answer = context.send(&request)?;
        context.output.object(&answer, "id", |cue| lines(&context.output, cue))
    }
}

fn lines(output: &Output, cue: &Value) -> Vec<(&'static str, Cell)> {
    let text = |field: &str| Cell::from(text_of(cue, field));
    let instant = |field: &str| Cell::from(output.times.instant(&text_of(cue, field)));
    let minutes = text_of(cue, "claim_within_minutes");
    let within = if minutes.is_empty() { minutes } else { format!("{minutes} min") };
    vec![
        ("id", text("id")),
        ("name", text("name")),
        ("description", text("description")),
        ("status", cells::status(&text_of(cue, "status"))),
        ("warning", Cell::new(text_of(cue, "warning"), Style::Warning)),
        ("schedule", schedule(output, cue).into()),
        ("catch-up", text("schedule.catch_up")),
        ("next run", instant("next_run")),
        ("last run", instant("last_run")),
        ("target", with_method(cue).into()),
        ("headers", headers(cue).into()),
        ("payload", payload(cue).into()),
        ("retry", retry(cue).into()),
        ("on failure", on_failure(cue).into()),
        ("claim within", within.into()),
        ("verification", text("verification.mode")),
        ("runs", counts(cue).into()),
        ("created", instant("created_at")),
        ("updated", instant("updated_at")),
        ("latest runs", latest(output, cue).into()),
    ]
}

fn with_method(cue: &Value) -> String {
    match text_of(cue, "transport").as_str() {
        "webhook" => format!("{} {}", text_of(cue, "callback.method"), target(cue)),
        _ => target(cue),
    }
}

fn headers(cue: &Value) -> String {
    let headers = cue["callback"]["headers"].as_object();
    let lines = headers.into_iter().flatten().map(|(name, value)| {
        format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn payload(cue: &Value) -> String {
    match &cue["payload"] {
        Value::Null => String::new(),
        // Pretty text of a value cannot fail; the compact one stands in.
        payload => serde_json::to_string_pretty(payload).unwrap_or_else(|_| payload.to_string()),
    }
}

fn retry(cue: &Value) -> String {
    let pauses = cue["retry"]["backoff_minutes"].as_array().into_iter().flatten();
    let pauses: Vec<String> = pauses.map(Value::to_string).collect();
    format!("{} attempts, after {} min", text_of(cue, "retry.max_attempts"), pauses.join(", "))
}

fn on_failure(cue: &Value) -> String {
    let actions = &cue["on_failure"];
    let is = |name: &str| actions[name] == true;
    let words = [
        is("email").then(|| "email".to_owned()),
        is("pause").then(|| "pause".to_owned()),
        actions["webhook"].as_str().map(str::to_owned),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn counts(cue: &Value) -> String {
    let of = |field: &str| text_of(cue, field);
    format!("{}, {} missed, {} failing", of("run_count"), of("missed_count"), of("failing"))
}

fn latest(output: &Output, cue: &Value) -> String {
    let runs = cue["executions"].as_array().into_iter().flatten();
    let line = |run: &Value| {
        let scheduled = output.times.instant(&text_of(run, "scheduled_for"));
        format!("{}  {scheduled}  {}", text_of(run, "id"), text_of(run, "status"))
    };
    runs.map(line).collect::<Vec<_>>().join("\n")
}
