//! Asks the person at the terminal.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::cli::error::CliError;
use crate::cli::printable::print_error;

/// Somebody can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks for a line of text.
/// Errors: if the input has ended or failed.
pub fn ask(question: &str) -> Result<String, CliError> {
    let mut answer = String::new();
    let mut ask = || {
        print_error(question)?;
        io::stdin().read_line(&mut answer)
    };
    match ask() {
        Ok(0) => Err(CliError::Usage("nothing was entered".to_owned())),
        Ok(_) => Ok(answer.trim().to_owned()),
        Err(error) => Err(CliError::Failed(format!("cannot ask: {error}"))),
    }
}

/// Asks for a text that does not appear on the screen.
pub fn ask_hidden(question: &str) -> Result<String, CliError> {
    let failed = |error| CliError::Failed(format!("cannot hide the input: {error}"));
    let shown = tcgetattr(io::stdin()).map_err(failed)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).map_err(failed)?;
    let answer = ask(question);
    tcsetattr(io::stdin(), OptionalActions::Now, &shown).map_err(failed)?;
    // The end of the line was not shown either.
    print_error("\n").map_err(|error| CliError::Failed(format!("cannot ask: {error}")))?;
    answer
}

/// The lines that the person enters from now on, while the command does something else.
pub fn lines() -> Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
