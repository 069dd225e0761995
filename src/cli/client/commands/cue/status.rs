//! `cued cue pause` and `cued cue resume`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::client::arguments::cue_name;
use crate::cli::client::arguments::cue_name::{FoundCue, MAX_AT_ONCE, label_of};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::print::{count, print_line};
use crate::cli::printable::printable;
use crate::client::request::{Answer, ApiRequest};

/// The cues that change.
#[derive(Debug, Args)]
pub struct Selection {
    /// Ids or names of cues
    #[arg(value_name = "CUE", required_unless_present = "all", num_args = 1..=MAX_AT_ONCE)]
    cues: Vec<String>,

    /// All cues that can be changed so
    #[arg(long, conflicts_with = "cues")]
    all: bool,
}

#[derive(Debug, Args)]
pub struct Pause {
    #[command(flatten)]
    selection: Selection,
}

#[derive(Debug, Args)]
pub struct Resume {
    #[command(flatten)]
    selection: Selection,
}

/// A change of the status, in the words of the API and of sentences.
struct Change {
    action: &'static str,
    done: &'static str,
    from: &'static str,
    to: &'static str,
}

const PAUSE: Change = Change { action: "pause", done: "paused", from: "active", to: "paused" };
const RESUME: Change = Change { action: "resume", done: "resumed", from: "paused", to: "active" };

impl Pause {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        PAUSE.apply(context, &self.selection)
    }
}

impl Resume {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        RESUME.apply(context, &self.selection)
    }
}

impl Change {
    fn apply(&self, context: &Context, selection: &Selection) -> Result<(), CliError> {
        if selection.all {
            return self.apply_to_all(context);
        }
        match cue_name::find_all(context, &selection.cues)?.as_slice() {
            [cue] => self.apply_to_one(context, cue),
            cues => self.apply_to_many(context, cues),
        }
    }

    fn apply_to_one(&self, context: &Context, cue: &FoundCue) -> Result<(), CliError> {
        let request = ApiRequest::patch(cue.path()).json(json!({ "status": self.to }));
        let answer = context.send(&request)?;
        context.output.done(&answer, "id", |cue| {
            let next = context.output.times.instant(&text_of(cue, "next_run"));
            let next = if next.is_empty() { next } else { format!("; next run {next}") };
            format!("{} {}{next}", self.done, label_of(cue))
        })
    }

    fn apply_to_many(&self, context: &Context, cues: &[FoundCue]) -> Result<(), CliError> {
        let ids: Vec<&str> = cues.iter().map(|cue| cue.id.as_str()).collect();
        let body = json!({ "action": self.action, "ids": ids });
        let answer = context.send(&ApiRequest::post("/v1/cues/bulk").json(body).idempotent())?;
        self.report(context, &answer, cues)
    }

    /// Changes all cues in the status before. The server refuses if their number is another than the confirmed one.
    fn apply_to_all(&self, context: &Context) -> Result<(), CliError> {
        let request = ApiRequest::get("/v1/cues").query("status", self.from).query("limit", "1");
        let total = context.look_up(&request)?.value()?["total"].as_i64().unwrap_or(0);
        if total > 0 {
            let cues = count(total, &format!("{} cue", self.from));
            context.confirm(&format!("{} all {cues}?", capitalized(self.action)))?;
        }
        let body = json!({ "action": self.action, "expected": total, "filter": { "status": self.from } });
        let answer = context.send(&ApiRequest::post("/v1/cues/bulk").json(body).idempotent())?;
        self.report(context, &answer, &[])
    }

    /// Prints a line for each cue; of all cues their number and the refused ones.
    fn report(&self, context: &Context, answer: &Answer, cues: &[FoundCue]) -> Result<(), CliError> {
        let value = answer.value()?;
        let refused: BTreeMap<String, String> = value["failed"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|refused| (text_of(refused, "id"), text_of(refused, "message")))
            .collect();
        let done = || cues.iter().filter(|cue| !refused.contains_key(&cue.id));
        match context.output.format {
            Format::Table | Format::Wide => {
                done().try_for_each(|cue| print_line(&format!("{} {}", self.done, cue.label())))?;
                if cues.is_empty() {
                    let number = value["done"].as_i64().unwrap_or(0);
                    print_line(&format!("{} {}", self.done, count(number, "cue")))?;
                }
                for (id, reason) in &refused {
                    let label = cues.iter().find(|cue| cue.id == *id).map(FoundCue::label);
                    let label = label.unwrap_or_else(|| id.clone());
                    print_line(&format!("refused {label}: {}", printable(reason)))?;
                }
            }
            Format::Id => done().try_for_each(|cue| print_line(&cue.id))?,
            _ => context.output.object(answer, "", |_| Vec::new())?,
        }
        all_or_refused(&value)
    }
}

fn all_or_refused(answer: &Value) -> Result<(), CliError> {
    let refused: Vec<&Value> = answer["failed"].as_array().into_iter().flatten().collect();
    let matched = &answer["matched"];
    let message = match refused.len() {
        0 => return Ok(()),
        1 => format!("1 of {matched} cues was refused"),
        number => format!("{number} of {matched} cues were refused"),
    };
    let is_unknown = refused.iter().all(|cue| cue["code"] == "cue_not_found");
    Err(if is_unknown { CliError::NotFound(message) } else { CliError::Refused(message) })
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
