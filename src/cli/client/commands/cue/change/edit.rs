//! `cued cue edit`.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::client::arguments::{FoundCue, find, label_of};
use crate::cli::client::commands::cue::change::document::{difference, editable, of_cue};
use crate::cli::client::commands::cue::change::session::edit_until_accepted;
use crate::cli::client::commands::schedule::with_caret;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::input::yaml;
use crate::cli::output::cells::text_of;
use crate::cli::printable::printable;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Edit {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,
}

impl Edit {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let found = find(context, &self.cue)?;
        let cue = read(context, &found)?;
        let old = editable(&cue);
        let text = of_cue(&cue, &note(&cue))?;
        edit_until_accepted(&text, |edited| {
            let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
            if edited.lines().all(is_comment) {
                return context.output.note("the text is empty; nothing was changed");
            }
            let new = yaml::read(edited)
                .map_err(|error| CliError::Usage(format!("the text cannot be read: {error}")))?
                .get()
                .to_value();
            if !new.is_object() {
                return Err(CliError::Usage("the text cannot be read: it is no object of fields".to_owned()));
            }
            let patch = difference(&old, &new);
            if patch == json!({}) {
                return context.output.note("nothing was changed");
            }
            // Runs change `updated_at` too, so the fields themselves are compared.
            if editable(&read(context, &found)?) != old {
                let reason = format!("{} was changed meanwhile; nothing was sent", label_of(&cue));
                return Err(CliError::Refused(reason));
            }
            send(context, &found, &patch)
        })
    }
}

/// Sends a change and prints what it changed.
/// Errors: if the server refuses the change or cannot be reached.
pub fn send(context: &Context, cue: &FoundCue, patch: &Value) -> Result<(), CliError> {
    let request = ApiRequest::patch(cue.path()).json(patch);
    let answer =
        context.send(&request).map_err(|error| with_caret(error, patch["schedule"]["cron"].as_str()))?;
    context.output.done(&answer, "id", |cue| {
        let names: Vec<String> =
            patch.as_object().into_iter().flatten().map(|(name, _)| printable(name)).collect();
        let next = context.output.times.instant(&text_of(cue, "next_run"));
        let next = if next.is_empty() { next } else { format!("; next run {next}") };
        format!("changed {}: {}{next}", label_of(cue), names.join(", "))
    })
}

/// The cue as it is now.
/// Errors: if the server refuses the request or cannot be reached.
pub fn read(context: &Context, cue: &FoundCue) -> Result<Value, CliError> {
    let request = ApiRequest::get(cue.path()).query("execution_limit", "1");
    Ok(context.look_up(&request)?.value()?)
}

fn note(cue: &Value) -> String {
    format!(
        "# {}. Changes are sent when you save and leave the editor.\n\
         # A removed description, payload or limit is removed; other removed fields stay as they are.\n",
        label_of(cue)
    )
}
