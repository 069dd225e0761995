//! Edits a text in the editor of the user.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

use crate::cli::error::CliError;
use crate::cli::printable::print_error;

/// A text in a file that only its owner can read. The file is removed unless it is kept.
pub struct EditedText {
    file: NamedTempFile,
    editor: String,
}

impl EditedText {
    /// Errors: if there is no editor, or the file cannot be written.
    pub fn new(text: &str) -> Result<Self, CliError> {
        let named = |name: &str| std::env::var(name).ok().filter(|editor| !editor.is_empty());
        let editor = match named("VISUAL").or_else(|| named("EDITOR")) {
            Some(editor) => editor,
            None if io::stdin().is_terminal() => "vi".to_owned(),
            None => {
                return Err(CliError::Usage(
                    "there is no terminal for an editor: set VISUAL or EDITOR".to_owned(),
                ));
            }
        };
        let mut file =
            tempfile::Builder::new().prefix("cued-").suffix(".yaml").tempfile().map_err(cannot_write)?;
        file.write_all(text.as_bytes()).map_err(cannot_write)?;
        Ok(Self { file, editor })
    }

    /// Opens the editor and returns the text afterwards.
    /// Errors: if the editor fails or the file cannot be read.
    pub fn edit(&self) -> Result<String, CliError> {
        // By the shell, because the variable may have arguments: `code --wait`.
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{} \"$1\"", self.editor))
            .arg("sh")
            .arg(self.path())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => {
                return Err(CliError::Failed(format!(
                    "the editor {:?} failed; nothing was changed",
                    self.editor
                )));
            }
            Err(error) => return Err(CliError::Failed(format!("cannot run the editor: {error}"))),
        }
        // Many editors replace the file, so it is opened by its name.
        fs::read_to_string(self.path())
            .map_err(|error| CliError::Failed(format!("cannot read the edited text: {error}")))
    }

    /// Keeps the file and returns its name.
    /// Errors: if the file cannot be kept.
    pub fn keep(self) -> Result<PathBuf, CliError> {
        let (_, path) = self
            .file
            .keep()
            .map_err(|error| CliError::Failed(format!("cannot keep the edited text: {}", error.error)))?;
        Ok(path)
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

/// Shows why the text was refused, and asks whether to open the editor again, with yes as the usual answer. Without a
/// terminal there is nobody to ask.
pub fn wants_again(reason: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let mut answer = String::new();
    let mut ask = || {
        print_error(&format!("{reason}\nEdit again? [Y/n] "))?;
        io::stdin().read_line(&mut answer)
    };
    // The end of the input, or an input that cannot be read, is a no.
    matches!(ask(), Ok(1..)) && matches!(answer.trim(), "" | "y" | "Y" | "yes")
}

fn cannot_write(error: io::Error) -> CliError {
    CliError::Failed(format!("cannot write the text for the editor: {error}"))
}
