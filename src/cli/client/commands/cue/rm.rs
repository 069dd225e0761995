//! `cued cue rm`.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::client::arguments::cue_name;
use crate::cli::client::arguments::cue_name::{FoundCue, MAX_AT_ONCE, label_of};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::print::{count, print_line};
use crate::client::request::{Answer, ApiRequest};

#[derive(Debug, Args)]
pub struct Rm {
    /// Ids or names of cues
    #[arg(value_name = "CUE", required = true, num_args = 1..=MAX_AT_ONCE)]
    cues: Vec<String>,
}

impl Rm {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let cues = cue_name::find_all(context, &self.cues)?;
        if context.asks() {
            context.confirm(&question(context, &cues)?)?;
        }
        match cues.as_slice() {
            [cue] => {
                let answer = context.send(&ApiRequest::delete(cue.path()))?;
                match context.output.format {
                    Format::Id => print_line(&cue.id),
                    _ => context.output.done(&answer, "id", |_| format!("deleted {}", cue.label())),
                }
            }
            cues => {
                let ids: Vec<&str> = cues.iter().map(|cue| cue.id.as_str()).collect();
                let request = ApiRequest::post("/v1/cues/bulk-delete").json(json!({ "ids": ids }));
                report(context, &context.send(&request.idempotent())?, cues)
            }
        }
    }
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

/// Prints a line for each cue.
fn report(context: &Context, answer: &Answer, cues: &[FoundCue]) -> Result<(), CliError> {
    let value = answer.value()?;
    let has = |field: &str, cue: &FoundCue| {
        value[field].as_array().into_iter().flatten().any(|id: &Value| id == cue.id.as_str())
    };
    let skipped = cues.iter().filter(|cue| has("skipped", cue)).count();
    match context.output.format {
        Format::Table | Format::Wide => {
            for cue in cues {
                let line = if has("skipped", cue) {
                    format!("not found {}", cue.label())
                } else {
                    format!("deleted {}", cue.label())
                };
                print_line(&line)?;
            }
        }
        Format::Id => {
            cues.iter().filter(|cue| has("deleted", cue)).try_for_each(|cue| print_line(&cue.id))?;
        }
        _ => context.output.object(answer, "", |_| Vec::new())?,
    }
    match skipped {
        0 => Ok(()),
        _ => Err(CliError::NotFound(format!("{skipped} of {} cues do not exist", cues.len()))),
    }
}
