//! Signing in and out, here and in a browser, and who is signed in.

mod device_flow;
pub mod login;
pub mod logout;
pub mod open;

use std::io::{self, IsTerminal as _};

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::List;
use crate::cli::output::table::text_of;
use crate::cli::printable::print_error;
use crate::client::request::ApiRequest;

/// A key that is not stored yet.
struct NewKey {
    api_key: String,
    /// The account, if the server has just handed out the key.
    email: Option<String>,
}

/// The id of the key that a command uses; `None` if the server does not mark it.
fn own_key_id(context: &Context) -> Result<Option<String>, CliError> {
    let keys = List::of(&context.look_up(&ApiRequest::get("/v1/auth/keys"))?, "keys")?.values()?;
    Ok(keys.iter().find(|key| key["current"] == true).map(|key| text_of(key, "id")))
}

/// Somebody can be asked.
fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Prints a question without an end of the line.
fn prompt(question: &str) -> Result<(), CliError> {
    print_error(question).map_err(|error| CliError::Failed(format!("cannot ask: {error}")))
}

/// Asks for a line of text.
fn ask(question: &str) -> Result<String, CliError> {
    prompt(question)?;
    let mut answer = String::new();
    match io::stdin().read_line(&mut answer) {
        Ok(0) => Err(CliError::Usage("nothing was entered".to_owned())),
        Ok(_) => Ok(answer.trim().to_owned()),
        Err(error) => Err(CliError::Failed(format!("cannot ask: {error}"))),
    }
}
