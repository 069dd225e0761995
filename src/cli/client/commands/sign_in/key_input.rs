//! A key from standard input: the only way into a command besides the environment.

use std::io::{self, Read as _};

use crate::cli::client::commands::sign_in::terminal;
use crate::cli::error::CliError;
use crate::domain::account::credentials::may_contain_secret;

/// More than a key has.
const MAX_INPUT: u64 = 4096;

/// Refuses a key that was given as an argument, and does not repeat it.
/// Errors: if the argument is not `-`.
pub fn check_argument(argument: &str) -> Result<(), CliError> {
    if argument == "-" {
        return Ok(());
    }
    let mut text = "--key takes `-` only, and reads the key from standard input: `cued login --key - < FILE`. \
                    An argument can be read by every user of this machine (ps) and stays in the shell's history"
        .to_owned();
    if may_contain_secret(argument) {
        text.push_str(". Revoke this key and make a new one");
    }
    Err(CliError::Usage(text))
}

/// Reads a key; at a terminal it is asked for and not shown.
/// Errors: if there is none, or the text cannot be a key.
pub fn read() -> Result<String, CliError> {
    let text = if terminal::can_ask() { terminal::ask_hidden("API key: ")? } else { read_all()? };
    let key = text.trim();
    if key.is_empty() {
        return Err(CliError::Usage("--key -: standard input has no key".to_owned()));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(CliError::Usage(
            "--key -: this is no key: a key is one word of letters and digits, such as cue_sk_…".to_owned(),
        ));
    }
    Ok(key.to_owned())
}

fn read_all() -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().take(MAX_INPUT).read_to_string(&mut text);
    read.map_err(|error| CliError::Failed(format!("cannot read the key from standard input: {error}")))?;
    Ok(text)
}
