//! Opens an editor until its text is accepted. A refused text is never lost: it is edited again, or stays in a file.

use serde_json::Value;

use crate::cli::error::CliError;
use crate::cli::input::editor;
use crate::cli::input::editor::EditedText;
use crate::client::error::ClientError;

/// Lets the user edit `text`, and passes it to `accept`.
/// Errors: those of the editor and of `accept`; their messages name the file that has the text.
pub fn edit_until_accepted(
    text: &str,
    mut accept: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let file = EditedText::new(text)?;
    loop {
        let error = match accept(&file.edit()?) {
            Ok(()) => return Ok(()),
            Err(CliError::OnlyShown) => return Err(CliError::OnlyShown),
            Err(error) => error,
        };
        if can_be_mended(&error) && editor::wants_again(&format!("cued: {error}")) {
            continue;
        }
        let path = file.keep()?;
        return Err(with_note(error, &format!("the text is kept in {}", path.display())));
    }
}

/// Another text may be accepted; a conflict, or a server that cannot be reached, stays.
fn can_be_mended(error: &CliError) -> bool {
    match error {
        CliError::Usage(_) => true,
        CliError::Client(ClientError::Refused(refused)) => matches!(refused.status, 400 | 422),
        _ => false,
    }
}

/// The same error with a sentence more, also in its JSON.
fn with_note(error: CliError, note: &str) -> CliError {
    match error {
        CliError::Usage(text) => CliError::Usage(format!("{text}; {note}")),
        CliError::NotFound(text) => CliError::NotFound(format!("{text}; {note}")),
        CliError::Refused(text) => CliError::Refused(format!("{text}; {note}")),
        CliError::Failed(text) => CliError::Failed(format!("{text}; {note}")),
        CliError::Client(ClientError::Refused(mut refused)) => {
            let message = refused.body["error"]["message"].as_str().map(|text| format!("{text}; {note}"));
            refused.body["error"]["message"] = message.map_or(Value::Null, Value::from);
            refused.message = format!("{}\n{note}", refused.message);
            CliError::Client(ClientError::Refused(refused))
        }
        // Failures of the connection have no text of their own.
        CliError::Client(error) => CliError::Failed(format!("{error}; {note}")),
        other => other,
    }
}
