//! `cued open`: opens the page of the server, signed in.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use clap::Args;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::sign_in::browser;
use crate::cli::client::context::Context;
use crate::cli::client::live_output::Interrupt;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

/// The time that a browser has to show the page.
const LONGEST_START: Duration = Duration::from_secs(30);

/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub struct Open {
    /// Screen to show, such as cues or runs/ID [default: the overview]
    screen: Option<String>,
    /// Print the address only
    #[arg(long)]
    no_browser: bool,
}

impl ClientAction for Open {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let screen = self.screen.as_deref().map(screen).transpose()?.unwrap_or_default();
        let answer = context.send(&ApiRequest::post("/v1/auth/session-link"))?;
        let page = |link: &serde_json::Value| format!("{}{screen}", text_of(link, "url"));
        context.output.done(&answer, "url", page)?;
        // Without a terminal the address is for a program.
        if self.no_browser || context.output.format.is_json() || !io::stdout().is_terminal() {
            return Ok(());
        }
        let before = sessions(context);
        let Some(_file) = browser::open_secret(&page(&answer.value()?)) else {
            return context.output.note("Open this address in a browser. It works once, for five minutes.");
        };
        context.output.note("Opened in the browser. The address works once, for five minutes.")?;
        // A browser that is started now takes a while to read the file.
        let interrupt = Interrupt::listen()?;
        let clock = context.client.clock();
        let deadline = clock.monotonic() + LONGEST_START;
        let is_used = |before| sessions(context).is_some_and(|now| now != before);
        while !before.clone().is_some_and(is_used)
            && clock.monotonic() < deadline
            && !interrupt.is_requested()
        {
            clock.sleep(LOOK);
        }
        Ok(())
    }
}

/// The ids of the sessions of the account: there is another one as soon as the link was used. `None` if they cannot be read.
fn sessions(context: &Context) -> Option<Vec<String>> {
    let value = context.look_up(&ApiRequest::get("/v1/auth/sessions")).ok()?.value().ok()?;
    Some(value["sessions"].as_array()?.iter().map(|session| text_of(session, "id")).collect())
}

/// The part of the address that names a screen.
fn screen(text: &str) -> Result<String, CliError> {
    let name = text.trim_start_matches(['#', '/']);
    if name.chars().any(|char| char.is_whitespace() || char.is_control()) {
        return Err(CliError::Usage(format!("{text:?} is no screen: give one such as cues or runs/ID")));
    }
    Ok(if name.is_empty() { String::new() } else { format!("/{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_written_as_in_the_address_of_the_page() {
        for (text, expected) in
            [("cues", "/cues"), ("#/cues/cue_1", "/cues/cue_1"), ("/runs", "/runs"), ("#/", "")]
        {
            assert_eq!(screen(text).unwrap(), expected);
        }
        assert!(screen("a b").is_err());
    }
}
