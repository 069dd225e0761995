//! A text in the editor of the user, until it is accepted. A refused text is never lost: it is edited again, or stays in a
//! file that only its owner can read.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::api::cue::FIELDS;
use crate::cli::client::context::environment;
use crate::cli::error::CliError;
use crate::cli::input::yaml;
use crate::cli::output::yaml::document_of;
use crate::cli::printable::print_error;
use crate::client::request::ClientError;

/// The parts of fields, in the order of the text.
const PARTS: &str =
    "cron at timezone catch_up url method headers max_attempts backoff_minutes email webhook pause";

/// The text of an object: `note`, then the fields of a cue that it has.
pub fn document(object: &Value, note: &str) -> String {
    let mut text = note.to_owned();
    for field in FIELDS {
        match object.get(field) {
            // A payload has no order of its own.
            Some(Value::Object(parts)) if !parts.is_empty() && field != "payload" => {
                text += &format!("{field}:\n");
                let mut parts: Vec<(&String, &Value)> = parts.iter().collect();
                parts.sort_by_key(|(name, _)| PARTS.split(' ').position(|part| part == *name).unwrap_or(99));
                for (name, value) in parts {
                    let entry = document_of(&json!({ name: value }));
                    text.extend(entry.lines().map(|line| format!("  {line}\n")));
                }
            }
            Some(value) => text += &document_of(&json!({ field: value })),
            None => {}
        }
    }
    text
}

/// The text has nothing but comments.
pub fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

/// The fields in an edited text.
pub fn read(text: &str) -> Result<Value, CliError> {
    let fault = match yaml::read(text) {
        Ok(value) if value.is_object() => return Ok(value),
        Ok(_) => "it is no object of fields".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(CliError::Usage(format!("the text cannot be read: {fault}")))
}

/// Lets the user edit `text`, and passes it to `accept`. An error names the file that has the text.
pub fn edit_until_accepted(
    text: &str,
    mut accept: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let editor = match environment("VISUAL").or_else(|| environment("EDITOR")) {
        Some(editor) => editor,
        None if io::stdin().is_terminal() => "vi".to_owned(),
        None => {
            let message = "there is no terminal for an editor: set VISUAL or EDITOR";
            return Err(CliError::Usage(message.to_owned()));
        }
    };
    let failed = |error: io::Error| CliError::Failed(format!("cannot keep the text for the editor: {error}"));
    let mut file = tempfile::Builder::new().prefix("cued-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    loop {
        let error = match accept(&edit(&editor, file.path())?) {
            Ok(()) => return Ok(()),
            Err(CliError::OnlyShown) => return Err(CliError::OnlyShown),
            Err(error) => error,
        };
        // Another text may be accepted; a conflict, or a server that cannot be reached, stays.
        let can_be_mended = match &error {
            CliError::Usage(_) => true,
            CliError::Client(ClientError::Refused(refused)) => matches!(refused.status, 400 | 422),
            _ => false,
        };
        if !can_be_mended || !wants_again(&error) {
            let (_, path) = file.keep().map_err(|error| failed(error.error))?;
            return Err(with_note(error, &format!("the text is kept in {}", path.display())));
        }
    }
}

/// Opens the editor and returns the text afterwards.
fn edit(editor: &str, path: &Path) -> Result<String, CliError> {
    // By the shell, because the variable may have arguments: `code --wait`.
    let script = format!("{editor} \"$1\"");
    let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(path).status();
    let status = status.map_err(|error| CliError::Failed(format!("cannot run the editor: {error}")))?;
    if !status.success() {
        return Err(CliError::Failed(format!("the editor {editor:?} failed; nothing was changed")));
    }
    // Many editors replace the file, so it is opened by its name.
    fs::read_to_string(path)
        .map_err(|error| CliError::Failed(format!("cannot read the edited text: {error}")))
}

/// Asks whether to open the editor again, with yes as the usual answer, if there is somebody to ask.
fn wants_again(error: &CliError) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let mut answer = String::new();
    let mut ask = || {
        print_error(&format!("cued: {error}\nEdit again? [Y/n] "))?;
        io::stdin().read_line(&mut answer)
    };
    // The end of the input, or an input that cannot be read, is a no.
    matches!(ask(), Ok(1..)) && matches!(answer.trim(), "" | "y" | "Y" | "yes")
}

/// The same error with a sentence more, also in its JSON.
fn with_note(error: CliError, note: &str) -> CliError {
    match error {
        CliError::Usage(text) => CliError::Usage(format!("{text}; {note}")),
        CliError::Refused(text) => CliError::Refused(format!("{text}; {note}")),
        CliError::Client(ClientError::Refused(mut refused)) => {
            refused.message += &format!("\n{note}");
            refused.body["error"]["message"] = refused.message.as_str().into();
            CliError::Client(ClientError::Refused(refused))
        }
        other => CliError::Failed(format!("{other}; {note}")),
    }
}
