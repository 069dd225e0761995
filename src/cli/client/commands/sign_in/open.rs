//! `cued open`: opens the page of the server, signed in.

use std::io::{self, IsTerminal as _};

use clap::Args;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::sign_in::browser;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

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
        if browser::open(&page(&answer.value()?)) {
            context.output.note("Opened in the browser. The address works once, for five minutes.")
        } else {
            context.output.note("Open this address in a browser. It works once, for five minutes.")
        }
    }
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
